"""The pass that is looked at is the model's own, and transformers' too.

CASES: dropout is off (42), raw logits that equal transformers' (130), labels and rows (128).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from behaviour_subjects import IDS, subject, transformers_pair
from model_files import build

from nanogpt_cli.inspection.behaviour.trace import (
    embed,
    last_residual,
    row_labels,
    trace,
    unembed,
    walk,
)

IDX = torch.tensor([IDS])


@pytest.mark.parametrize("config", [{}, {"bias": False}, {"attention": "manual"}])
def test_the_steps_end_in_the_models_own_logits(config: dict[str, Any]) -> None:
    model = build(**config)
    targets = torch.zeros_like(IDX)
    with torch.no_grad():
        expected = model(IDX, targets)[0]
    torch.testing.assert_close(unembed(model, last_residual(model, IDX)), expected)
    *_, last = walk(model, IDX)
    torch.testing.assert_close(unembed(model, last.residual), expected, atol=1e-5, rtol=0)


def test_each_layer_adds_what_it_writes() -> None:
    model = build()
    found = trace(model, IDX)
    assert found.residual.shape == (3, 12, 24)
    assert found.attention.shape == found.mlp.shape == (2, 12, 24)
    torch.testing.assert_close(
        found.residual[0], found.token_embedding + found.position_embedding, atol=0, rtol=0
    )
    torch.testing.assert_close(
        found.residual[1:], found.residual[:-1] + found.attention + found.mlp
    )


def test_the_first_row_is_wte_and_wpe() -> None:
    model = build()
    token, position = embed(model, IDX)
    assert torch.equal(token[0], model.transformer.wte.weight[list(IDS)])
    assert torch.equal(position, model.transformer.wpe.weight[:12])


def test_rows_are_the_embedding_and_the_blocks() -> None:
    labels = [(step.label, step.layer) for step in walk(build(), IDX)]
    assert labels == [("embed", None), ("block 0", 0), ("block 1", 1)]
    assert row_labels(2) == [label for label, _ in labels]


def test_the_units_are_what_the_gelu_is_given() -> None:
    model = build()
    _, first, _ = walk(model, IDX)
    assert first.units is not None
    assert first.mlp is not None
    mlp = model.blocks[0].mlp
    with torch.no_grad():
        torch.testing.assert_close(mlp.c_proj(mlp.gelu(first.units)), first.mlp, atol=0, rtol=0)


@pytest.mark.parametrize("settings", [{}, {"activation_function": "gelu"}], ids=["tanh", "exact"])
def test_hidden_states_are_those_of_transformers(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    theirs, ours = transformers_pair(tmp_path, **settings)
    with torch.no_grad():
        out = theirs(IDX, output_hidden_states=True)
    found = trace(ours, IDX)
    expected = torch.cat(out.hidden_states[:-1])
    assert len(expected) == 3
    torch.testing.assert_close(found.residual[:-1], expected, atol=1e-5, rtol=0)
    with torch.no_grad():
        normed = ours.transformer.ln_f(found.residual[-1])
    torch.testing.assert_close(normed, out.hidden_states[-1][0], atol=1e-5, rtol=0)
    torch.testing.assert_close(unembed(ours, found.residual[-1]), out.logits[0], atol=1e-4, rtol=0)


def test_dropout_of_the_file_changes_nothing() -> None:
    plain, dropped = build(dropout=0.0), build(dropout=0.5)
    dropped.load_state_dict(plain.state_dict())
    first, second = trace(dropped, IDX), trace(dropped, IDX)
    assert torch.equal(first.residual, second.residual)
    assert torch.equal(first.residual, trace(plain, IDX).residual)


def test_a_long_text_keeps_its_last_block() -> None:
    whole = subject(ids=[*range(40)])
    seen = whole.last_block()
    assert list(seen.ids) == list(range(24, 40))
    assert seen.dropped == 24
    assert seen.notes == ("the prompt has 40 tokens and the model sees the last 16 of them",)
    assert subject().last_block().notes == ()
