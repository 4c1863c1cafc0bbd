"""The lens: every row normalised by its own statistics, the last row the model's own word.

CASES: layer 0 by hand (120), n_layer + 1 rows, ln_f once in the last (128).
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from behaviour_subjects import IDS, subject, transformers_pair
from model_files import build

from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.inspection.behaviour import scoring
from nanogpt_cli.inspection.behaviour.lens import measure
from nanogpt_cli.inspection.behaviour.trace import trace
from nanogpt_cli.model import GPT

IDX = torch.tensor([IDS])


def normed_by_hand(model: GPT, residual: torch.Tensor) -> list[float]:
    """Return ln_f of one position, written out."""
    values = residual.double().tolist()
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    ln_f = model.transformer.ln_f
    assert ln_f.bias is not None
    gains, shifts = ln_f.weight.tolist(), ln_f.bias.tolist()
    return [
        (value - mean) / math.sqrt(variance + 1e-5) * gain + shift
        for value, gain, shift in zip(values, gains, shifts, strict=True)
    ]


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_each_row_by_hand(layer: int) -> None:
    model = build()
    report = measure(subject(model), track="7")
    normed = torch.tensor(normed_by_hand(model, trace(model, IDX).residual[layer][5])).double()
    logits = model.lm_head.weight.double() @ normed
    chances = logits.softmax(dim=-1)
    row = report.rows[layer]
    assert row.top_ids[5] == int(logits.argmax())
    assert row.top_probabilities[5] == pytest.approx(chances.max().item(), abs=1e-5)
    expected = -sum(p * math.log2(p) for p in chances.tolist())
    assert row.entropies_bits[5] == pytest.approx(expected, abs=1e-4)
    assert row.tracked_ranks is not None
    assert row.tracked_ranks[5] == 1 + int((logits > logits[7]).sum())
    assert row.tracked_probabilities is not None
    assert row.tracked_probabilities[5] == pytest.approx(chances[7].item(), abs=1e-5)


def test_the_last_row_is_the_models_own_logits() -> None:
    model = build()
    report = measure(subject(model))
    with torch.no_grad():
        expected = model(IDX)[0][0, -1]
    last = torch.from_numpy(report.arrays()["last_logits"][-1])
    torch.testing.assert_close(last, expected, atol=1e-5, rtol=0)
    assert report.rows[-1].top_ids[-1] == int(expected.argmax())
    assert [row.label for row in report.rows] == ["embed", "block 0", "block 1"]
    assert [row.layer for row in report.rows] == [None, 0, 1]


def test_the_last_row_is_that_of_transformers(tmp_path: Path) -> None:
    theirs, ours = transformers_pair(tmp_path)
    with torch.no_grad():
        out = theirs(IDX, output_hidden_states=True)
        early = theirs.lm_head(theirs.transformer.ln_f(out.hidden_states[1]))
    report = measure(subject(ours))
    assert report.rows[-1].top_ids == tuple(out.logits[0].argmax(dim=-1).tolist())
    logits = torch.from_numpy(report.arrays()["last_logits"])
    torch.testing.assert_close(logits[-1], out.logits[0, -1], atol=1e-4, rtol=0)
    torch.testing.assert_close(logits[1], early[0, -1], atol=1e-4, rtol=0)


def test_it_is_the_same_some_positions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure(subject(), track="7")
    monkeypatch.setattr(scoring, "LOGITS_AT_ONCE", 65 * 5)
    assert (scoring.rows_at_once(65), scoring.rows_at_once(400)) == (5, 1)
    seen: list[tuple[int, int]] = []
    parts = measure(subject(), track="7", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert [row.top_ids for row in parts.rows] == [row.top_ids for row in whole.rows]
    assert [row.tracked_ranks for row in parts.rows] == [row.tracked_ranks for row in whole.rows]
    assert parts.arrays()["entropies_bits"] == pytest.approx(
        whole.arrays()["entropies_bits"], abs=1e-5
    )


def test_without_a_track_nothing_is_followed() -> None:
    report = measure(subject())
    assert report.tracked is None
    assert {row.tracked_ranks for row in report.rows} == {None}
    assert "tracked_ranks" not in report.arrays()


def test_a_track_is_one_token() -> None:
    with pytest.raises(UsageError, match=r"^'7 8' is 2 tokens: '7', '8'$"):
        measure(subject(), track="7 8")
    with pytest.raises(UsageError, match=r"^'65' is id 65, and the model's 65 ids end at 64$"):
        measure(subject(), track="65")


def test_ranks_among_equals_go_by_id() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0]])
    ranks = [int(scoring.ranks_of(logits, torch.tensor([[token]]))) for token in range(5)]
    assert ranks == [5, 1, 2, 4, 3]


def test_logits_that_are_not_finite_name_the_tensor() -> None:
    model = build()
    with torch.no_grad():
        model.transformer.wte.weight[4, 0] = float("inf")
    with pytest.raises(NanoGPTError, match=r"the first bad tensor is the weight .*wte"):
        measure(subject(model))
