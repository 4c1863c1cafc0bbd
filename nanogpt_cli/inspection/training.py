"""How a checkpoint was trained, worked out from its `config`, `iter_num` and `best_val_loss`.

Every rule here is train.py's own; what it cannot tell from the file is said to be assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from nanogpt_cli.checkpoints import Checkpoint

UNTRAINED_SHARE = 0.05
"""A loss this near ln V, as a fraction of it, is that of a model that learned nothing."""

NEVER_EVALUATED = 1e9
"""train.py's best_val_loss before its first evaluation."""

ACCUMULATION = (
    "taking gradient_accumulation_steps for all GPUs together, as train.py does since it divides "
    "them among the GPUs"
)


@dataclass(frozen=True)
class LossReport:
    """What the stored loss is.

    Args:
        nats_per_token: as the file says; None where it does not.
        kind: "best", "last" or "unknown".
        why: how that follows from train.py's rule for writing a file.
        uniform_nats_per_token: ln V, what guessing gives.
        is_untrained: whether the loss is within 5 % of that.
        is_worse_than_guessing: whether it is above that by more.
    """

    nats_per_token: float | None
    kind: str
    why: str
    uniform_nats_per_token: float
    is_untrained: bool
    is_worse_than_guessing: bool


@dataclass(frozen=True)
class ScheduleReport:
    """Where `iter_num` lies on the learning-rate curve.

    Args:
        phase: "warmup", "cosine decay", "minimum" or "constant".
        learning_rate: at iter_num, by train.py's get_lr.
        optimizer_learning_rate: what the optimizer's first group holds; None without one.
        peak: the setting `learning_rate`.
        min_lr: where the decay ends; None for a constant rate.
        warmup_iters: iterations of linear warmup; None for a constant rate.
        lr_decay_iters: the iteration at which the decay ends; None for a constant rate.
        progress: how much of the phase has passed, a fraction; None where it has no end.
    """

    phase: str
    learning_rate: float
    optimizer_learning_rate: float | None
    peak: float
    min_lr: float | None
    warmup_iters: int | None
    lr_decay_iters: int | None
    progress: float | None


@dataclass(frozen=True)
class TrainingReport:
    """What the file tells of its training; None for what it does not.

    Args:
        iter_num: steps taken.
        max_iters: steps planned.
        step_factors: batch_size, gradient_accumulation_steps and block_size, as the file has them.
        tokens_per_step: their product.
        tokens_seen: tokens_per_step x iter_num.
        assumed: what the token counts rest on; "" where there are none.
        loss: the stored loss.
        schedule: the learning rate's.
        dataset: its name.
        init_from: "scratch", "resume" or a GPT-2 name.
    """

    iter_num: int | None
    max_iters: int | None
    step_factors: tuple[int, int, int] | None
    tokens_per_step: int | None
    tokens_seen: int | None
    assumed: str
    loss: LossReport
    schedule: ScheduleReport | None
    dataset: str | None
    init_from: str | None


def report_training(checkpoint: Checkpoint) -> TrainingReport:
    """Return what can be worked out about the training of a checkpoint.

    Source: nanoGPT's train.py.
    """
    config = checkpoint.train_config
    factors = _step_factors(config)
    per_step = None if factors is None else math.prod(factors)
    iter_num = checkpoint.iter_num
    known = per_step is not None and iter_num is not None and iter_num >= 0
    init_from = _text(config, "init_from")
    return TrainingReport(
        iter_num=iter_num,
        max_iters=_integer(config, "max_iters"),
        step_factors=factors,
        tokens_per_step=per_step,
        tokens_seen=per_step * iter_num if known and per_step and iter_num is not None else None,
        assumed=_assumptions(init_from) if known else "",
        loss=_loss(checkpoint),
        schedule=_schedule(config, iter_num, _optimizer_learning_rate(checkpoint)),
        dataset=_text(config, "dataset"),
        init_from=init_from,
    )


def _step_factors(config: Mapping[str, object]) -> tuple[int, int, int] | None:
    """Return what makes the tokens of a step: every sequence is block_size long."""
    batch, block = _integer(config, "batch_size"), _integer(config, "block_size")
    steps = _integer(config, "gradient_accumulation_steps")
    if batch is None or block is None or steps is None or min(batch, block, steps) < 1:
        return None
    return batch, steps, block


def _assumptions(init_from: str | None) -> str:
    if init_from == "resume":
        return f"{ACCUMULATION}, and one set of settings for all resumed runs"
    if init_from is not None and init_from.startswith("gpt2"):
        return f"{ACCUMULATION}; those that made {init_from} are not counted"
    return ACCUMULATION


def _loss(checkpoint: Checkpoint) -> LossReport:
    loss, uniform = checkpoint.best_val_loss, math.log(checkpoint.config.vocab_size)
    if loss is not None and loss >= NEVER_EVALUATED:
        loss = None
    kind, why = _kind_of_loss(checkpoint)
    excess = 0.0 if loss is None else loss - uniform
    margin = UNTRAINED_SHARE * uniform
    return LossReport(
        nats_per_token=loss,
        kind="unknown" if loss is None else kind,
        why="" if loss is None else why,
        uniform_nats_per_token=uniform,
        is_untrained=loss is not None and abs(excess) <= margin,
        is_worse_than_guessing=excess > margin,
    )


def _kind_of_loss(checkpoint: Checkpoint) -> tuple[str, str]:
    """Tell the best loss from the last: train.py stores both under one name."""
    if checkpoint.architecture.envelope.family == "build-nanogpt":
        return "last", "the file stores the loss of its own step"
    always = checkpoint.train_config.get("always_save_checkpoint")
    if always is True:
        return (
            "last",
            "always_save_checkpoint was on, so every evaluation replaced the file and its loss, "
            "better or not",
        )
    if always is False:
        return (
            "best",
            "always_save_checkpoint was off, so only a loss below all before it wrote the file",
        )
    return "unknown", "the file does not say whether always_save_checkpoint was on"


def _schedule(
    config: Mapping[str, object], iter_num: int | None, stored: float | None
) -> ScheduleReport | None:
    peak, decays = _number(config, "learning_rate"), config.get("decay_lr")
    if peak is None or iter_num is None or not isinstance(decays, bool):
        return None
    if not decays:
        return ScheduleReport("constant", peak, stored, peak, None, None, None, None)
    warmup, end = _integer(config, "warmup_iters"), _integer(config, "lr_decay_iters")
    low = _number(config, "min_lr")
    if warmup is None or end is None or low is None:
        return None
    phase, progress = _place(iter_num, warmup, end)
    return ScheduleReport(
        phase, _rate(iter_num, warmup, end, peak, low), stored, peak, low, warmup, end, progress
    )


def _place(iter_num: int, warmup: int, end: int) -> tuple[str, float | None]:
    if iter_num < warmup:
        return "warmup", iter_num / warmup
    if iter_num > end or end == warmup:
        return "minimum", None
    return "cosine decay", (iter_num - warmup) / (end - warmup)


def _rate(iter_num: int, warmup: int, end: int, peak: float, low: float) -> float:
    """Return get_lr(iter_num)."""
    if iter_num < warmup:
        return peak * (iter_num + 1) / (warmup + 1)
    if iter_num > end or end == warmup:
        return low
    share = (iter_num - warmup) / (end - warmup)
    return low + 0.5 * (1.0 + math.cos(math.pi * share)) * (peak - low)


def _optimizer_learning_rate(checkpoint: Checkpoint) -> float | None:
    root = checkpoint.contents.root
    optimizer = root.get("optimizer") if isinstance(root, Mapping) else None
    groups = optimizer.get("param_groups") if isinstance(optimizer, Mapping) else None
    first = groups[0] if isinstance(groups, list) and groups else None
    return _number(first, "lr") if isinstance(first, Mapping) else None


def _integer(config: Mapping[str, object], name: str) -> int | None:
    value = _number(config, name)
    return int(value) if value is not None and value == int(value) else None


def _number(config: Mapping[str, object], name: str) -> float | None:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 2**63 else None


def _text(config: Mapping[str, object], name: str) -> str | None:
    value = config.get(name)
    return value if isinstance(value, str) and value else None
