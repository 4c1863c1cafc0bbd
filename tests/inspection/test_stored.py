"""Where every byte of a file went."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from model_files import build, envelope, save_nanogpt
from training_files import save_trained

from nanogpt_cli.checkpoints import TensorInfo, open_checkpoint
from nanogpt_cli.inspection.stored import (
    ByteCount,
    StoredTensor,
    count_bytes,
    extent_bytes,
    list_stored,
)


def count(path: Path) -> ByteCount:
    return count_bytes(list_stored(open_checkpoint(str(path))), path.stat().st_size)


def sizes(counted: ByteCount) -> dict[str, int]:
    return {section.name: section.stored_bytes for section in counted.sections}


def info(
    offset: int, shape: tuple[int, ...], *, storage: str = "0", size: int = 4096
) -> TensorInfo:
    strides = tuple(itertools.accumulate((1, *shape[:0:-1]), lambda a, b: a * b))[::-1]
    return TensorInfo("float32", shape, strides, Path("f"), offset, storage, size)


def test_a_training_checkpoint_sums_to_its_file(tmp_path: Path) -> None:
    path = save_trained(tmp_path / "ckpt.pt")
    config = open_checkpoint(str(path)).config
    L, C = config.n_layer, config.n_embd
    parameters = (65 + 16) * C + L * (12 * C * C + 2 * C) + C
    found = sizes(count(path))
    assert found["weights"] == found["adam_m"] == found["adam_v"] == 4 * parameters
    assert (found["head"], found["masks"]) == (0, 0)
    tensors = 3 + 6 * L
    assert found["other"] == 4 * tensors + 4  # Adam's step counts, and best_val_loss
    counted = count(path)
    assert counted.unused_bytes == 0
    assert counted.tensor_bytes == sum(found.values())
    assert counted.tensor_bytes + counted.rest_bytes == path.stat().st_size


def test_gpt2_with_adam_as_published() -> None:
    weights = info(0, (124_439_808,), storage="w", size=497_759_232)
    moments = [
        info(497_759_232 * n, (124_439_808,), storage=f"{n}", size=497_759_232) for n in (1, 2)
    ]
    counted = count_bytes(
        [
            StoredTensor("w", "", "weights", weights),
            StoredTensor("m", "", "adam_m", moments[0]),
            StoredTensor("v", "", "adam_v", moments[1]),
        ],
        1_493_277_696 + 10,
    )
    found = sizes(counted)
    assert found["weights"] == 497_759_232
    assert found["adam_m"] + found["adam_v"] == 995_518_464
    assert (counted.tensor_bytes, counted.rest_bytes) == (1_493_277_696, 10)


def test_a_copy_of_the_head_is_a_section_of_its_own(tmp_path: Path) -> None:
    model = build(bias=False)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    path = tmp_path / "ckpt.pt"
    torch.save({**envelope(model), "model": state}, path)
    assert sizes(count(path))["head"] == 65 * 24 * 4


def test_masks_are_no_weights(tmp_path: Path) -> None:
    model = build(bias=False)
    state = dict(model.state_dict())
    for layer in range(2):
        state[f"transformer.h.{layer}.attn.bias"] = torch.ones(16, 16).tril().view(1, 1, 16, 16)
    path = tmp_path / "ckpt.pt"
    torch.save({**envelope(model), "model": state}, path)
    assert sizes(count(path))["masks"] == 2 * 16 * 16 * 4


def test_a_slice_drags_its_storage_along(tmp_path: Path) -> None:
    model = build(bias=False)
    state = dict(model.state_dict())
    state["transformer.wpe.weight"] = torch.zeros(64, 24)[:16]
    path = tmp_path / "ckpt.pt"
    torch.save({**envelope(model), "model": state}, path)
    assert count(path).unused_bytes == 48 * 24 * 4


def test_weights_that_are_views_of_one_storage(tmp_path: Path) -> None:
    model = build(bias=False)
    flat = torch.cat([each.flatten() for each in model.parameters()])
    state: dict[str, Any] = {}
    offset = 0
    for name, each in model.named_parameters():
        state[name] = flat[offset : offset + each.numel()].view(each.shape)
        offset += each.numel()
    path = tmp_path / "ckpt.pt"
    torch.save({**envelope(model), "model": state}, path)
    counted = count(path)
    assert sizes(counted)["weights"] == 4 * flat.numel()
    assert counted.unused_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_shared_bytes_are_counted_once(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(0, 64, (12, 2), generator=generator).tolist()
    tensors = [
        StoredTensor(f"{i}", "", section, info(4 * begin, (length,), size=0))
        for i, ((begin, length), section) in enumerate(
            zip(pairs, itertools.cycle(("other", "weights", "masks")), strict=False)
        )
    ]
    claimed: dict[str, set[int]] = {"weights": set(), "masks": set(), "other": set()}
    taken: set[int] = set()
    for section in claimed:
        for tensor in tensors:
            if tensor.section == section:
                begin = tensor.info.offset
                cells = set(range(begin, begin + tensor.info.nbytes)) - taken
                claimed[section] |= cells
                taken |= cells
    found = sizes(count_bytes(tensors, 0))
    assert {name: found[name] for name in claimed} == {k: len(v) for k, v in claimed.items()}


def test_the_extent_of_a_transposed_view() -> None:
    transposed = TensorInfo("float16", (3, 5), (1, 3), Path("f"), 0, "0", 30)
    assert extent_bytes(transposed) == 30
    assert extent_bytes(TensorInfo("float32", (4, 0), (1, 1), Path("f"), 0, "0", 0)) == 0
    assert extent_bytes(TensorInfo("float32", (9, 9), (0, 0), Path("f"), 0, "0", 4)) == 4


def test_what_lies_beside_the_state_dict_is_found(tmp_path: Path) -> None:
    extra = {"rng": [torch.zeros(3, dtype=torch.uint8)], "ema": {"a": {"b": torch.zeros(2)}}}
    path = save_nanogpt(tmp_path / "ckpt.pt", build(), **extra)
    stored = list_stored(open_checkpoint(str(path)))
    names = {each.name: each.section for each in stored if each.section == "other"}
    assert names == {"best_val_loss": "other", "rng.0": "other", "ema.a.b": "other"}


def test_a_list_within_two_places_is_walked_once(tmp_path: Path) -> None:
    shared = [torch.zeros(2)]
    path = save_nanogpt(tmp_path / "ckpt.pt", build(), one=shared, two=shared)
    stored = list_stored(open_checkpoint(str(path)))
    assert [each.name for each in stored if each.name.startswith(("one", "two"))] == ["one.0"]
