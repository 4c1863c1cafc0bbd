"""What the engine asks of a step. Whoever adds one implements this and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from nanogpt_cli.generation.steps.weights import Weights


class Cache(Protocol):
    """The keys and values of one text."""

    @property
    def capacity(self) -> int:
        """How many positions have room."""


C = TypeVar("C", bound=Cache)


class Step(Protocol[C]):
    """A model that takes ids and gives logits, remembering each text in a cache of its own.

    Attributes:
        name: what reports call it.
        batch_invariant: whether a text's logits are the same, bit for bit, whatever other texts
            share its batch.
        runs_ahead: whether `decode` returns before its work is done, so that the next step is
            best begun before the last one's tokens are looked at; then `fetch` is there too.
    """

    name: ClassVar[str]
    batch_invariant: ClassVar[bool]
    runs_ahead: ClassVar[bool] = False
    device: torch.device
    weights: Weights

    def open(self, capacity: int) -> C:
        """Return an empty cache, or raise OutOfMemory."""

    def fork(self, cache: C, length: int, capacity: int) -> C:
        """Return a new cache with the first `length` positions of another."""

    def prefill(self, texts: Sequence[Sequence[int]], caches: Sequence[C]) -> Tensor:
        """Run the first ids of each of B texts, filling the caches from position 0.

        Returns:
            (B, V) float32 logits of each text's last id.
        """

    def decode(self, ids: Tensor, positions: Sequence[int], caches: Sequence[C]) -> Tensor:
        """Run one more id of each of B texts.

        Args:
            ids: (B,) int64.
            positions: B, each the length of its text so far.
            caches: B, written at those positions.

        Returns:
            (B, V) float32 logits.
        """

    def fetch(self, numbers: Tensor) -> Callable[[], list[int]]:
        """Begin to bring (N,) int64 to the host; return what waits for them alone."""
        return numbers.tolist
