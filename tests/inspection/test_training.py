"""What a file's settings tell of its training, against train.py's own formulas."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from model_files import build, save_nanogpt
from training_files import SETTINGS, build_trained

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.inspection.training import TrainingReport, report_training

LN_65 = math.log(65)


def report(tmp_path: Path, **extra: Any) -> TrainingReport:
    path = save_nanogpt(tmp_path / "ckpt.pt", build(), **extra)
    return report_training(open_checkpoint(str(path)))


def settings(**changed: Any) -> dict[str, Any]:
    return {**SETTINGS, "block_size": 16, **changed}


def train_py_rate(it: int, config: dict[str, Any]) -> float:
    """nanoGPT's get_lr, from its description: linear warmup, cosine decay, floor."""
    peak, low = config["learning_rate"], config["min_lr"]
    warmup, end = config["warmup_iters"], config["lr_decay_iters"]
    if it < warmup:
        return float(peak * (it + 1) / (warmup + 1))
    if it > end:
        return float(low)
    cosine = math.cos(math.pi * (it - warmup) / (end - warmup))
    return float(low + 0.5 * (1 + cosine) * (peak - low))


def test_tokens_are_batch_times_accumulation_times_block(tmp_path: Path) -> None:
    found = report(tmp_path, iter_num=7, config=settings())
    assert found.step_factors == (4, 5, 16)
    assert (found.tokens_per_step, found.tokens_seen) == (4 * 5 * 16, 7 * 4 * 5 * 16)
    assert "all GPUs together" in found.assumed


def test_a_fine_tuned_model_says_that_older_tokens_are_not_counted(tmp_path: Path) -> None:
    found = report(tmp_path, iter_num=7, config=settings(init_from="gpt2-xl"))
    assert "those that made gpt2-xl are not counted" in found.assumed


@pytest.mark.parametrize("missing", ["batch_size", "gradient_accumulation_steps", "block_size"])
def test_without_one_of_the_factors_there_is_no_count(tmp_path: Path, missing: str) -> None:
    config = settings()
    del config[missing]
    found = report(tmp_path, iter_num=7, config=config)
    assert (found.tokens_per_step, found.tokens_seen, found.assumed) == (None, None, "")


@pytest.mark.parametrize("bad", ["12", True, -4, 0, 2.5, None, [4], float("nan"), 10**30])
def test_odd_settings_are_passed_over(tmp_path: Path, bad: object) -> None:
    found = report(tmp_path, iter_num=7, config=settings(batch_size=bad, max_iters=bad))
    assert found.tokens_per_step is None
    assert found.max_iters in (None, bad)


@pytest.mark.parametrize(
    ("iter_num", "phase", "progress"),
    [
        (0, "warmup", 0.0),
        (9, "warmup", 0.9),
        (10, "cosine decay", 0.0),
        (55, "cosine decay", 0.5),
        (100, "cosine decay", 1.0),
        (101, "minimum", None),
    ],
)
def test_the_place_on_the_curve(
    tmp_path: Path, iter_num: int, phase: str, progress: float | None
) -> None:
    schedule = report(tmp_path, iter_num=iter_num, config=settings()).schedule
    assert schedule is not None
    assert (schedule.phase, schedule.progress) == (phase, progress)
    assert schedule.learning_rate == pytest.approx(train_py_rate(iter_num, settings()), rel=1e-12)


@pytest.mark.parametrize(
    ("iter_num", "changed"), [(-1, {}), (7, {"gradient_accumulation_steps": 0})]
)
def test_a_count_of_steps_that_cannot_be_gives_no_tokens(
    tmp_path: Path, iter_num: int, changed: dict[str, Any]
) -> None:
    found = report(tmp_path, iter_num=iter_num, config=settings(**changed))
    assert (found.tokens_seen, found.assumed) == (None, "")


def test_a_constant_rate(tmp_path: Path) -> None:
    schedule = report(tmp_path, iter_num=500, config=settings(decay_lr=False)).schedule
    assert schedule is not None
    assert (schedule.phase, schedule.learning_rate) == ("constant", 1e-3)
    assert (schedule.min_lr, schedule.warmup_iters, schedule.progress) == (None, None, None)


def test_a_decay_that_ends_where_the_warmup_does(tmp_path: Path) -> None:
    config = settings(warmup_iters=10, lr_decay_iters=10)
    schedule = report(tmp_path, iter_num=10, config=config).schedule
    assert schedule is not None
    assert (schedule.phase, schedule.learning_rate) == ("minimum", 1e-4)


def test_the_optimizers_own_rate_stands_beside_the_computed_one(tmp_path: Path) -> None:
    _, saved = build_trained(rate=0.5)
    saved["optimizer"]["param_groups"][1]["lr"] = 0.25
    path = tmp_path / "ckpt.pt"
    torch.save(saved, path)
    schedule = report_training(open_checkpoint(str(path))).schedule
    assert schedule is not None
    assert schedule.optimizer_learning_rate == 0.5
    assert schedule.learning_rate == pytest.approx(1e-3 * 4 / 11)


@pytest.mark.parametrize(("always", "kind"), [(True, "last"), (False, "best")])
def test_best_or_last(tmp_path: Path, always: bool, kind: str) -> None:
    loss = report(tmp_path, config=settings(always_save_checkpoint=always)).loss
    assert (loss.kind, loss.nats_per_token) == (kind, 2.5)


def test_nobody_knows_best_from_last_without_the_setting(tmp_path: Path) -> None:
    assert report(tmp_path, config={}).loss.kind == "unknown"


@pytest.mark.parametrize(
    ("share", "untrained", "worse"),
    [
        (0.94, False, False),
        (0.951, True, False),
        (1.0, True, False),
        (1.049, True, False),
        (1.06, False, True),
    ],
)
def test_a_loss_near_that_of_guessing(
    tmp_path: Path, share: float, untrained: bool, worse: bool
) -> None:
    loss = report(tmp_path, best_val_loss=share * LN_65).loss
    assert loss.uniform_nats_per_token == pytest.approx(4.1744, abs=5e-5)
    assert (loss.is_untrained, loss.is_worse_than_guessing) == (untrained, worse)


@pytest.mark.parametrize("loss", [1e9, torch.tensor(1e9), float("nan"), float("inf"), "low"])
def test_a_loss_that_was_never_measured_is_none(tmp_path: Path, loss: object) -> None:
    found = report(tmp_path, best_val_loss=loss).loss
    assert (found.nats_per_token, found.kind) == (None, "unknown")
    assert not found.is_untrained
    assert not found.is_worse_than_guessing
