"""Figures of every tensor, and how far each is from where nanoGPT's initialisation put it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from nanogpt_cli.checkpoints import Checkpoint, TensorInfo
from nanogpt_cli.checkpoints.fingerprints import fingerprint
from nanogpt_cli.checkpoints.loading import read_weight
from nanogpt_cli.checkpoints.stored_names import HEAD, WPE, WTE
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.inspection.listing import TensorRow, select
from nanogpt_cli.inspection.measures import Measures, measure, read
from nanogpt_cli.inspection.optimizer import read_optimizer
from nanogpt_cli.inspection.untrained import (
    INIT_STD,
    UntrainedRows,
    find_untrained,
    find_without_gradient,
)

SIGMAS = 3.5
"""Standard errors within which a spread or a mean counts as the initial one."""


@dataclass(frozen=True)
class TensorFigures:
    """The figures of one tensor.

    Args:
        name: as stored.
        canonical: nanoGPT's name for it, or for the weight whose moment it is.
        section: as in TensorRow.
        dtype: torch's name.
        shape: as stored.
        measures: over its finite elements.
        init_std: the spread that nanoGPT initialises it with; None where that is no noise.
        std_over_init: its spread as a multiple of that.
        state: "as initialised", "all zero", "constant", or "".
    """

    name: str
    canonical: str | None
    section: str
    dtype: str
    shape: tuple[int, ...]
    measures: Measures
    init_std: float | None
    std_over_init: float | None
    state: str


@dataclass(frozen=True)
class StatsReport:
    """The figures of a checkpoint's tensors.

    Args:
        path: the checkpoint.
        fingerprint: SHA-256 of the weights, the same for every container and prefix.
        tensors: one entry a tensor, those that share another's bytes left out.
        untrained: rows of wte and wpe that training never touched.
        max_head_difference: between an untied head and wte; None where there is none.
        nan: elements that are NaN, in all of them.
        inf: elements that are infinite.
    """

    path: str
    fingerprint: str
    tensors: tuple[TensorFigures, ...]
    untrained: tuple[UntrainedRows, ...]
    max_head_difference: float | None
    nan: int
    inf: int
    schema: ClassVar[str] = "nanogpt.inspect-stats/1"


def gather_statistics(
    checkpoint: Checkpoint,
    *,
    pattern: str | None = None,
    sort: str = "file",
    optimizer: bool = False,
) -> StatsReport:
    """Read every tensor once, one at a time, and return its figures.

    Args:
        checkpoint: opened.
        pattern: as in `select`; without one, masks and stray tensors are left out.
        sort: as in `select`.
        optimizer: whether to read the optimizer's tensors, too.

    Raises:
        UsageError: no tensor matches the pattern.
        CheckpointError: the file changed since it was opened.
    """
    chosen = select(checkpoint, pattern=pattern, sort=sort, optimizer=optimizer).chosen
    n_layer = checkpoint.config.n_layer
    tensors = tuple(
        _figures(row, info, n_layer)
        for row, info in chosen
        if row.shares_with is None and (pattern is not None or _is_of_interest(row))
    )
    return StatsReport(
        path=str(checkpoint.located.path),
        fingerprint=fingerprint(checkpoint.architecture),
        tensors=tensors,
        untrained=find_untrained_rows(checkpoint),
        max_head_difference=_head_difference(checkpoint),
        nan=sum(each.measures.nan for each in tensors),
        inf=sum(each.measures.inf for each in tensors),
    )


def _is_of_interest(row: TensorRow) -> bool:
    return row.section in ("weights", "head") or row.is_optimizers


def _figures(row: TensorRow, info: TensorInfo, n_layer: int) -> TensorFigures:
    measures = measure(read(info))
    is_weight = row.section in ("weights", "head")
    init = init_std(row.canonical, n_layer) if is_weight and row.canonical else None
    ratio = None if init is None or measures.std is None else measures.std / init
    state = judge(row.canonical or "", measures, init) if is_weight else ""
    return TensorFigures(
        row.name, row.canonical, row.section, row.dtype, row.shape, measures, init, ratio, state
    )


def init_std(name: str, n_layer: int) -> float | None:
    """Return the spread that nanoGPT initialises a weight with; None for norms and biases.

    Source: `_init_weights` of nanoGPT's model.py, and its rule for residual projections.
    """
    if not name.endswith(".weight") or ".ln_" in name:
        return None
    return INIT_STD / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else INIT_STD


def judge(name: str, measures: Measures, init: float | None) -> str:
    """Return "as initialised", "all zero" or "constant" for a weight, or "".

    Biases of zero and norms of one are as initialised; a matrix is where its mean and spread lie
    within the error that so many draws have.
    """
    if measures.is_constant:
        start = 0.0 if name.endswith(".bias") else 1.0 if init is None else None
        if measures.min == start:
            return "as initialised"
        return "all zero" if measures.min == 0 else "constant"
    if init is None or measures.std is None or measures.mean is None:
        return ""
    n = measures.elements
    near_spread = abs(measures.std / init - 1) <= SIGMAS / math.sqrt(2 * n)
    near_mean = abs(measures.mean) <= SIGMAS * init / math.sqrt(n)
    return "as initialised" if near_spread and near_mean else ""


def find_untrained_rows(checkpoint: Checkpoint) -> tuple[UntrainedRows, ...]:
    """Return the rows of wte and wpe that training never touched."""
    architecture = checkpoint.architecture
    optimizer = read_optimizer(checkpoint)
    found = []
    for name in (WTE, WPE):
        weight = architecture.weights[name]
        moment = None if optimizer is None else optimizer.find(name, "exp_avg_sq")
        rows = None
        if moment is not None and moment.shape == weight.info.shape and not weight.transposed:
            rows = find_without_gradient(name, read(moment))
        if rows is None:
            matrix = read_weight(TensorReader(), weight)
            tied = name == WTE and architecture.config.tied_head
            rows = find_untrained(name, matrix, is_tied=tied)
        found.append(rows)
    return tuple(found)


def _head_difference(checkpoint: Checkpoint) -> float | None:
    weights = checkpoint.architecture.weights
    if HEAD not in weights:
        return None
    head = read_weight(TensorReader(), weights[HEAD])
    difference = float((head - read_weight(TensorReader(), weights[WTE])).abs().max())
    return difference if math.isfinite(difference) else None
