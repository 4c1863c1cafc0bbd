"""What every filter of the PIPELINE is. The registry is in `nanogpt_cli.sampling`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Filter(Protocol):
    """A change to next-token logits, checked when it is built.

    Attributes:
        option: the name of its parameter, which is also its keyword and its flag.
        off: the value at which the filter changes nothing and is left out.
    """

    option: ClassVar[str]
    off: ClassVar[float]

    def __call__(self, logits: Tensor, seen: Tensor, /) -> Tensor:
        """Return new (B, V) float32 logits; at least one a row stays finite.

        Args:
            logits: (B, V) float32; -inf marks what was filtered out before.
            seen: (B, V) bool, True for the ids of the prompt and of the text so far.
        """
