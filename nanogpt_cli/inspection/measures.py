"""Figures of one tensor, in pieces, so that memory is bounded by the tensor itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nanogpt_cli.checkpoints import TensorInfo
from nanogpt_cli.checkpoints.tensors import TensorReader

PIECE = 1 << 16
"""Elements that are widened to float64 at once; few enough to stay in the cache."""


@dataclass(frozen=True)
class Measures:
    """Figures over the finite elements of a tensor; None where there are none.

    Args:
        elements: how many, finite or not.
        mean: of them.
        std: the population's, divided by n.
        min: the smallest.
        max: the largest.
        norm: the root of the sum of squares.
        zeros: elements that are 0.
        nan: elements that are NaN.
        inf: elements that are infinite.
    """

    elements: int
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    norm: float | None
    zeros: int
    nan: int
    inf: int

    @property
    def is_constant(self) -> bool:
        """Whether every element has the same value."""
        return self.elements > 0 and not (self.nan or self.inf) and self.min == self.max


def read(info: TensorInfo) -> Tensor:
    """Return a tensor as stored; its file is unmapped with the last view of it."""
    return TensorReader().read(info)


def measure(tensor: Tensor) -> Measures:
    """Return the figures of a tensor of any type and strides."""
    finite = nan = inf = zeros = 0
    shift = total = shifted_squares = squares = 0.0
    low, high = math.inf, -math.inf
    for piece in pieces(tensor):
        kept = piece
        if not math.isfinite(float(piece.sum())):
            nan += int(piece.isnan().sum())
            inf += int(piece.isinf().sum())
            kept = piece[piece.isfinite()]
        if not kept.numel():
            continue
        if not finite:
            shift = float(kept[0])  # what is nearly constant keeps its digits so
        moved = kept - shift
        total += float(moved.sum())
        shifted_squares += float(moved.dot(moved))
        squares += float(kept.dot(kept))
        zeros += kept.numel() - int(kept.count_nonzero())
        least, most = kept.aminmax()
        low, high = min(low, float(least)), max(high, float(most))
        finite += kept.numel()
    if not finite:
        return Measures(tensor.numel(), None, None, None, None, None, 0, nan, inf)
    off = total / finite
    variance = max(0.0, shifted_squares / finite - off * off)
    mean, std, norm = (_finite(x) for x in (shift + off, math.sqrt(variance), math.sqrt(squares)))
    return Measures(tensor.numel(), mean, std, low, high, norm, zeros, nan, inf)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def pieces(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the elements in float64, some at a time."""
    flat = tensor.reshape(-1)
    for begin in range(0, flat.numel(), PIECE):
        yield flat[begin : begin + PIECE].to(torch.float64)
