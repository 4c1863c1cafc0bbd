"""Attention maps as a page holds them: the lower triangles, their roots rounded to 16 or 8 bits.

The root keeps small weights apart, of which a long text has many.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

MOST_BYTES = 6_000_000
"""Of all maps together, before base64 makes them a third larger."""


@dataclass(frozen=True)
class MapPlan:
    """How much of the maps is kept.

    Args:
        tokens: the last ones, so many.
        itemsize: bytes a weight.
    """

    tokens: int
    itemsize: int

    @property
    def steps(self) -> int:
        """The integer that stands for a weight of 1."""
        return int((1 << 8 * self.itemsize) - 1)


def plan_maps(heads: int, tokens: int) -> MapPlan:
    """Return the best that fits: 16 bits for every token, else 8, else 8 for the last tokens.

    Args:
        heads: of all layers together.
        tokens: of the text.
    """
    for itemsize in (2, 1):
        if heads * _triangle(tokens) * itemsize <= MOST_BYTES:
            return MapPlan(tokens, itemsize)
    room = MOST_BYTES // heads
    return MapPlan(max(1, (math.isqrt(8 * room + 1) - 1) // 2), 1)


def _triangle(tokens: int) -> int:
    return tokens * (tokens + 1) // 2


def pack_maps(layers: Iterable[Array], plan: MapPlan) -> str:
    """Return base64 of the weights' roots, layer by layer, head by head, row by row, little-endian.

    Args:
        layers: (H, T, T) each; row t is where position t looks.
        plan: with at most T tokens.
    """
    rows, columns = np.tril_indices(plan.tokens)
    kept = bytearray()
    for weights in layers:
        last = weights[:, -plan.tokens :, -plan.tokens :][:, rows, columns]
        kept += np.rint(np.sqrt(last) * plan.steps).astype(f"<u{plan.itemsize}").tobytes()
    return base64.b64encode(kept).decode("ascii")
