"""Temperature: how sharply the logits are told apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from nanogpt_cli.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


LEAST = 2.0**-126
"""What float32 can divide by; below it the likeliest ids alone have any odds anyway."""


@dataclass(frozen=True)
class Temperature:
    """Divide the logits: below 1 sharpens, 1 changes nothing, above 1 flattens.

    Zero is no filter but a greedy draw (see `Sampler`), and passes through here.

    Source: arXiv:1503.02531, section 2.
    """

    option: ClassVar[str] = "temperature"
    short: ClassVar[str] = "t"
    default: ClassVar[float] = 0.8
    off: ClassVar[float] = 1.0
    help: ClassVar[str] = (
        "How freely to draw: below 1 is safer text, 1 is the model's own odds, above 1 is wilder; "
        "0 is greedy: always the likeliest token."
    )

    temperature: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(
                f"--temperature {self.temperature:g}: it must be a number of at least 0",
                hint="0 is greedy, 1 leaves the model's own distribution",
            )

    def __call__(self, logits: Tensor, _seen: Tensor) -> Tensor:
        """Return (B, V) logits, shifted so that the largest is 0, divided."""
        if self.temperature == 0:
            return logits
        # Shifted first, so that a temperature near zero cannot overflow.
        return (logits - logits.amax(dim=-1, keepdim=True)) / max(self.temperature, LEAST)
