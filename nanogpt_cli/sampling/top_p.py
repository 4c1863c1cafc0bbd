"""Top-p: the likeliest ids that together make up a share p."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from nanogpt_cli.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 1e-6
"""A sum of float32 probabilities this near p has reached it."""


@dataclass(frozen=True)
class TopP:
    """Keep the fewest ids whose probabilities reach p, lowest id first among equals; 1 keeps all.

    The id that reaches p is kept, so one always is.

    Source: arXiv:1904.09751, section 3.1.
    """

    option: ClassVar[str] = "top_p"
    short: ClassVar[str] = ""
    default: ClassVar[float] = 1.0
    off: ClassVar[float] = 1.0
    help: ClassVar[str] = (
        "Then draw from the likeliest tokens whose probabilities reach this sum, 0 to 1; 1 is off."
    )

    top_p: float

    def __post_init__(self) -> None:
        if not 0 < self.top_p <= 1:
            raise UsageError(
                f"--top-p {self.top_p:g}: it must be above 0 and at most 1", hint="1 keeps every id"
            )

    def __call__(self, logits: Tensor, _seen: Tensor) -> Tensor:
        """Return (B, V) logits with all but the nucleus at -inf."""
        ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(dim=-1)
        before = probabilities.cumsum(dim=-1) - probabilities
        kept = before < self.top_p - ROUNDING
        kept[:, 0] = True
        return logits.masked_fill(~kept.scatter(-1, ids, kept), -math.inf)
