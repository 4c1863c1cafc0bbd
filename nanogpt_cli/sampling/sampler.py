"""The whole way from raw logits to ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nanogpt_cli.sampling.base import Filter
from nanogpt_cli.sampling.draws import draw
from nanogpt_cli.sampling.top_k import TopK

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sampler:
    """Filters, then a draw or the likeliest id.

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
        ids: Tensor | None = None
        for filter in self.filters:
            if isinstance(filter, TopK) and (narrowed := filter.narrow(logits)) is not None:
                ids, logits = narrowed
                seen = seen.gather(1, ids)
            logits = filter(logits, seen)
        # The first of equals is the lowest id, narrowed or not.
        places = logits.argmax(dim=-1) if self.greedy else draw(logits, uniforms)
        return places if ids is None else ids.gather(1, places.unsqueeze(1)).squeeze(1)
