"""Direct logit attribution: the parts sum to the logit, and each is what its definition says."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from induction_model import build_induction
from model_files import build

from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.inspection.behaviour import attribution, find_view
from nanogpt_cli.inspection.behaviour.contributions import ContributionsReport, measure
from nanogpt_cli.inspection.behaviour.subject import Subject
from nanogpt_cli.model import GPT
from nanogpt_cli.output import to_json
from nanogpt_cli.tokenizers.ids import IdsTokenizer

IDS = [5, 1, 4, 1, 5, 6, 2]


def subject_of(model: GPT, ids: list[int] | None = None, known: int | None = None) -> Subject:
    return Subject("made here", model, IdsTokenizer(known or model.config.vocab_size), ids or IDS)


def share(report: ContributionsReport, part: str) -> float:
    [found] = [each for each in report.parts if each.part == part]
    return found.logit


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied_head", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize(("n_layer", "n_head", "n_embd"), [(1, 1, 8), (2, 3, 24), (4, 5, 20)])
def test_the_parts_sum_to_the_logit(
    bias: bool, tied_head: bool, activation: str, n_layer: int, n_head: int, n_embd: int
) -> None:
    sizes = {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd}
    model = build(n_layer, bias=bias, tied_head=tied_head, activation=activation, **sizes)
    logits = model(torch.tensor([IDS]))[0][0, -1]
    for answer in (0, 33):
        report = measure(subject_of(model), answer=str(answer))
        assert report.answer.logit == pytest.approx(logits[answer].item(), abs=1e-5)
        total = sum(part.logit for part in report.parts)
        assert total == pytest.approx(logits[answer].item(), abs=1e-4)
        assert report.sum_logit == pytest.approx(total, abs=1e-12)
        assert report.error_logit == report.answer.logit - report.sum_logit
        above = logits[answer].item() - logits.mean().item()
        assert report.sum_relative == pytest.approx(above, abs=1e-4)
        assert abs(report.error_relative) < 1e-4
    expected = 2 + n_layer * (n_head + 1 + bias) + bias
    assert len(report.parts) == expected


def test_the_parts_stand_in_the_models_order() -> None:
    names = [part.part for part in measure(subject_of(build(n_layer=1, n_head=2))).parts]
    assert names == [
        "token embedding",
        "position embedding",
        "block 0 head 0",
        "block 0 head 1",
        "block 0 attention bias",
        "block 0 mlp",
        "ln_f bias",
    ]


def test_an_mlps_share_is_what_freezing_ln_f_and_leaving_it_out_takes_away() -> None:
    model = build()
    idx = torch.tensor([IDS])
    with torch.no_grad():
        x = model.transformer.wte(idx) + model.transformer.wpe(torch.arange(len(IDS)))
        x = model.blocks[0](x)
        last = model.blocks[1]
        x = x + last.attn(last.ln_1(x))
        added = last.mlp(last.ln_2(x))
        final = (x + added)[0, -1]
        scale = (final.var(unbiased=False) + 1e-5).sqrt()
        centred = added[0, -1] - added[0, -1].mean()
        written = centred / scale * model.transformer.ln_f.weight
        expected = (model.lm_head.weight[7] @ written).item()
    report = measure(subject_of(model), answer="7")
    assert share(report, "block 1 mlp") == pytest.approx(expected, abs=1e-5)


def test_a_heads_share_is_what_its_columns_write() -> None:
    """With all but a head's columns of c_proj zero, the attention writes that head's part alone."""
    model = build()
    report = measure(subject_of(model), answer="7")
    D = model.config.n_embd // model.config.n_head
    written = torch.from_numpy(report.arrays()["writes"])
    idx = torch.tensor([IDS])
    for head in range(model.config.n_head):
        twin = copy.deepcopy(model).blocks[0].attn
        with torch.no_grad():
            keep = torch.zeros(model.config.n_embd)
            keep[head * D : (head + 1) * D] = 1.0
            twin.c_proj.weight *= keep
            twin.c_proj.bias.zero_()
            x = model.transformer.wte(idx) + model.transformer.wpe(torch.arange(len(IDS)))
            alone = twin(model.blocks[0].ln_1(x))[0, -1]
        torch.testing.assert_close(written[2 + head].float(), alone, rtol=0, atol=1e-5)


def test_relative_shares_do_not_change_when_all_logits_move_together() -> None:
    model = build(tied_head=False)
    before = measure(subject_of(model), answer="7")
    with torch.no_grad():
        model.lm_head.weight += torch.randn(model.config.n_embd)  # the same for every token
    after = measure(subject_of(model), answer="7")
    assert after.answer.probability == pytest.approx(before.answer.probability, rel=1e-4)
    assert after.answer.logit != pytest.approx(before.answer.logit, abs=0.01)
    for one, other in zip(before.parts, after.parts, strict=True):
        assert other.relative == pytest.approx(one.relative, abs=1e-4)


def test_against_another_token_the_difference_is_split() -> None:
    model = build()
    logits = model(torch.tensor([IDS]))[0][0, -1]
    report = measure(subject_of(model), answer="7", against="9")
    assert report.against is not None
    assert report.against.id == 9
    assert report.reference_ids == 1
    assert report.sum_relative == pytest.approx((logits[7] - logits[9]).item(), abs=1e-4)
    alone = [measure(subject_of(model), answer=token) for token in ("7", "9")]
    for part, one, other in zip(report.parts, alone[0].parts, alone[1].parts, strict=True):
        assert part.relative == pytest.approx(one.logit - other.logit, abs=1e-9)


def test_the_mean_is_over_the_ids_that_have_a_text() -> None:
    model = build()
    logits = model(torch.tensor([IDS]))[0][0, -1]
    report = measure(subject_of(model, known=50), answer="7")
    assert report.reference_ids == 50
    assert report.reference_logit == pytest.approx(logits[:50].mean().item(), abs=1e-5)
    assert abs(report.error_relative) < 1e-4
    more = measure(subject_of(model, known=80), answer="7")  # a table larger than the model
    assert more.reference_ids == 65


def test_the_mean_row_is_the_same_whatever_is_widened_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attribution, "ROWS_AT_ONCE", 7)
    assert abs(measure(subject_of(build()), answer="7").error_relative) < 1e-4


def test_a_model_with_nan_is_told() -> None:
    model = build()
    with torch.no_grad():
        model.blocks[1].mlp.c_fc.weight[0, 0] = float("nan")
    with pytest.raises(NanoGPTError, match="not finite: the first bad tensor is"):
        measure(subject_of(model))


@pytest.mark.parametrize(("position", "place"), [(None, 6), (0, 0), (3, 3), (-1, 6), (-7, 0)])
def test_the_default_answer_is_the_models_own_at_that_position(
    position: int | None, place: int
) -> None:
    model = build()
    idx = torch.tensor([IDS])
    logits = model(idx, idx)[0][0, place]
    report = measure(subject_of(model), position=position)
    assert report.position == place
    assert [token.id for token in report.tokens] == IDS[: place + 1]
    assert report.answer.id == int(logits.argmax())
    assert report.answer.rank == 1
    assert report.answer.probability == pytest.approx(logits.softmax(-1).max().item(), abs=1e-5)
    assert abs(report.error_logit) < 1e-4


def test_an_induction_head_speaks_for_the_token_that_came_next_last_time() -> None:
    text = [7, 3, 9, 4, 7, 3]
    report = measure(subject_of(build_induction(), text))
    assert report.answer.id == 9
    strongest = max(report.parts, key=lambda part: part.relative)
    assert strongest.part == "block 1 head 2"
    assert strongest.relative > 0.8 * report.sum_relative


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"position": 7}, "no position 7: the 7 tokens are numbered 0 to 6"),
        ({"position": -8}, "no position -8: the 7 tokens are numbered 0 to 6"),
        ({"answer": "1 2"}, "'1 2' is 2 tokens: '1', '2'"),
        ({"answer": ""}, "'' is no token"),
        ({"against": "1 2"}, "'1 2' is 2 tokens: '1', '2'"),
    ],
)
def test_what_cannot_be_meant(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_view("contributions").measure(subject_of(build()), **options)
    assert caught.value.message == message


def test_the_arrays_are_the_parts() -> None:
    report = measure(subject_of(build(bias=False)))
    arrays = report.arrays()
    assert arrays["logits"].tolist() == [part.logit for part in report.parts]
    assert arrays["relative"].tolist() == [part.relative for part in report.parts]
    assert arrays["writes"].shape == (len(report.parts), 24)
    shown = json.loads(to_json(report))
    assert shown["schema"] == "nanogpt.inspect.contributions/1"
    assert "bulk" not in shown
    assert set(shown["parts"][2]) == {"part", "kind", "layer", "head", "logit", "relative"}
