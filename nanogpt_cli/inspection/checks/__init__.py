"""Named checks of a checkpoint: each is ok, a warning or a fault, with what was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.checkpoints.fitting import FLOATS, MisfitError, parameter_shapes
from nanogpt_cli.checkpoints.stored_names import Weight
from nanogpt_cli.config import GPTConfig

OK, WARN, FAULT = "ok", "warn", "fault"
STATUSES = (OK, WARN, FAULT)
"""From best to worst."""


@dataclass(frozen=True)
class Check:
    """One question and its answer.

    Args:
        name: what was looked at.
        status: "ok", "warn" or "fault".
        detail: the answer, in a sentence.
        findings: the tensors or settings it is about, each with its figures.
    """

    name: str
    status: str
    detail: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckReport:
    """The answers for one checkpoint.

    Args:
        path: the checkpoint.
        status: the worst of them.
        faults: how many are faults.
        warnings: how many are warnings.
        checks: all of them.
    """

    path: str
    status: str
    faults: int
    warnings: int
    checks: tuple[Check, ...]
    schema: ClassVar[str] = "nanogpt.inspect-check/1"


def check_checkpoint(
    checkpoint: Checkpoint, *, tokenizer: str | None = None, meta: Path | None = None
) -> CheckReport:
    """Check everything about a checkpoint that can be opened.

    Args:
        checkpoint: opened.
        tokenizer: as `--tokenizer`, or None for what lies beside it.
        meta: as `--meta`.

    Raises:
        UsageError: `tokenizer` or `meta` name nothing.
        CheckpointError: the file changed since it was opened.
    """
    from nanogpt_cli.inspection.checks.optimizer import check_optimizer
    from nanogpt_cli.inspection.checks.settings import check_settings
    from nanogpt_cli.inspection.checks.values import check_masks, check_tying, check_values

    architecture = checkpoint.architecture
    checks = [
        *check_structure(architecture.weights, architecture.config),
        *check_values(architecture.weights),
        check_tying(checkpoint),
        check_masks(architecture.masks, architecture.config),
        *check_optimizer(checkpoint),
        *check_settings(checkpoint, tokenizer=tokenizer, meta=meta),
    ]
    return summarise(str(checkpoint.located.path), checks)


def check_misfit(path: Path, error: MisfitError) -> CheckReport:
    """Check the weights of a file that is not opened since they are not its config's."""
    from nanogpt_cli.inspection.checks.values import check_masks, check_values

    checks = [
        *check_structure(error.weights, error.config),
        *check_values(error.weights),
        check_masks(error.masks, error.config),
    ]
    return summarise(str(path), checks)


def check_refused(path: Path, message: str) -> CheckReport:
    """Report a file that was read and holds no GPT: one fault."""
    return summarise(str(path), [Check("model", FAULT, message)])


def summarise(path: str, checks: Iterable[Check]) -> CheckReport:
    """Return the report of some checks."""
    listed = tuple(checks)
    counts = {status: sum(each.status == status for each in listed) for status in STATUSES}
    worst = max((each.status for each in listed), key=STATUSES.index, default=OK)
    return CheckReport(path, worst, counts[FAULT], counts[WARN], listed)


def check_structure(weights: Mapping[str, Weight], config: GPTConfig) -> list[Check]:
    """Check names, shapes and types against the config."""
    return [
        _check_keys(weights, config),
        _check_shapes(weights, config),
        _check_dtypes(weights),
    ]


def _check_keys(weights: Mapping[str, Weight], config: GPTConfig) -> Check:
    expected = parameter_shapes(config)
    missing = [f"missing {name}" for name in expected if name not in weights]
    unexpected = [f"unexpected {name}" for name in weights if name not in expected]
    if not missing and not unexpected:
        return Check("keys", OK, f"all {len(expected):,} weights are there, and no others")
    detail = f"{len(missing):,} of {len(expected):,} missing, {len(unexpected):,} unexpected"
    return Check("keys", FAULT, detail, (*missing, *unexpected))


def _check_shapes(weights: Mapping[str, Weight], config: GPTConfig) -> Check:
    expected = parameter_shapes(config)
    wrong = tuple(
        f"{name} is {list(weight.shape)}, the config wants {list(expected[name])}"
        for name, weight in weights.items()
        if name in expected and weight.shape != expected[name]
    )
    if wrong:
        return Check("shapes", FAULT, f"{len(wrong):,} of {len(expected):,} disagree", wrong)
    return Check("shapes", OK, "all as the config wants them")


def _check_dtypes(weights: Mapping[str, Weight]) -> Check:
    counts: dict[str, list[str]] = {}
    for name, weight in weights.items():
        counts.setdefault(weight.info.dtype, []).append(name)
    unfit = tuple(
        f"{name} is {dtype}"
        for dtype, names in counts.items()
        if dtype not in FLOATS
        for name in names
    )
    if unfit:
        return Check("dtypes", FAULT, f"{len(unfit):,} are no floating-point numbers", unfit)
    if len(counts) > 1:
        usual = max(counts, key=lambda dtype: len(counts[dtype]))
        others = tuple(
            f"{name} is {dtype}"
            for dtype, names in counts.items()
            if dtype != usual
            for name in names
        )
        return Check("dtypes", WARN, f"most are {usual}, {len(others):,} are not", others)
    return Check("dtypes", OK, f"all {next(iter(counts), 'absent')}")
