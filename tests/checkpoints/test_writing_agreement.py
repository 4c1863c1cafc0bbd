"""Comparing two models' logits a block at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from model_files import build, save_nanogpt

from nanogpt_cli.checkpoints import Architecture, open_checkpoint
from nanogpt_cli.checkpoints.agreement import SEED, Agreement, compare_logits
from nanogpt_cli.checkpoints.envelope import OWN_KEY
from nanogpt_cli.model import GPT

T = 16


def compare(tmp_path: Path, one: GPT, other: GPT, positions: int = T) -> Agreement:
    return compare_logits(
        opened(tmp_path / "a.pt", one), opened(tmp_path / "b.pt", other), positions
    )


def opened(path: Path, model: GPT) -> Architecture:
    own = {OWN_KEY: {"activation": model.config.activation}}
    return open_checkpoint(str(save_nanogpt(path, model, **own))).architecture


def logits(model: GPT) -> torch.Tensor:
    generator = torch.Generator().manual_seed(SEED)
    idx = torch.randint(model.config.vocab_size, (1, T), generator=generator)
    with torch.no_grad():
        found: torch.Tensor = model(idx, idx)[0][0]
    return found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied_head", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_the_figures_are_those_of_the_whole_models(
    tmp_path: Path, bias: bool, tied_head: bool, activation: str
) -> None:
    config: Any = {
        "bias": bias,
        "tied_head": tied_head,
        "activation": activation,
        "vocab_size": 5000,
    }
    one, other = build(0, **config), build(1, **config)
    found = compare(tmp_path, one, other)
    expected = (logits(one), logits(other))
    difference = (expected[0] - expected[1]).abs().max().item()
    assert found.positions == T
    assert found.largest_difference == pytest.approx(difference, rel=1e-4)
    assert found.largest_logit == pytest.approx(expected[0].abs().max().item(), rel=1e-4)
    same = (expected[0].argmax(1) == expected[1].argmax(1)).double().mean().item()
    assert found.top_1_agreement == same


def test_one_model_agrees_with_itself_to_the_last_bit(tmp_path: Path) -> None:
    model = build(dropout=0.5)
    found = compare(tmp_path, model, model)
    assert (found.largest_difference, found.top_1_agreement) == (0.0, 1.0)


def swap_query_and_key(model: GPT) -> None:
    weight = model.blocks[0].attn.c_attn.weight
    weight[:24], weight[24:48] = weight[24:48].clone(), weight[:24].clone()


def transpose_the_square_matrix(model: GPT) -> None:
    weight = model.blocks[1].attn.c_proj.weight
    weight.copy_(weight.t().clone())


def shift_positions(model: GPT) -> None:
    weight = model.transformer.wpe.weight
    weight.copy_(weight.roll(1, 0).clone())


def nudge_one_bias(model: GPT) -> None:
    bias = model.transformer.ln_f.bias
    assert bias is not None
    bias[3] += 1e-3


@pytest.mark.parametrize(
    "harm",
    [swap_query_and_key, transpose_the_square_matrix, shift_positions, nudge_one_bias],
)
def test_a_harmed_model_is_told_apart(tmp_path: Path, harm: Callable[[GPT], None]) -> None:
    good, bad = build(), build()
    with torch.no_grad():
        harm(bad)
    assert compare(tmp_path, good, bad).largest_difference > 1e-4


def test_nan_beside_nan_is_the_same_and_beside_a_number_is_not(tmp_path: Path) -> None:
    good, bad = build(tied_head=False), build(tied_head=False)
    with torch.no_grad():
        bad.lm_head.weight[7, 0] = float("nan")
    assert compare(tmp_path, bad, bad).largest_difference == 0.0
    assert compare(tmp_path, good, bad).largest_difference == float("inf")
    assert compare(tmp_path, bad, good).largest_difference == float("inf")


def test_only_the_given_positions_count(tmp_path: Path) -> None:
    good, bad = build(), build()
    with torch.no_grad():
        bad.transformer.wpe.weight[9:] += 1.0
    assert compare(tmp_path, good, bad, positions=9).largest_difference == 0.0
    assert compare(tmp_path, good, bad, positions=10).largest_difference > 0.0


def test_of_equal_logits_the_lowest_id_is_the_likeliest_in_every_part(tmp_path: Path) -> None:
    one, other = (build(vocab_size=5000, tied_head=False) for _ in range(2))
    with torch.no_grad():
        for model in (one, other):
            model.lm_head.weight.zero_()
            model.transformer.ln_f.weight.zero_()
            model.transformer.ln_f.bias.data.fill_(1.0)  # type: ignore[union-attr]
        other.lm_head.weight[0] = 1.0
    assert compare(tmp_path, one, other) == Agreement(T, 24.0, 0.0, 1.0)
