"""What every filter of the PIPELINE is. The registry is in `nanogpt_cli.sampling`.

A filter's module imports no torch: its tensors bring their methods along, and its flag, default
and help are read when the command line starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Filter(Protocol):
    """A change to next-token logits, checked when it is built from its one parameter.

    Attributes:
        option: the parameter's name; with hyphens, its flag.
        short: a one-letter flag, or "".
        default: the parameter's value where nobody gives one; an int takes integers alone.
        off: the value at which the filter changes nothing and is left out.
        help: what the flag does.
    """

    option: ClassVar[str]
    short: ClassVar[str]
    default: ClassVar[float]
    off: ClassVar[float]
    help: ClassVar[str]

    def __call__(self, logits: Tensor, seen: Tensor, /) -> Tensor:
        """Return new (B, V) float32 logits; at least one a row stays finite.

        Args:
            logits: (B, V) float32; -inf marks what was filtered out before.
            seen: (B, V) bool, True for the ids of the prompt and of the text so far.
        """
