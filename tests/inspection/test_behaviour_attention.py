"""Attention maps and what each head does, against transformers and a model made by hand."""

from __future__ import annotations

import json
import math
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from induction_model import SIZE, build_induction
from model_files import build
from safetensors.numpy import load_file
from torch.nn import functional as F

from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.inspection.behaviour import find_view
from nanogpt_cli.inspection.behaviour.attention import AttentionReport, MapSource, measure
from nanogpt_cli.inspection.behaviour.attention_maps import walk_maps
from nanogpt_cli.inspection.behaviour.heads import (
    make_probe,
    name_head,
    run_probe,
    score_repeats,
    score_text,
)
from nanogpt_cli.inspection.behaviour.saving import save_arrays
from nanogpt_cli.inspection.behaviour.subject import Subject
from nanogpt_cli.inspection.behaviour.trace import unembed
from nanogpt_cli.model import GPT
from nanogpt_cli.output import to_json
from nanogpt_cli.tokenizers.ids import IdsTokenizer

SHAPES = [
    {"n_layer": 2, "n_head": 3, "n_embd": 24, "n_positions": 16, "vocab_size": 65},
    {"n_layer": 3, "n_head": 5, "n_embd": 40, "n_positions": 9, "vocab_size": 31},
    {"n_layer": 1, "n_head": 1, "n_embd": 8, "n_positions": 4, "vocab_size": 7},
]


def subject_of(model: GPT, ids: list[int]) -> Subject:
    return Subject("made here", model, IdsTokenizer(model.config.vocab_size), ids)


def draw(model: GPT, length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab_size, (length,), generator=generator).tolist()


def collect(model: GPT, ids: list[int]) -> torch.Tensor:
    return torch.stack([weights for weights, _ in walk_maps(model, torch.tensor([ids]))])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_weights_are_those_of_transformers(tmp_path: Path, shape: dict[str, int]) -> None:
    torch.manual_seed(0)
    library: Any = transformers
    config = library.GPT2Config(**shape, bos_token_id=None, eos_token_id=None)
    config._attn_implementation = "eager"
    theirs = library.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    theirs.save_pretrained(tmp_path)
    ours = load_model(open_checkpoint(str(tmp_path))).eval()
    ids = draw(ours, shape["n_positions"])
    with torch.no_grad():
        answer = theirs(torch.tensor([ids]), output_attentions=True)
    expected = torch.cat(answer.attentions)
    saved = torch.from_numpy(measure(subject_of(ours, ids)).arrays()["attention"])
    T = len(ids)
    assert saved.shape == (shape["n_layer"], shape["n_head"], T, T)
    torch.testing.assert_close(saved, expected, rtol=0, atol=1e-5)
    *_, (_, residual) = walk_maps(ours, torch.tensor([ids]))
    torch.testing.assert_close(unembed(ours, residual), answer.logits, rtol=0, atol=1e-4)


@pytest.mark.real
def test_the_weights_of_a_strangers_model_are_those_of_transformers(zoo: Path) -> None:
    folder = zoo / "hf-tiny-21"
    library: Any = transformers
    theirs = library.GPT2Model.from_pretrained(folder, attn_implementation="eager").eval()
    ids = [1, 5, 7, 2, 11]
    with torch.no_grad():
        answer = theirs(torch.tensor([ids]), output_attentions=True)
    ours = load_model(open_checkpoint(str(folder))).eval()
    torch.testing.assert_close(collect(ours, ids), torch.cat(answer.attentions), rtol=0, atol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "manual"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("T", [1, 7, 16])
def test_rows_sum_to_one_the_future_is_zero_and_logits_are_the_models_own(
    attention: str, bias: bool, T: int
) -> None:
    model = build(attention=attention, bias=bias, tied_head=bias, dropout=0.5)
    ids = draw(model, T)
    maps = collect(model, ids)
    assert maps.shape == (2, 3, T, T)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 3, T), rtol=0, atol=1e-5)
    assert torch.equal(maps.triu(1), torch.zeros_like(maps))
    idx = torch.tensor([ids])
    *_, (_, residual) = walk_maps(model, idx)
    own, _ = model(idx, idx)  # with targets it gives the logits of every position
    torch.testing.assert_close(unembed(model, residual), own, rtol=0, atol=1e-4)
    report = measure(subject_of(model, ids))
    assert report.max_row_error <= 1e-5
    assert report.max_logit_difference <= 1e-4


def test_what_comes_later_changes_no_earlier_row() -> None:
    model = build()
    ids = draw(model, 10)
    longer, shorter = collect(model, ids), collect(model, ids[:6])
    torch.testing.assert_close(longer[:, :, :6, :6], shorter, rtol=0, atol=1e-6)
    other = collect(model, [*ids[:6], *draw(model, 4, seed=1)])
    torch.testing.assert_close(longer[:, :, :6], other[:, :, :6], rtol=0, atol=1e-6)


def test_no_more_than_two_layers_of_maps_are_alive() -> None:
    model = build(n_layer=6)
    seen: list[weakref.ref[torch.Tensor]] = []
    alive = []
    for weights, _ in walk_maps(model, torch.tensor([draw(model, 8)])):
        seen.append(weakref.ref(weights))
        alive.append(sum(each() is not None for each in seen))
    assert max(alive) <= 2


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_what_is_saved_is_made_layer_by_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    model = build(n_layer=4)
    report = measure(subject_of(model, draw(model, 8)))
    expected = report.arrays()["attention"]
    with monkeypatch.context() as patch:
        patch.delattr(MapSource, "collect")  # nothing asks for all of them
        save_arrays(tmp_path / f"maps{suffix}", report)
    path = tmp_path / f"maps{suffix}"
    if suffix == ".npz":
        with np.load(path) as arrays:
            saved = arrays["attention"]
    else:
        saved = load_file(path)["attention"]
    assert saved.dtype == np.float32
    np.testing.assert_array_equal(saved, expected)


def test_scores_of_a_text_are_means_along_diagonals() -> None:
    previous = torch.zeros(5, 5)
    previous[0, 0] = 1.0
    previous[1:, :-1] += torch.eye(4)
    first = torch.zeros(5, 5)
    first[:, 0] = 1.0
    even = torch.ones(5, 5).tril() / torch.arange(1, 6)[:, None]
    looks_back, looks_first, looks_everywhere = score_text(torch.stack([previous, first, even]))
    assert (looks_back.previous_token, looks_back.first_token) == (1.0, 0.0)
    assert (looks_first.previous_token, looks_first.first_token) == (0.0, 1.0)
    assert (looks_back.entropy_bits, looks_first.entropy_bits) == (0.0, 0.0)
    mean = (1 / 3 + 1 / 4 + 1 / 5) / 3
    assert looks_everywhere.previous_token == pytest.approx(mean)
    assert looks_everywhere.first_token == pytest.approx(mean)
    bits = sum(math.log2(t) for t in (2, 3, 4, 5)) / 4
    assert looks_everywhere.entropy_bits == pytest.approx(bits)


def test_scores_of_a_repeat_are_means_along_diagonals() -> None:
    period = 3
    same, after = torch.zeros(6, 6), torch.zeros(6, 6)
    for t in range(period, 2 * period):
        same[t, t - period] = 0.5
        after[t, t - period + 1] = 0.25
    copies, follows = score_repeats(torch.stack([same, after]), period)
    assert (copies.duplicate, copies.induction) == (0.5, 0.0)
    assert (follows.duplicate, follows.induction) == (0.0, 0.25)


def test_induction_is_found_where_it_is() -> None:
    model = build_induction()
    report = measure(subject_of(model, [3, 1, 4, 1, 5, 9, 2, 6]))
    roles = {(each.layer, each.head): each.role for each in report.heads}
    assert roles == {
        (0, 0): "duplicate",
        (0, 1): "previous_token",
        (0, 2): None,
        (1, 0): None,
        (1, 1): None,
        (1, 2): "induction",
    }
    by_head = {(each.layer, each.head): each for each in report.heads}
    # Half of the first repeated token's attention goes to position 0, before which none stands.
    assert by_head[1, 2].induction == pytest.approx(1 - 0.5 / 16, abs=1e-3)
    assert by_head[0, 1].previous_token == pytest.approx(1, abs=1e-4)
    assert by_head[0, 0].duplicate == pytest.approx(0.5, abs=1e-4)
    assert report.probe.period == SIZE // 2
    assert report.probe.first_loss_nats is not None
    assert report.probe.repeat_loss_nats is not None
    assert report.probe.first_loss_nats > 3
    assert report.probe.repeat_loss_nats < 0.2


@pytest.mark.parametrize("seed", range(5))
def test_a_random_model_has_no_induction_heads(seed: int) -> None:
    model = build(seed, spread=0.0, vocab_size=SIZE, block_size=SIZE)
    report = measure(subject_of(model, [3, 1, 4, 1, 5, 9, 2, 6]))
    for each in report.heads:
        assert each.induction is not None
        assert each.induction < 0.1
        assert each.role is None


def test_the_probe_is_fixed_by_seed_ids_and_length() -> None:
    probe = make_probe(range(100), 1024)
    assert probe == make_probe(range(100), 1024)
    assert probe.period == 64
    assert probe.ids[:64] == probe.ids[64:]
    assert len(set(probe.ids)) == 64
    assert make_probe(range(100), 1024, seed=1).ids != probe.ids
    assert make_probe(range(100), 33).period == 16
    assert make_probe(range(10), 1024).period == 10
    assert make_probe(range(65), 8).period == 4


@pytest.mark.parametrize(
    ("known", "block_size", "reason"),
    [
        (65, 7, "block_size is 7, too short for a text of 4 distinct tokens, twice"),
        (3, 64, "the vocabulary has 3 ids, too few for a text of 4 distinct tokens, twice"),
    ],
)
def test_where_no_probe_fits_the_scores_are_null(known: int, block_size: int, reason: str) -> None:
    assert make_probe(range(known), block_size).reason == reason
    model = build(vocab_size=known, block_size=block_size)
    report = json.loads(to_json(measure(subject_of(model, [0, 1, 2]))))
    assert report["probe"] == {
        "ids": [],
        "period": 0,
        "seed": 1337,
        "first_loss_nats": None,
        "repeat_loss_nats": None,
        "reason": reason,
    }
    assert {each["induction"] for each in report["heads"]} == {None}
    assert {each["duplicate"] for each in report["heads"]} == {None}


def test_losses_on_the_probe_are_of_each_half() -> None:
    model = build()
    probe, _ = run_probe(model, make_probe(range(65), 16))
    ids = torch.tensor([probe.ids])
    logits, _ = model(ids, ids)
    losses = F.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")
    assert probe.first_loss_nats == pytest.approx(losses[:8].mean().item(), abs=1e-5)
    assert probe.repeat_loss_nats == pytest.approx(losses[8:].mean().item(), abs=1e-5)


@pytest.mark.parametrize(("T", "entropy_known", "others_known"), [(1, 0, 0), (2, 1, 0), (3, 1, 1)])
def test_a_text_too_short_to_tell_has_nulls(T: int, entropy_known: int, others_known: int) -> None:
    model = build()
    head = json.loads(to_json(measure(subject_of(model, draw(model, T)))))["heads"][0]
    assert (head["entropy_bits"] is not None) == bool(entropy_known)
    assert (head["previous_token"] is not None) == bool(others_known)
    assert (head["first_token"] is not None) == bool(others_known)


def test_a_map_is_of_the_head_that_was_asked_for() -> None:
    model = build()
    ids = draw(model, 6)
    maps = collect(model, ids)
    report = measure(subject_of(model, ids), layer=1, head=2)
    assert report.map is not None
    assert (report.map.layer, report.map.head) == (1, 2)
    assert torch.equal(torch.tensor(report.map.weights), maps[1, 2])
    averaged = measure(subject_of(model, ids), layer=1, average=True).map
    assert averaged is not None
    assert averaged.head is None
    torch.testing.assert_close(torch.tensor(averaged.weights), maps[1].mean(0))
    assert measure(subject_of(model, ids), layer=1).map is None


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            {"layer": 2},
            "no layer 2: the model's 2 layers are numbered 0 to 1",
            "give --layer 0 to 1",
        ),
        (
            {"layer": -1},
            "no layer -1: the model's 2 layers are numbered 0 to 1",
            "give --layer 0 to 1",
        ),
        (
            {"layer": 0, "head": 3},
            "no head 3: the model's 3 heads are numbered 0 to 2",
            "give --head 0 to 2",
        ),
        ({"head": 0}, "--head without a layer", "add --layer 0 to 1"),
        ({"average": True}, "--average without a layer", "add --layer 0 to 1"),
        (
            {"layer": 0, "head": 0, "average": True},
            "--head and --average are two maps: give one",
            "run it twice",
        ),
    ],
)
def test_a_choice_that_cannot_be_meant(options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        measure(subject_of(build(), [1, 2]), **options)
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert caught.value.exit_code == 2


def test_a_model_whose_attention_does_something_else_shows() -> None:
    model = build()
    model.blocks[0].attn.register_forward_hook(lambda _module, _given, out: out * 2)
    assert measure(subject_of(model, [1, 2, 3])).max_logit_difference > 0.01


def test_a_model_with_nan_is_told() -> None:
    model = build()
    with torch.no_grad():
        model.blocks[1].mlp.c_fc.weight[0, 0] = float("nan")
    with pytest.raises(NanoGPTError, match="not finite: the first bad tensor is"):
        measure(subject_of(model, [1, 2]))


def test_padding_and_end_of_text_are_not_in_the_probe() -> None:
    model = build(vocab_size=12)
    tokenizer = IdsTokenizer(10)
    tokenizer.end_of_text = 3
    subject = Subject("made here", model, tokenizer, [1, 2])
    report = measure(subject)
    assert set(report.probe.ids) <= set(range(10)) - {3}


def test_the_view_is_registered_and_told_of_progress() -> None:
    told: list[tuple[int, int]] = []
    report = find_view("attention").measure(
        subject_of(build(), [1, 2]), progress=lambda done, total: told.append((done, total))
    )
    assert isinstance(report, AttentionReport)
    assert told == [(1, 2), (2, 2)]
    assert report.schema == "nanogpt.inspect.attention/1"


def test_a_head_is_named_after_its_highest_score_from_four_tenths_on() -> None:
    assert name_head({"induction": 0.4, "duplicate": 0.3, "first_token": None}) == "induction"
    assert name_head({"induction": 0.4, "duplicate": 0.5}) == "duplicate"
    assert name_head({"induction": 0.399}) is None
    assert name_head({"induction": None}) is None
