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
from nanogpt_cli.sampling.min_p import MinP
from nanogpt_cli.sampling.repetition_penalty import RepetitionPenalty
from nanogpt_cli.sampling.temperature import Temperature
from nanogpt_cli.sampling.top_k import TopK
from nanogpt_cli.sampling.top_p import TopP

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PIPELINE", "Draws", "Filter", "Sampler", "build_filters", "draw"]

PIPELINE = (RepetitionPenalty, Temperature, TopK, TopP, MinP)


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
        greedy: then take the largest logit, lowest id on a tie, instead of drawing.
        forbidden: (V,) bool, True for ids that the tokenizer lacks; None forbids nothing.
    """

    filters: tuple[Filter, ...] = ()
    greedy: bool = False
    forbidden: Tensor | None = None

    def __call__(self, logits: Tensor, uniforms: Sequence[float], seen: Tensor) -> Tensor:
        """Return one id a row.

        Args:
            logits: (B, V) float32, the model's own.
            uniforms: B numbers in [0, 1).
            seen: (B, V) bool, True for the ids of the prompt and of the text so far.

        Returns:
            (B,) int64.
        """
        if self.forbidden is not None:
            logits = logits.masked_fill(self.forbidden, -torch.inf)
        for filter in self.filters:
            logits = filter(logits, seen)
        if self.greedy:
            return logits.argmax(dim=-1)  # the first, so the lowest, of equals
        return draw(logits, uniforms)
