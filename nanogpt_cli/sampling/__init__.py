"""From logits to an id: the filters, in the order they are applied, then the draw.

To add a filter: one file with a class like those here, and its entry in PIPELINE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nanogpt_cli.sampling.base import Filter
from nanogpt_cli.sampling.draws import Draws, draw
from nanogpt_cli.sampling.temperature import Temperature
from nanogpt_cli.sampling.top_k import TopK

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PIPELINE", "Draws", "Filter", "Sampler", "build_filters", "draw"]

PIPELINE = (Temperature, TopK)


def build_filters(parameters: Mapping[str, float]) -> tuple[Filter, ...]:
    """Build the filters that `parameters` asks for, in PIPELINE order; off values build none.

    Raises:
        UsageError: a value out of range.
    """
    built = [cls(parameters[cls.option]) for cls in PIPELINE if cls.option in parameters]  # type: ignore[arg-type]
    return tuple(f for f in built if getattr(f, f.option) != f.off)


@dataclass(frozen=True)
class Sampler:
    """The whole way from raw logits to ids.

    Args:
        filters: applied in order.
        greedy: take the largest logit, lowest id on a tie, whatever the filters.
        forbidden: (V,) bool, True for ids that the tokenizer lacks; None forbids nothing.
    """

    filters: tuple[Filter, ...] = ()
    greedy: bool = False
    forbidden: Tensor | None = None

    def __call__(self, logits: Tensor, uniforms: Sequence[float]) -> Tensor:
        """Return one id a row, (B,) int64, for logits (B, V) float32 and B uniforms."""
        if self.forbidden is not None:
            logits = logits.masked_fill(self.forbidden, -torch.inf)
        if self.greedy:
            return logits.argmax(dim=-1)  # the first, so the lowest, of equals
        for filter in self.filters:
            logits = filter(logits)
        return draw(logits, uniforms)
