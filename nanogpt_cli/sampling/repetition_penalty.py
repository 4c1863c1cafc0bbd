"""Repetition penalty: ids that were there already become less likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from nanogpt_cli.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


LEAST, MOST = 1e-30, 1e30
"""Beyond these a penalised logit leaves float32."""


@dataclass(frozen=True)
class RepetitionPenalty:
    """Divide the positive and multiply the negative logits of seen ids; 1 changes nothing.

    Source: arXiv:1909.05858, section 4.1.
    """

    option: ClassVar[str] = "repetition_penalty"
    short: ClassVar[str] = ""
    default: ClassVar[float] = 1.0
    off: ClassVar[float] = 1.0
    help: ClassVar[str] = (
        "Before all else, make tokens that the text holds already less likely: 1 is off, 1.2 is "
        "much."
    )

    repetition_penalty: float

    def __post_init__(self) -> None:
        if not LEAST <= self.repetition_penalty <= MOST:
            within = (
                "be above 0" if self.repetition_penalty <= 0 else f"lie in {LEAST:g} to {MOST:g}"
            )
            raise UsageError(
                f"--repetition-penalty {self.repetition_penalty:g}: it must {within}",
                hint="1 is off, 1.2 is a usual choice",
            )

    def __call__(self, logits: Tensor, seen: Tensor) -> Tensor:
        """Return (B, V) logits, those of seen ids pushed down."""
        penalty = self.repetition_penalty
        pushed = (logits / penalty).where(logits > 0, logits * penalty)
        return pushed.where(seen, logits)
