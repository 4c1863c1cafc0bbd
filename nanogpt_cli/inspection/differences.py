"""Whether two checkpoints hold one model, and where they differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nanogpt_cli.checkpoints import Architecture, Checkpoint
from nanogpt_cli.checkpoints.fingerprints import fingerprint
from nanogpt_cli.checkpoints.loading import read_weight
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.inspection.measures import pieces

MODEL_FIELDS = (
    *("n_layer", "n_head", "n_embd", "block_size", "vocab_size"),
    *("bias", "activation", "tied_head"),
)
COARSE_FIRST = ("bfloat16", "float16", "float32", "float64")
EQUAL = ("equal", "equal within the cast", "zero and absent")
"""What a tensor may be in two files of one model."""


@dataclass(frozen=True)
class FieldDifference:
    """A setting in two files; None where one lacks it.

    Args:
        name: of the setting.
        first: its value in the first file.
        second: in the second.
        decides: whether it makes them two models.
        why: why it does not; "" where it does.
    """

    name: str
    first: object
    second: object
    decides: bool
    why: str = ""


@dataclass(frozen=True)
class TensorDifference:
    """A weight in two files.

    Args:
        name: nanoGPT's.
        status: one of EQUAL, "different", "other shape", "only in the first" or "... second".
        detail: shapes, or the type to which both are cast.
        relative_norm: |first - second| / |first|; None where there is none.
        cosine: of the two, taken as vectors; None where there is none.
        max_abs_difference: of their elements; None where there is none.
    """

    name: str
    status: str
    detail: str = ""
    relative_norm: float | None = None
    cosine: float | None = None
    max_abs_difference: float | None = None


@dataclass(frozen=True)
class DiffReport:
    """Two checkpoints, compared.

    Args:
        first: path of the first.
        second: path of the second.
        same: whether they hold one model.
        first_fingerprint: of its weights.
        second_fingerprint: of its weights.
        config: the model's settings that differ.
        run: settings and facts of the training that differ; they do not decide.
        tensors: every weight of either.
        equal_tensors: how many are equal.
    """

    first: str
    second: str
    same: bool
    first_fingerprint: str
    second_fingerprint: str
    config: tuple[FieldDifference, ...]
    run: tuple[FieldDifference, ...]
    tensors: tuple[TensorDifference, ...]
    equal_tensors: int
    schema: ClassVar[str] = "nanogpt.inspect-diff/1"


def compare(first: Checkpoint, second: Checkpoint) -> DiffReport:
    """Compare two checkpoints weight by weight, under nanoGPT's names and in its layout.

    Prefixes, order, container and layout do not count, a narrower type is compared after the cast
    to it, and a bias of zero is as good as none.

    Raises:
        CheckpointError: a file changed since it was opened.
    """
    names = dict.fromkeys((*first.architecture.weights, *second.architecture.weights))
    tensors = tuple(_compare_tensor(name, first, second) for name in names)
    equal = sum(each.status in EQUAL for each in tensors)
    config = _compare_config(first.architecture, second.architecture, tensors)
    return DiffReport(
        first=str(first.located.path),
        second=str(second.located.path),
        same=equal == len(tensors) and not any(each.decides for each in config),
        first_fingerprint=fingerprint(first.architecture),
        second_fingerprint=fingerprint(second.architecture),
        config=config,
        run=_compare_runs(first, second),
        tensors=tensors,
        equal_tensors=equal,
    )


def _compare_config(
    first: Architecture, second: Architecture, tensors: tuple[TensorDifference, ...]
) -> tuple[FieldDifference, ...]:
    only_zero_biases = not any(
        each.status.startswith("only") for each in tensors if each.name.endswith(".bias")
    )
    found = []
    for name in MODEL_FIELDS:
        one, other = getattr(first.config, name), getattr(second.config, name)
        if one == other:
            continue
        sources = {first.sources.get(name), second.sources.get(name)}
        why = ""
        if sources & {"assumed", "unknown"}:
            why = "one file does not say it"
        elif name == "bias" and only_zero_biases:
            why = "the biases are all zero"
        found.append(FieldDifference(name, one, other, decides=not why, why=why))
    return tuple(found)


def _compare_runs(first: Checkpoint, second: Checkpoint) -> tuple[FieldDifference, ...]:
    pairs: list[tuple[str, object, object]] = [
        ("iter_num", first.iter_num, second.iter_num),
        ("best_val_loss", first.best_val_loss, second.best_val_loss),
        ("dropout", first.config.dropout, second.config.dropout),
    ]
    one, other = first.train_config, second.train_config
    if one and other:
        keys = dict.fromkeys((*one, *other))
        pairs += [(f"config.{key}", _plain(one.get(key)), _plain(other.get(key))) for key in keys]
    return tuple(
        FieldDifference(name, before, after, decides=False, why="not part of the model")
        for name, before, after in pairs
        if before != after
    )


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | None) else repr(type(value).__name__)


def _compare_tensor(name: str, first: Checkpoint, second: Checkpoint) -> TensorDifference:
    one, other = (side.architecture.weights.get(name) for side in (first, second))
    if one is None or other is None:
        alone = one or other
        assert alone is not None, "the name comes from one of the two"
        if name.endswith(".bias") and not read_weight(TensorReader(), alone).any():
            return TensorDifference(name, "zero and absent")
        return TensorDifference(name, f"only in the {'second' if one is None else 'first'}")
    if one.shape != other.shape:
        return _compare_shapes(name, first, second)
    a, b = read_weight(TensorReader(), one), read_weight(TensorReader(), other)
    if _same(a, b):
        return TensorDifference(name, "equal", relative_norm=0.0, max_abs_difference=0.0)
    dtypes = {one.info.dtype, other.info.dtype}
    if len(dtypes) > 1:
        coarse = min(dtypes, key=COARSE_FIRST.index)
        target: torch.dtype = getattr(torch, coarse)
        if _same(a.to(target).to(torch.float32), b.to(target).to(torch.float32)):
            return _measure(name, "equal within the cast", f"to {coarse}", a, b)
    return _measure(name, "different", "", a, b)


def _same(a: Tensor, b: Tensor) -> bool:
    """Return whether two float32 tensors are equal, NaN with NaN of the same bits."""
    return torch.equal(a, b) or torch.equal(a.view(torch.int32), b.view(torch.int32))


def _measure(name: str, status: str, detail: str, a: Tensor, b: Tensor) -> TensorDifference:
    aa = bb = ab = dd = largest = 0.0
    for x, y in zip(pieces(a), pieces(b), strict=True):
        difference = x - y
        aa, bb, ab = aa + float(x.dot(x)), bb + float(y.dot(y)), ab + float(x.dot(y))
        dd += float(difference.dot(difference))
        largest = max(largest, float(difference.abs().max()))
    return TensorDifference(
        name,
        status,
        detail,
        relative_norm=_ratio(dd**0.5, aa**0.5),
        cosine=_ratio(ab, (aa * bb) ** 0.5),
        max_abs_difference=largest if math.isfinite(dd) else None,
    )


def _ratio(above: float, below: float) -> float | None:
    ratio = above / below if below else math.nan
    return ratio if math.isfinite(ratio) else None


def _compare_shapes(name: str, first: Checkpoint, second: Checkpoint) -> TensorDifference:
    """Return what two tensors of different shapes have in common: a cropped table's first rows."""
    one, other = (side.architecture.weights[name] for side in (first, second))
    shapes = f"{list(one.shape)} and {list(other.shape)}"
    if len(one.shape) != len(other.shape) or one.shape[1:] != other.shape[1:]:
        return TensorDifference(name, "other shape", shapes)
    rows = min(one.shape[0], other.shape[0])
    a, b = read_weight(TensorReader(), one)[:rows], read_weight(TensorReader(), other)[:rows]
    if _same(a, b):
        return TensorDifference(name, "other shape", f"{shapes}, the first {rows:,} rows equal")
    return TensorDifference(name, "other shape", shapes)
