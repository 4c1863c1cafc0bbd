"""Top-k: only the k likeliest ids survive."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from nanogpt_cli.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TopK:
    """Keep exactly k ids a row, lowest id first among equal logits; 0 keeps all.

    Source: arXiv:1805.04833.
    """

    option: ClassVar[str] = "top_k"
    short: ClassVar[str] = "k"
    default: ClassVar[float] = 200
    off: ClassVar[float] = 0
    help: ClassVar[str] = "Draw from the k likeliest tokens only; 0 draws from all."

    top_k: int

    def __post_init__(self) -> None:
        if self.top_k < 0:
            raise UsageError(
                f"--top-k {self.top_k}: it must be at least 0", hint="0 keeps every id"
            )

    def __call__(self, logits: Tensor, _seen: Tensor) -> Tensor:
        """Return (B, V) logits with all but k at -inf."""
        if self.top_k == 0 or self.top_k >= logits.size(-1):
            return logits
        # topk breaks ties as it likes: it gives the k-th value, and ids decide among equals.
        kth = logits.topk(self.top_k).values[:, -1:]
        above = logits > kth
        equal = logits == kth
        room = self.top_k - above.sum(dim=-1, keepdim=True)
        kept = above | (equal & (equal.cumsum(dim=-1) <= room))
        return logits.masked_fill(~kept, -math.inf)
