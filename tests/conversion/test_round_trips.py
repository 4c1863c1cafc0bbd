"""There and back, bit for bit, and the same logits and texts in transformers, for odd models."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conversion_files import (
    CONV1D,
    build_gpt2,
    load_hf,
    load_pt,
    run_hf,
    same_tensors,
    save_gpt2,
    to,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_files import build, save_nanogpt

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

SLOW = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes that no one would choose: odd numbers of layers, heads, columns and ids."""
    n_head = draw(st.integers(1, 5))
    return {
        "n_layer": draw(st.integers(1, 3)),
        "n_head": n_head,
        "n_embd": n_head * draw(st.integers(1, 7)),
        "block_size": draw(st.integers(1, 12)),
        "vocab_size": draw(st.integers(2, 70)),
        "seed": draw(st.integers(0, 99)),
    }


@SLOW
@given(
    sizes=models(),
    bias=st.booleans(),
    activation=st.sampled_from(["gelu", "gelu_tanh"]),
    dtype=st.sampled_from(sorted(DTYPES)),
)
def test_nanogpt_to_hugging_face_and_back(
    sizes: dict[str, Any], bias: bool, activation: str, dtype: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        there, back = Path(folder, "hf"), Path(folder, "back.pt")
        model = build(bias=bias, activation=activation, **sizes).to(DTYPES[dtype])
        extra = {"nanogpt_cli": {"activation": activation}}
        source = save_nanogpt(Path(folder, "ckpt.pt"), model, **extra)
        report = to(source, there)
        again = to(there, back)
        found, original = load_pt(back), load_pt(source)
        assert same_tensors(found["model"], original["model"])
        assert found["model_args"] == original["model_args"]
        assert found["nanogpt_cli"] == {"activation": activation}
        assert report.model.dtypes == again.model.dtypes == (dtype,)
        assert report.verification is not None
        assert report.verification.rounding is None
        ids = (torch.arange(sizes["block_size"]) * 7 % sizes["vocab_size"])[None]
        with torch.no_grad():
            ours, _ = model.float()(ids, ids)
        theirs = run_hf(there, ids)
        assert (ours[0] - theirs).abs().max() <= 1e-5 * max(1.0, theirs.abs().max().item())


@SLOW
@given(
    sizes=models(),
    activation=st.sampled_from(["gelu", "gelu_new"]),
    dtype=st.sampled_from(sorted(DTYPES)),
)
def test_hugging_face_to_nanogpt_and_back(
    sizes: dict[str, Any], activation: str, dtype: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, there, back = Path(folder, "hf"), Path(folder, "a.pt"), Path(folder, "back")
        sizes["n_positions"] = sizes.pop("block_size")
        save_gpt2(source, build_gpt2(activation_function=activation, **sizes), DTYPES[dtype])
        to(source, there)
        to(there, back)
        assert same_tensors(load_hf(back), load_hf(source))
        file = load_pt(there)
        assert file["model_args"]["bias"] is True
        assert file["nanogpt_cli"] == {
            "activation": {"gelu": "gelu", "gelu_new": "gelu_tanh"}[activation]
        }
        turned = {name for name in load_hf(source) if name.endswith(CONV1D)}
        for name in turned:
            assert torch.equal(file["model"][name], load_hf(source)[name].t())


@SLOW
@given(sizes=models(), bias=st.booleans(), dtype=st.sampled_from(sorted(DTYPES)))
def test_through_safetensors_and_back(sizes: dict[str, Any], bias: bool, dtype: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        there, back = Path(folder, "a.safetensors"), Path(folder, "back.pt")
        model = build(bias=bias, **sizes).to(DTYPES[dtype])
        source = save_nanogpt(Path(folder, "ckpt.pt"), model)
        to(source, there)
        to(there, back)
        assert same_tensors(load_pt(back)["model"], load_pt(source)["model"])
        assert load_pt(back)["model_args"] == load_pt(source)["model_args"]


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_fifty_greedy_tokens_are_the_same_in_transformers(
    tmp_path: Path, activation: str, bias: bool
) -> None:
    sizes = {"block_size": 60, "n_layer": 2, "n_head": 5, "n_embd": 20}
    model = build(5, spread=0.5, bias=bias, activation=activation, **sizes)
    extra = {"nanogpt_cli": {"activation": activation}}
    to(save_nanogpt(tmp_path / "ckpt.pt", model, **extra), tmp_path / "hf")
    library: Any = transformers
    theirs = library.GPT2LMHeadModel.from_pretrained(tmp_path / "hf")
    idx = torch.tensor([[3, 1, 4, 1, 5]])
    found = theirs.generate(
        idx, attention_mask=torch.ones_like(idx), max_new_tokens=50, do_sample=False
    )
    assert found.tolist() == model.generate(idx, 50, temperature=0).tolist()
    assert len(set(found[0, 5:].tolist())) > 5, "a text that never varies would prove little"


def test_an_imported_gpt2_writes_what_transformers_writes(tmp_path: Path) -> None:
    model = build_gpt2(n_positions=60, n_layer=2, n_head=5, n_embd=20)
    to(save_gpt2(tmp_path / "hf", model), tmp_path / "gpt2.pt")
    from nanogpt_cli.model import GPT

    ours = GPT.from_pretrained(str(tmp_path / "gpt2.pt")).eval()
    idx = torch.tensor([[3, 1, 4, 1, 5]])
    found = model.generate(
        idx, attention_mask=torch.ones_like(idx), max_new_tokens=50, do_sample=False
    )
    assert found.tolist() == ours.generate(idx, 50, temperature=0).tolist()


def test_padded_rows_are_kept(tmp_path: Path) -> None:
    """A vocabulary padded beyond its tokenizer is no fault, and lossless is the default."""
    model = build(vocab_size=50304, n_embd=6, n_layer=1)
    source = save_nanogpt(tmp_path / "ckpt.pt", model)
    report = to(source, tmp_path / "hf")
    assert report.model.vocab_size == 50304
    to(tmp_path / "hf", tmp_path / "back.pt")
    assert same_tensors(load_pt(tmp_path / "back.pt")["model"], load_pt(source)["model"])
