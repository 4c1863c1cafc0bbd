"""Two files of one model, two models, and the fingerprint that tells them apart."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from model_files import build, envelope, save_nanogpt
from safetensors.torch import save_file
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.checkpoints.fingerprints import fingerprint
from nanogpt_cli.inspection.differences import DiffReport, compare
from nanogpt_cli.model import GPT

TRANSPOSED = ("attn.c_attn.weight", "c_proj.weight", "c_fc.weight")


def diff(one: Path, other: Path, n_head: int | None = None) -> DiffReport:
    first, second = (open_checkpoint(str(path), n_head=n_head) for path in (one, other))
    return compare(first, second)


def save_as(path: Path, state: dict[str, Tensor], model: GPT, **extra: Any) -> Path:
    torch.save({**envelope(model), "model": state, **extra}, path)
    return path


def save_hf(folder: Path, model: GPT) -> Path:
    """Write the model with transformers' own code."""
    config = GPT2Config(
        vocab_size=65, n_positions=16, n_embd=24, n_layer=2, n_head=3, activation_function="gelu"
    )
    twin = GPT2LMHeadModel(config)
    state = {
        name: tensor.t().contiguous() if name.endswith(TRANSPOSED) else tensor
        for name, tensor in model.state_dict().items()
    }
    for name in twin.state_dict():
        if name.endswith(".bias") and name not in state:
            state[name] = torch.zeros_like(twin.state_dict()[name])
    twin.load_state_dict(state)
    twin.save_pretrained(folder)
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save_nanogpt(tmp_path / "base.pt", build())


def test_a_file_is_itself(base: Path) -> None:
    found = diff(base, base)
    assert found.same
    assert found.equal_tensors == len(found.tensors) == 28
    assert (found.config, found.run) == ((), ())


def test_other_prefixes_and_order(base: Path, tmp_path: Path) -> None:
    state = build().state_dict()
    renamed = {f"module._orig_mod.{name}": state[name] for name in reversed(list(state))}
    found = diff(base, save_as(tmp_path / "other.pt", renamed, build()))
    assert found.same
    assert found.first_fingerprint == found.second_fingerprint


@pytest.mark.parametrize("bias", [True, False])
def test_every_container_of_one_model(tmp_path: Path, bias: bool) -> None:
    model = build(bias=bias)
    paths = [save_nanogpt(tmp_path / "base.pt", model), save_hf(tmp_path / "hf", model)]
    paths.append(tmp_path / "legacy.pt")
    torch.save(envelope(model), paths[-1], _use_new_zipfile_serialization=False)
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    del state["lm_head.weight"]
    paths.append(tmp_path / "weights.safetensors")
    save_file(state, paths[-1])
    paths.append(tmp_path / "bare.bin")
    torch.save({name: tensor.clone() for name, tensor in model.state_dict().items()}, paths[-1])
    opened = [open_checkpoint(str(path)) for path in paths]
    assert len({fingerprint(each.architecture) for each in opened}) == 1
    for other in opened[1:]:
        found = compare(opened[0], other)
        assert found.same, found


def test_a_biasless_model_is_the_one_with_biases_of_zero(tmp_path: Path) -> None:
    model = build(bias=False)
    found = diff(save_nanogpt(tmp_path / "base.pt", model), save_hf(tmp_path / "hf", model))
    (field,) = (each for each in found.config if each.name == "bias")
    assert not field.decides
    assert {each.status for each in found.tensors} == {"equal", "zero and absent"}


def test_one_bias_that_is_not_zero_makes_another_model(tmp_path: Path) -> None:
    model = build(bias=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
        dict(model.named_parameters())["transformer.ln_f.bias"][3] = 0.5
    without = {k: v for k, v in model.state_dict().items() if not k.endswith(".bias")}
    one = save_as(tmp_path / "one.pt", without, build(bias=False))
    found = diff(one, save_nanogpt(tmp_path / "two.pt", model))
    assert [(each.name, each.decides) for each in found.config] == [("bias", True)]
    statuses = {each.name: each.status for each in found.tensors if each.status != "equal"}
    assert statuses.pop("transformer.ln_f.bias") == "only in the second"
    assert set(statuses.values()) == {"zero and absent"}


def test_an_activation_that_one_file_does_not_say_does_not_decide(
    base: Path, tmp_path: Path
) -> None:
    said = {"nanogpt_cli": {"activation": "gelu_tanh"}}
    found = diff(base, save_nanogpt(tmp_path / "other.pt", build(), **said))
    (field,) = found.config
    assert (field.name, field.why) == ("activation", "one file does not say it")
    assert found.same


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_cast_is_the_same_model(base: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    state = {name: tensor.to(dtype) for name, tensor in build().state_dict().items()}
    found = diff(base, save_as(tmp_path / "cast.pt", state, build()))
    assert found.same
    statuses = {each.status for each in found.tensors}
    assert statuses <= {"equal", "equal within the cast"}
    narrower = dtype != torch.float64
    assert ("equal within the cast" in statuses) == narrower
    assert (found.first_fingerprint == found.second_fingerprint) != narrower


def test_two_halves_are_compared_in_the_coarser_one(tmp_path: Path) -> None:
    half = {name: tensor.half() for name, tensor in build().state_dict().items()}
    coarse = {name: tensor.bfloat16() for name, tensor in half.items()}
    paths = [save_as(tmp_path / f"{n}.pt", s, build()) for n, s in enumerate((half, coarse))]
    found = diff(paths[0], paths[1])
    assert found.same
    assert {each.detail for each in found.tensors if each.status != "equal"} == {"to bfloat16"}


def test_a_cast_of_other_values_is_another_model(base: Path, tmp_path: Path) -> None:
    state = {name: tensor.bfloat16() for name, tensor in build().state_dict().items()}
    state["transformer.ln_f.weight"] += 0.5
    assert not diff(base, save_as(tmp_path / "cast.pt", state, build())).same


def test_norm_and_cosine_of_a_changed_weight(base: Path, tmp_path: Path) -> None:
    state = dict(build().state_dict())
    name = "transformer.h.0.mlp.c_fc.weight"
    before = state[name].double()
    state[name] = state[name] * -2 + 0.1
    after = state[name].double()
    found = diff(base, save_as(tmp_path / "other.pt", state, build()))
    (changed,) = (each for each in found.tensors if each.status != "equal")
    assert not found.same
    assert (changed.name, changed.status) == (name, "different")
    assert changed.relative_norm == pytest.approx(
        float((before - after).norm() / before.norm()), rel=1e-5
    )
    cosine = torch.nn.functional.cosine_similarity(before.flatten(), after.flatten(), dim=0)
    assert changed.cosine == pytest.approx(float(cosine), rel=1e-6)
    assert changed.max_abs_difference == pytest.approx(float((before - after).abs().max()))
    assert found.first_fingerprint != found.second_fingerprint


def test_one_bit_is_enough(base: Path, tmp_path: Path) -> None:
    state = {name: tensor.clone() for name, tensor in build().state_dict().items()}
    state["transformer.wpe.weight"].view(torch.int32)[3, 3] += 1
    found = diff(base, save_as(tmp_path / "other.pt", state, build()))
    assert not found.same
    assert [each.name for each in found.tensors if each.status == "different"] == [
        "transformer.wpe.weight"
    ]


def test_nan_equals_nan(tmp_path: Path) -> None:
    state = {name: tensor.clone() for name, tensor in build().state_dict().items()}
    state["transformer.ln_f.weight"][2] = float("nan")
    one = save_as(tmp_path / "one.pt", state, build())
    assert diff(one, one).same
    found = diff(one, save_nanogpt(tmp_path / "two.pt", build()))
    (changed,) = (each for each in found.tensors if each.status == "different")
    assert (changed.relative_norm, changed.cosine, changed.max_abs_difference) == (None, None, None)


def test_other_sizes(base: Path, tmp_path: Path) -> None:
    other = save_nanogpt(tmp_path / "other.pt", build(n_layer=1, vocab_size=70))
    found = diff(base, other)
    fields = {each.name: (each.first, each.second) for each in found.config}
    assert fields == {"n_layer": (2, 1), "vocab_size": (65, 70)}
    statuses = {each.name: each.status for each in found.tensors}
    assert statuses["transformer.wte.weight"] == "other shape"
    assert statuses["transformer.h.1.ln_1.weight"] == "only in the first"
    assert not found.same


def test_a_crop_has_equal_first_rows(base: Path, tmp_path: Path) -> None:
    model = build()
    model.crop_block_size(8)
    found = diff(base, save_nanogpt(tmp_path / "other.pt", model))
    (changed,) = (each for each in found.tensors if each.status != "equal")
    assert changed.detail == "[16, 24] and [8, 24], the first 8 rows equal"
    (changed,) = (each for each in diff(tmp_path / "other.pt", base).tensors if each.detail)
    assert changed.detail == "[8, 24] and [16, 24], the first 8 rows equal"


def test_an_untied_head_is_another_model(base: Path, tmp_path: Path) -> None:
    state = {name: tensor.clone() for name, tensor in build().state_dict().items()}
    state["lm_head.weight"] += 1
    found = diff(base, save_as(tmp_path / "other.pt", state, build()))
    assert not found.same
    assert [(each.name, each.decides) for each in found.config] == [("tied_head", True)]
    assert {each.name: each.status for each in found.tensors}["lm_head.weight"] == (
        "only in the second"
    )


def test_heads_count_where_both_files_say_them(base: Path, tmp_path: Path) -> None:
    other = save_nanogpt(tmp_path / "other.pt", build(n_head=4))
    found = diff(base, other)
    assert [(each.name, each.decides) for each in found.config] == [("n_head", True)]
    assert not found.same
    bare = tmp_path / "bare.pt"
    torch.save(build().state_dict(), bare)
    found = diff(base, bare)
    assert [(each.name, each.decides) for each in found.config] == [("n_head", False)]
    assert found.same


def test_training_does_not_decide(base: Path, tmp_path: Path) -> None:
    config = {"dataset": "other", "batch_size": 4}
    model = build(dropout=0.1)
    other = save_nanogpt(tmp_path / "other.pt", model, iter_num=300, config=config)
    found = diff(base, other)
    assert found.same
    assert {each.name: (each.first, each.second) for each in found.run} == {
        "iter_num": (250, 300),
        "dropout": (0.0, 0.1),
        "config.dataset": ("letters", "other"),
    }


def test_what_the_fingerprint_is(base: Path) -> None:
    """The digest is written down here, so that it never changes without a word."""
    digest = hashlib.sha256(b"nanogpt weights 1\n")
    for name, parameter in build().named_parameters():
        array = parameter.detach().numpy()
        digest.update(f"{name} {list(array.shape)}\n".encode() + array.astype("<f4").tobytes())
    assert fingerprint(open_checkpoint(str(base)).architecture) == digest.hexdigest()
