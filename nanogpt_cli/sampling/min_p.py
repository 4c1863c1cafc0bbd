"""Min-p: ids that are likely enough beside the likeliest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from nanogpt_cli.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MinP:
    """Keep the ids at least p times as likely as the likeliest; 0 keeps all.

    Source: arXiv:2407.01082.
    """

    option: ClassVar[str] = "min_p"
    short: ClassVar[str] = ""
    default: ClassVar[float] = 0.0
    off: ClassVar[float] = 0.0
    help: ClassVar[str] = (
        "Then draw from the tokens that are at least this share as likely as the likeliest one, "
        "0 to 1; 0 is off."
    )

    min_p: float

    def __post_init__(self) -> None:
        if not 0 <= self.min_p <= 1:
            raise UsageError(f"--min-p {self.min_p:g}: it must lie in 0 to 1", hint="0 keeps all")

    def __call__(self, logits: Tensor, _seen: Tensor) -> Tensor:
        """Return (B, V) logits with the unlikely at -inf."""
        if self.min_p == 0:
            return logits
        floor = logits.amax(dim=-1, keepdim=True) + math.log(self.min_p)
        return logits.masked_fill(logits < floor, -math.inf)
