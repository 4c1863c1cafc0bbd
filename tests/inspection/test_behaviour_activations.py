"""Norms, units and outliers, by hand; and the next-token table."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from behaviour_subjects import IDS, subject, transformers_pair, uniform
from model_files import build

from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.inspection.behaviour import activations, next_token
from nanogpt_cli.inspection.behaviour.activations import count_units, find_outliers
from nanogpt_cli.inspection.behaviour.trace import trace

IDX = torch.tensor([IDS])


def test_norms_are_those_of_the_trace() -> None:
    model = build()
    report = activations.measure(subject(model))
    found = trace(model, IDX)
    assert [row.label for row in report.rows] == ["embed", "block 0", "block 1"]
    for layer, row in enumerate(report.rows):
        norms = [math.sqrt(sum(x * x for x in place)) for place in found.residual[layer].tolist()]
        assert row.residual.mean == pytest.approx(sum(norms) / 12)
        assert row.residual.max == pytest.approx(max(norms))
        assert row.residual.max_position == norms.index(max(norms))
    written = found.mlp[1].norm(dim=-1)
    last = report.rows[-1]
    assert last.mlp is not None
    assert last.attention is not None
    assert last.mlp.mean == pytest.approx(written.mean().item(), rel=1e-5)
    assert last.attention.max == pytest.approx(found.attention[1].norm(dim=-1).max().item())
    first = report.rows[0]
    assert (first.attention, first.mlp, first.units) == (None, None, None)


def test_arrays_are_the_whole_pass(tmp_path: Path) -> None:
    theirs, ours = transformers_pair(tmp_path)
    with torch.no_grad():
        out = theirs(IDX, output_hidden_states=True)
    arrays = activations.measure(subject(ours)).arrays()
    assert arrays["residual"].shape == (4, 12, 40)
    expected = torch.cat(out.hidden_states[:-1]).numpy()
    np.testing.assert_allclose(arrays["residual"][:-1], expected, atol=1e-5)
    written = arrays["residual"][:-1] + arrays["attention"] + arrays["mlp"]
    np.testing.assert_allclose(written, arrays["residual"][1:], atol=1e-5)
    assert arrays["ids"].tolist() == list(IDS)


def test_units_that_do_not_bend_are_counted() -> None:
    units = torch.tensor([[-4.0, 4.0, -4.0, 0.0], [-3.5, 3.5, 2.0, -3.0]])
    counted = count_units(units)
    assert (counted.count, counted.dead, counted.saturated) == (4, 1, 1)
    assert (counted.dead_share, counted.saturated_share) == (0.25, 0.25)
    assert (counted.low_share, counted.high_share) == (3 / 8, 2 / 8)


def test_a_dead_gelu_passes_next_to_nothing() -> None:
    gelu = torch.nn.GELU()
    far = torch.linspace(-20, -activations.FLAT, 1000)
    assert gelu(far).abs().max().item() < 0.0041
    assert (gelu(-far) + far).abs().max().item() < 0.0041


def test_units_of_a_model_are_found() -> None:
    model = build()
    with torch.no_grad():
        for block in model.blocks:
            assert block.mlp.c_fc.bias is not None
            block.mlp.c_fc.weight.zero_()
            block.mlp.c_fc.bias.zero_()
        last = model.blocks[1].mlp.c_fc.bias
        last[:10], last[10:13] = -5.0, 5.0
    rows = activations.measure(subject(model)).rows
    counts = [(row.units.dead, row.units.saturated) for row in rows[1:] if row.units]
    assert counts == [(0, 0), (10, 3)]


def test_outliers_stand_out_by_six() -> None:
    residual = torch.ones(4, 9)
    residual[:, 3] = torch.tensor([6.1, -6.1, 6.1, 6.1])
    residual[1, 7] = -40.0
    residual[:, 8] = 5.9
    residual[:, 5] = -6.0
    big, small, least = find_outliers(residual)
    assert (least.dimension, least.times_median, least.extreme) == (5, 6.0, -6.0)
    assert (big.dimension, big.extreme, big.extreme_position) == (7, -40.0, 1)
    assert big.rms == big.times_median == pytest.approx(math.sqrt(1603 / 4))
    assert small.dimension == 3
    assert small.times_median == pytest.approx(6.1)


def test_of_nothing_nothing_stands_out() -> None:
    assert find_outliers(torch.zeros(4, 9)) == ()
    lone = torch.zeros(2, 9)
    lone[0, 4] = 1.0
    (only,) = find_outliers(lone)
    assert (only.dimension, only.times_median) == (4, None)


def test_the_embeddings_are_measured_apart() -> None:
    model = build()
    report = activations.measure(subject(model))
    wte = model.transformer.wte.weight[list(IDS)].norm(dim=-1)
    wpe = model.transformer.wpe.weight[:12].norm(dim=-1)
    assert report.token_embedding.mean == pytest.approx(wte.mean().item(), rel=1e-5)
    assert report.position_embedding.max == pytest.approx(wpe.max().item(), rel=1e-5)


@pytest.mark.parametrize("view", [activations, next_token])
def test_activations_that_are_not_finite_name_the_tensor(view: ModuleType) -> None:
    model = build()
    with torch.no_grad():
        model.blocks[0].ln_1.weight[2] = float("inf")
    with pytest.raises(NanoGPTError, match=r"first bad tensor is the weight .*h\.0\.ln_1"):
        view.measure(subject(model))


def test_the_next_tokens_are_those_of_transformers(tmp_path: Path) -> None:
    theirs, ours = transformers_pair(tmp_path)
    with torch.no_grad():
        expected = theirs(IDX).logits[0, -1]
    report = next_token.measure(subject(ours), top=65)
    np.testing.assert_allclose(report.arrays()["logits"], expected.numpy(), atol=1e-4)
    assert [token.id for token in report.tokens[:5]] == expected.topk(5).indices.tolist()
    chances = expected.double().softmax(dim=-1)
    total = 0.0
    for place, token in enumerate(report.tokens, start=1):
        total += token.probability
        assert token.rank == place
        assert token.logit == pytest.approx(expected[token.id].item(), abs=1e-4)
        assert token.probability == pytest.approx(chances[token.id].item(), abs=1e-5)
        assert token.logprob == pytest.approx(math.log(token.probability))
        assert token.cumulative == pytest.approx(total)
    assert report.tokens[-1].cumulative == pytest.approx(1)


def test_equals_are_ranked_by_id() -> None:
    report = next_token.measure(subject(uniform()), top=100, track="64")
    assert [token.id for token in report.tokens] == list(range(65))
    assert report.entropy_bits == pytest.approx(math.log2(65))
    assert report.tracked == report.tokens[64]
    assert len(next_token.measure(subject()).tokens) == next_token.DEFAULT_TOP


def test_a_table_has_a_row() -> None:
    with pytest.raises(UsageError, match=r"^--top 0: a table has at least 1 row$"):
        next_token.measure(subject(), top=0)
