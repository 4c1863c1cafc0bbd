"""Ablation against brute force: weights set to zero in a copy, and hooks."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest
import torch
from induction_model import SIZE, build_induction
from model_files import build
from torch import nn

from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.inspection.behaviour import find_view, lesions
from nanogpt_cli.inspection.behaviour.ablation import AblationReport, measure
from nanogpt_cli.inspection.behaviour.subject import Subject
from nanogpt_cli.model import GPT
from nanogpt_cli.output import to_json
from nanogpt_cli.tokenizers.ids import IdsTokenizer

IDS = [5, 1, 4, 1, 5, 6, 2, 60, 33, 12]


def subject_of(model: GPT, ids: list[int]) -> Subject:
    return Subject("made here", model, IdsTokenizer(model.config.vocab_size), ids)


def loss_of(model: GPT, ids: list[int]) -> float:
    idx = torch.tensor([ids])
    with torch.no_grad():
        loss = model(idx[:, :-1], idx[:, 1:])[1]
    return float(loss)


@pytest.mark.parametrize("bias", [True, False])
def test_a_head_left_out_is_its_columns_of_c_proj_at_zero(bias: bool) -> None:
    model = build(bias=bias, n_layer=3)
    D = model.config.n_embd // model.config.n_head
    report = measure(subject_of(model, IDS))
    assert report.loss_nats == pytest.approx(loss_of(model, IDS), abs=1e-5)
    for layer in range(3):
        for head in range(model.config.n_head):
            twin = copy.deepcopy(model)
            with torch.no_grad():
                twin.blocks[layer].attn.c_proj.weight[:, head * D : (head + 1) * D] = 0
            expected = loss_of(twin, IDS) - loss_of(model, IDS)
            assert report.layers[layer].heads[head] == pytest.approx(expected, abs=1e-5)


PARTS: dict[str, Callable[[GPT, int], list[nn.Module]]] = {
    "attention": lambda model, layer: [model.blocks[layer].attn],
    "mlp": lambda model, layer: [model.blocks[layer].mlp],
    "both": lambda model, layer: [model.blocks[layer].attn, model.blocks[layer].mlp],
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_part_left_out_is_its_module_hooked_to_zero(part: str, bias: bool) -> None:
    model = build(bias=bias, n_layer=3)
    report = measure(subject_of(model, IDS))
    for layer in range(3):
        twin = copy.deepcopy(model)
        for module in PARTS[part](twin, layer):
            module.register_forward_hook(lambda _m, _i, out: torch.zeros_like(out))
        expected = loss_of(twin, IDS) - loss_of(model, IDS)
        assert getattr(report.layers[layer], part) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("logits_at_once", [1, 2 * 65])
def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch, logits_at_once: int) -> None:
    model = build()
    together = measure(subject_of(model, IDS)).arrays()["changes_nats"]
    monkeypatch.setattr(lesions, "TOKENS_AT_ONCE", 1)
    monkeypatch.setattr(lesions, "LOGITS_AT_ONCE", logits_at_once)
    alone = measure(subject_of(model, IDS)).arrays()["changes_nats"]
    assert together.shape == (2, 3 + 3)
    assert abs(together - alone).max() < 1e-6
    assert not any(block.attn.c_proj._forward_pre_hooks for block in model.blocks)


def test_a_long_text_is_cut_into_windows_and_each_token_is_predicted_once() -> None:
    model = build()  # block_size 16
    ids = torch.randint(65, (40,), generator=torch.Generator().manual_seed(0)).tolist()
    report = measure(subject_of(model, ids))
    pieces = [ids[0:17], ids[16:33], ids[32:40]]
    losses = [loss_of(model, piece) * (len(piece) - 1) for piece in pieces]
    assert find_view("ablation").whole_text
    assert (report.windows, report.predicted_tokens, report.prompt_tokens) == (3, 39, 40)
    assert report.loss_nats == pytest.approx(sum(losses) / 39, abs=1e-5)
    twin = copy.deepcopy(model)
    twin.blocks[1].mlp.register_forward_hook(lambda _m, _i, out: torch.zeros_like(out))
    without = [loss_of(twin, piece) * (len(piece) - 1) for piece in pieces]
    change = (sum(without) - sum(losses)) / 39
    assert report.layers[1].mlp == pytest.approx(change, abs=1e-5)


@pytest.mark.parametrize(("count", "windows"), [(16, 1), (17, 1), (18, 2), (33, 2), (34, 3)])
def test_no_window_is_left_over(count: int, windows: int) -> None:
    model = build(n_layer=1)
    ids = [token % 65 for token in range(count)]
    assert measure(subject_of(model, ids)).windows == windows


def test_induction_stands_on_two_heads() -> None:
    once = torch.randperm(SIZE, generator=torch.Generator().manual_seed(0))[:16].tolist()
    report = measure(subject_of(build_induction(), once + once))
    changes = {
        (each.layer, head): change
        for each in report.layers
        for head, change in enumerate(each.heads)
        if change is not None
    }
    assert {place for place, change in changes.items() if change > 0.5} == {(0, 1), (1, 2)}
    others = [change for place, change in changes.items() if place not in {(0, 1), (1, 2)}]
    assert all(abs(change) < 1e-4 for change in others)
    assert report.layers[0].mlp == pytest.approx(0, abs=1e-6)  # it is zero as it is


def test_one_token_has_no_loss() -> None:
    with pytest.raises(UsageError) as caught:
        measure(subject_of(build(), [1]))
    assert caught.value.message == "the text is 1 token, and a loss takes at least 2"


def test_a_model_with_nan_is_told() -> None:
    model = build()
    with torch.no_grad():
        model.blocks[1].mlp.c_fc.weight[0, 0] = float("nan")
    with pytest.raises(NanoGPTError, match="not finite: the first bad tensor is"):
        measure(subject_of(model, IDS))


def test_progress_counts_lesions_to_the_end() -> None:
    told: list[tuple[int, int]] = []
    report = find_view("ablation").measure(
        subject_of(build(), IDS), progress=lambda done, total: told.append((done, total))
    )
    assert isinstance(report, AblationReport)
    assert told[-1] == (12, 12)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_the_json_is_all_there() -> None:
    shown = json.loads(to_json(measure(subject_of(build(), IDS))))
    assert shown["schema"] == "nanogpt.inspect.ablation/1"
    assert set(shown["layers"][0]) == {"layer", "heads", "attention", "mlp", "both"}
    assert len(shown["layers"][0]["heads"]) == 3
    assert "bulk" not in shown
