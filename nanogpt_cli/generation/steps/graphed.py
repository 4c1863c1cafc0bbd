"""The step for CUDA: static shapes, captured as a graph for each size of batch.

All texts live in one pool of slots, and a step runs the first slots of it whether in use or not:
then nothing but the numbers in a few small tensors changes from one step to the next, and one
launch replays all of its kernels. Without CUDA the same lines run uncaptured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn import functional as F

from nanogpt_cli.generation.steps.base import Step
from nanogpt_cli.generation.steps.eager import attend_causally, forward, read_out
from nanogpt_cli.generation.steps.products import make_products
from nanogpt_cli.generation.steps.weights import Weights

if TYPE_CHECKING:
    from torch import Tensor

SPAN = 256
"""Positions by which what attention reads grows: each span has a graph of its own."""

WARM_UP_STEPS = 3
"""Before a capture, for what allocates or chooses on its first calls."""


class Slot:
    """One text's place in the pool, given back when nobody holds it any more."""

    def __init__(self, number: int, capacity: int, free: Callable[[int], None]) -> None:
        self.number, self._capacity, self._free = number, capacity, free

    @property
    def capacity(self) -> int:
        """How many positions have room."""
        return self._capacity

    def __del__(self) -> None:
        self._free(self.number)


class GraphedStep(Step[Slot]):
    """A model's weights, a pool of caches, and the graphs captured so far.

    Args:
        weights: on the device to compute on.
        dtype: what to compute in.
        notify: is told where nothing can be captured.
    """

    name: ClassVar[str] = "graphed"
    batch_invariant: ClassVar[bool] = False
    runs_ahead: ClassVar[bool] = True

    def __init__(
        self,
        weights: Weights,
        dtype: torch.dtype,
        notify: Callable[[str], None] = lambda _note: None,
    ) -> None:
        self.weights, self.dtype, self._notify = weights, dtype, notify
        self.device = weights.wte.device
        self._captures = self.device.type == "cuda"
        self._products = make_products(weights, dtype)
        self._unused: list[int] = []
        self._resize(0, 0)

    def open(self, capacity: int) -> Slot:
        """Return an empty slot; the pool grows where it must."""
        slots, positions = self._pool.size(2), self._pool.size(4) - 1
        if not self._unused or capacity > positions:
            span = -(-capacity // SPAN) * SPAN
            grown = slots if self._unused else max(1, 2 * slots)
            self._resize(grown, max(positions, min(span, self.weights.config.block_size)))
        self._unused.sort(reverse=True)  # low numbers first: a step runs up to the highest in use
        return Slot(self._unused.pop(), capacity, self._unused.append)

    def fork(self, cache: Slot, length: int, capacity: int) -> Slot:
        """Return a new slot with the first `length` positions of another."""
        new = self.open(capacity)
        self._pool[:, :, new.number, :, :length] = self._pool[:, :, cache.number, :, :length]
        return new

    @torch.inference_mode()
    def prefill(self, texts: Sequence[Sequence[int]], caches: Sequence[Slot]) -> Tensor:
        """Run the first ids of each text by itself; return (B, V) logits of each one's last."""
        return torch.cat([self._prefill(*pair) for pair in zip(texts, caches, strict=True)])

    def _prefill(self, ids: Sequence[int], cache: Slot) -> Tensor:
        T = len(ids)
        idx = torch.tensor(ids, dtype=torch.long, device=self.device)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self._pool[layer, 0, cache.number, :, :T] = k.transpose(0, 1)
            self._pool[layer, 1, cache.number, :, :T] = v.transpose(0, 1)
            return attend_causally(q, k, v)

        x = self.weights.embed(idx, torch.arange(T, device=self.device))
        x = forward(self.weights, self._products, self.dtype, x, attend)
        return read_out(self.weights, self._products, x[-1:])

    @torch.inference_mode()
    def decode(self, ids: Tensor, positions: Sequence[int], caches: Sequence[Slot]) -> Tensor:
        """Run one more id of each text; return (B, V) logits."""
        numbers = [cache.number for cache in caches]
        slots = min(1 << max(numbers).bit_length(), self._pool.size(2))
        last = self._pool.size(4) - 1
        # Slots that take no part write where nobody reads, behind all positions.
        places = [last] * slots
        for number, position in zip(numbers, positions, strict=True):
            places[number] = position
        chosen = torch.tensor(numbers, device=self.device)
        self._places[:slots] = torch.tensor(places, device=self.device)
        self._ids[chosen] = ids
        span = min(-(-(max(positions) + 1) // SPAN) * SPAN, last)
        return self._replay(slots, span)[chosen]

    def fetch(self, numbers: Tensor) -> Callable[[], list[int]]:
        """Begin to bring (N,) int64 to the host; return what waits for them alone."""
        if self.device.type != "cuda":
            return numbers.tolist
        host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        host.copy_(numbers, non_blocking=True)
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()

        def wait() -> list[int]:
            copied.synchronize()
            return host.tolist()

        return wait

    def _resize(self, slots: int, positions: int) -> None:
        """Make the pool larger, and forget the graphs, which know its old address."""
        c = self.weights.config
        shape = (c.n_layer, 2, slots, c.n_head, positions + 1, c.n_embd // c.n_head)
        pool = torch.zeros(shape, dtype=self.dtype, device=self.device)
        old = getattr(self, "_pool", None)
        if old is not None:
            # The place behind all positions is nobody's, so it need not move along.
            pool[:, :, : old.size(2), :, : old.size(4) - 1] = old[..., :-1, :]
            self._unused.extend(range(old.size(2), slots))
        self._pool = pool
        self._ids = torch.zeros(slots, dtype=torch.long, device=self.device)
        self._places = torch.zeros(slots, dtype=torch.long, device=self.device)
        self._graphs: dict[tuple[int, int], tuple[Callable[[], None], Tensor]] = {}

    def _replay(self, slots: int, span: int) -> Tensor:
        """Return (slots, V) logits, overwritten by the next step of the same size."""
        if not self._captures:
            return self._compute(slots, span)
        if (slots, span) not in self._graphs:
            try:
                self._graphs[slots, span] = self._capture(slots, span)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, ValueError) as error:  # which, depends on torch's build
                first = next(iter(str(error).splitlines()), "no reason given")
                self._notify(f"the step cannot be captured, so it runs uncaptured: {first}")
                self._captures = False
                return self._compute(slots, span)
        replay, logits = self._graphs[slots, span]
        replay()
        return logits

    def _capture(self, slots: int, span: int) -> tuple[Callable[[], None], Tensor]:
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                self._compute(slots, span)
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self._compute(slots, span)
        return graph.replay, logits

    def _compute(self, slots: int, span: int) -> Tensor:
        """Run the first slots, attending to the first `span` positions."""
        places = self._places[:slots]
        rows = torch.arange(slots, device=self.device)
        seen = torch.arange(span, device=self.device) <= places.unsqueeze(1)  # (slots, span)
        mask = seen.view(slots, 1, 1, span)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self._pool[layer, :, :slots]  # (slots, H, positions + 1, D) each
            keys[rows, :, places], values[rows, :, places] = k, v
            y = F.scaled_dot_product_attention(
                q.unsqueeze(2), keys[:, :, :span], values[:, :, :span], attn_mask=mask
            )
            return y.squeeze(2)

        known = places.clamp(max=self.weights.config.block_size - 1)
        x = self.weights.embed(self._ids[:slots], known)
        x = forward(self.weights, self._products, self.dtype, x, attend)
        return read_out(self.weights, self._products, x)
