"""Sources as they are found: with and without prefix, head and masks, sharded, bare, refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from conversion_files import (
    CONV1D,
    build_gpt2,
    gpt2_config,
    load_hf,
    load_pt,
    same_tensors,
    save_raw,
    to,
)
from model_files import build, save_nanogpt
from torch import Tensor

from nanogpt_cli.accounting.parameters import count_tensors
from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.config import PRESETS, GPTConfig
from nanogpt_cli.errors import CheckpointError, NanoGPTError, UsageError


@pytest.fixture(scope="module")
def gpt2() -> dict[str, Tensor]:
    """The tensors of a GPT-2 as transformers stores them: `transformer.`, no head, no masks."""
    state: dict[str, Tensor] = build_gpt2().state_dict()
    return {name: tensor for name, tensor in state.items() if name != "lm_head.weight"}


def nanogpts(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What nanoGPT calls and stores the same weights."""
    turned = {
        name: tensor.t().contiguous() if name.endswith(CONV1D) else tensor
        for name, tensor in state.items()
    }
    return {**turned, "lm_head.weight": turned["transformer.wte.weight"]}


def bare(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("transformer."): tensor for name, tensor in state.items()}


def with_masks(state: dict[str, Tensor]) -> dict[str, Tensor]:
    masks = {f"h.{i}.attn.bias": torch.ones(16, 16).tril()[None, None] for i in range(2)}
    numbers = {f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(2)}
    return {**bare(state), **masks, **numbers}


def with_head(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**state, "lm_head.weight": state["transformer.wte.weight"].clone()}


@pytest.mark.parametrize("layout", [dict, bare, with_masks, with_head])
def test_every_layout_of_a_folder_gives_the_same_tensors(
    tmp_path: Path, gpt2: dict[str, Tensor], layout: Any
) -> None:
    save_raw(tmp_path / "hf", layout(gpt2), gpt2_config())
    report = to(tmp_path / "hf", tmp_path / "gpt2.pt")
    assert same_tensors(load_pt(tmp_path / "gpt2.pt")["model"], nanogpts(gpt2))
    assert report.source.activation == "gelu_tanh"
    to(tmp_path / "hf", tmp_path / "again")
    assert same_tensors(load_hf(tmp_path / "again"), gpt2)


def test_shards_and_bin_files(tmp_path: Path) -> None:
    model = build_gpt2()
    model.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 2
    to(tmp_path / "sharded", tmp_path / "one.pt")
    state = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}
    assert same_tensors(load_pt(tmp_path / "one.pt")["model"], nanogpts(state))
    folder = save_raw(tmp_path / "bin", state, gpt2_config())
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    to(folder, tmp_path / "two.pt")
    assert same_tensors(load_pt(tmp_path / "two.pt")["model"], nanogpts(state))


def test_a_bare_file_needs_its_number_of_heads(tmp_path: Path, gpt2: dict[str, Tensor]) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(bare(gpt2), path)
    with pytest.raises(UsageError, match="how many attention heads"):
        to(path, tmp_path / "gpt2.pt")
    report = to(path, tmp_path / "gpt2.pt", n_head=3)
    assert load_pt(tmp_path / "gpt2.pt")["model_args"]["n_head"] == 3
    assert load_pt(tmp_path / "gpt2.pt")["nanogpt_cli"] == {"activation": "gelu_tanh"}
    assert report.verification is not None
    assert report.verification.source_model == "transformers"


def test_our_safetensors_file_needs_nothing_beside_it(tmp_path: Path) -> None:
    model = build(bias=False, activation="gelu_tanh")
    source = save_nanogpt(tmp_path / "c.pt", model, nanogpt_cli={"activation": "gelu_tanh"})
    to(source, tmp_path / "a.safetensors")
    opened = open_checkpoint(str(tmp_path / "a.safetensors"))
    assert opened.config == GPTConfig(
        block_size=16,
        vocab_size=65,
        n_layer=2,
        n_head=3,
        n_embd=24,
        bias=False,
        activation="gelu_tanh",
    )
    assert opened.contents.metadata["bias"] == "false"
    # Another model's config.json in the same folder has no say.
    save_raw(tmp_path, {"x.weight": torch.zeros(1)}, gpt2_config(activation_function="gelu"))
    assert open_checkpoint(str(tmp_path / "a.safetensors")).config == opened.config


@pytest.mark.parametrize("name", PRESETS)
def test_the_four_sizes_give_as_many_tensors_as_they_should(name: str) -> None:
    expected = {"gpt2": 149, "gpt2-medium": 293, "gpt2-large": 437, "gpt2-xl": 581}
    sizes: dict[str, Any] = {**PRESETS[name], "vocab_size": 50257}
    assert count_tensors(GPTConfig(**sizes)) == expected[name]


def test_the_four_sizes_counted_in_files(tmp_path: Path) -> None:
    """As many layers as gpt2 has, few columns: the head counts as a tensor of its own."""
    model = build_gpt2(n_layer=12, n_embd=3, n_head=1)
    masks = {f"h.{i}.attn.bias": torch.ones(16, 16).tril()[None, None] for i in range(12)}
    state = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}
    config = gpt2_config(n_layer=12, n_embd=3, n_head=1)
    for folder, tensors in (("with", {**bare(state), **masks}), ("without", state)):
        save_raw(tmp_path / folder, tensors, config)
        to(tmp_path / folder, tmp_path / f"{folder}.pt")
        assert len(load_pt(tmp_path / f"{folder}.pt")["model"]) == 149


REFUSED = {
    "n_inner": 100,
    "activation_function": "relu",
    "layer_norm_epsilon": 1e-6,
    "scale_attn_by_inverse_layer_idx": True,
    "scale_attn_weights": False,
    "add_cross_attention": True,
    "model_type": "gptj",
    "quantization_config": {"quant_method": "gptq"},
    "architectures": ["GPT2ForSequenceClassification"],
}


@pytest.mark.parametrize("field", REFUSED)
@pytest.mark.parametrize("output", ["gpt2.pt", "out", "gpt2.safetensors"])
def test_what_cannot_be_carried_is_named_and_nothing_is_written(
    tmp_path: Path, gpt2: dict[str, Tensor], field: str, output: str
) -> None:
    source = save_raw(tmp_path / "in" / "hf", gpt2, gpt2_config(**{field: REFUSED[field]}))
    (tmp_path / "there").mkdir()
    with pytest.raises(CheckpointError) as caught:
        to(source, tmp_path / "there" / output)
    assert caught.value.exit_code == 1
    assert field in caught.value.message
    value = REFUSED[field]
    shown = {"quantization_config": "'gptq'", "architectures": "'GPT2ForSequenceClassification'"}
    assert shown.get(field, repr(value)) in caught.value.message
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize("value", [None, 96])
def test_an_inner_width_of_four_times_n_embd_is_gpt2s(
    tmp_path: Path, gpt2: dict[str, Tensor], value: int | None
) -> None:
    save_raw(tmp_path / "hf", gpt2, gpt2_config(n_inner=value))
    to(tmp_path / "hf", tmp_path / "gpt2.pt")
    assert same_tensors(load_pt(tmp_path / "gpt2.pt")["model"], nanogpts(gpt2))


@pytest.mark.parametrize("output", ["out.pt", "out.safetensors", "out"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtype_changes_every_weight_and_nothing_else(
    tmp_path: Path, output: str, dtype: str
) -> None:
    model = build()
    with torch.no_grad():
        model.transformer.wpe.weight[3, 5] = 1e-12
    source = save_nanogpt(tmp_path / "ckpt.pt", model)
    report = to(source, tmp_path / output, dtype=dtype)
    cast = {name: tensor.to(getattr(torch, dtype)) for name, tensor in model.state_dict().items()}
    if output == "out.pt":
        assert same_tensors(load_pt(tmp_path / output)["model"], cast)
    elif output == "out":
        turned = {k: v.t() if k.endswith(CONV1D) else v for k, v in cast.items()}
        del turned["lm_head.weight"]
        assert same_tensors(load_hf(tmp_path / output), turned)
    else:
        del cast["lm_head.weight"]
        assert same_tensors(safetensors.torch.load_file(tmp_path / output), cast)
    assert report.verification is not None
    if dtype == "float32":
        assert (report.cast, report.verification.rounding) == (None, None)
    else:
        assert report.cast is not None
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        after = weights.to(getattr(torch, dtype)).float()
        assert report.cast.elements == weights.numel()
        assert report.cast.changed == int((after != weights).sum())
        assert report.cast.vanished == (1 if dtype == "float16" else 0)
        assert report.verification.rounding is not None
        rounding = report.verification.rounding.largest_difference
        assert rounding > report.verification.logits.largest_difference


def test_a_number_too_large_for_the_type_stops_it(tmp_path: Path) -> None:
    model = build()
    with torch.no_grad():
        model.transformer.wpe.weight[15, 23] = -70000.0
    source = save_nanogpt(tmp_path / "in" / "ckpt.pt", model)
    (tmp_path / "there").mkdir()
    for output in ("out", "out.pt", "out.safetensors"):
        with pytest.raises(NanoGPTError) as caught:
            to(source, tmp_path / "there" / output, dtype="float16")
        assert caught.value.exit_code == 1
        expected = "'transformer.wpe.weight' holds 70000: float16 ends at 65504"
        assert caught.value.message == expected
    assert list((tmp_path / "there").iterdir()) == []
    to(source, tmp_path / "there" / "out.pt", dtype="bfloat16")


def test_weights_that_are_no_numbers_are_kept_as_they_are(tmp_path: Path) -> None:
    """A diverged model converts; its NaNs stay the NaNs they are."""
    model = build()
    odd = struct.unpack("<f", b"\x01\x02\xc3\x7f")[0]
    with torch.no_grad():
        model.transformer.wpe.weight[3, 5] = odd
    source = save_nanogpt(tmp_path / "ckpt.pt", model)
    to(source, tmp_path / "hf")
    to(tmp_path / "hf", tmp_path / "back.pt")
    assert same_tensors(load_pt(tmp_path / "back.pt")["model"], load_pt(source)["model"])


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "n_head"),
    [
        ("nanogpt-char", None),
        ("minGPT-adder", 3),
        ("makemore-names", 4),
        ("hf-tiny-21", None),
        ("hf-legacy-bin", None),
    ],
)
def test_models_of_strangers_go_there_and_back(
    tmp_path: Path, zoo: Path, name: str, n_head: int | None
) -> None:
    source = str(zoo / name)
    to(source, tmp_path / "hf", n_head=n_head)
    to(tmp_path / "hf", tmp_path / "back.pt")
    to(source, tmp_path / "direct.pt", n_head=n_head)
    one, other = load_pt(tmp_path / "back.pt"), load_pt(tmp_path / "direct.pt")
    assert same_tensors(one["model"], other["model"])
    sizes = {name: value for name, value in other["model_args"].items() if name != "dropout"}
    assert {name: one["model_args"][name] for name in sizes} == sizes
    assert one["nanogpt_cli"] == other["nanogpt_cli"]
