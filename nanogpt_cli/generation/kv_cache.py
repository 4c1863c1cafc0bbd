"""Keys and values of the positions already seen, allocated once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nanogpt_cli.config import GPTConfig

if TYPE_CHECKING:
    from torch import Tensor


class KVCache:
    """The keys and values of every layer for B sequences of one length.

    Args:
        config: gives L, H and D.
        batch: B.
        capacity: positions to make room for, at most block_size.
        like: its device and dtype are taken.
    """

    def __init__(self, config: GPTConfig, batch: int, capacity: int, like: Tensor) -> None:
        H = config.n_head
        shape = (2, config.n_layer, batch, H, capacity, config.n_embd // H)
        self._store = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.length = 0

    @property
    def capacity(self) -> int:
        """How many positions there is room for."""
        return self._store.size(4)

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store k and v, (B, H, T, D), after what is there; return views of all of a layer's.

        `advance` counts them in once every layer has stored its own.
        """
        end = self.length + k.size(2)
        keys, values = self._store[:, layer, :, :, :end]
        keys[:, :, self.length :] = k
        values[:, :, self.length :] = v
        return keys, values

    def advance(self, positions: int) -> None:
        """Count in the positions that every layer has stored."""
        self.length += positions

    def copy(self, rows: Tensor) -> KVCache:
        """Return a cache of chosen sequences: `rows` (B') int64 names the old row of each."""
        chosen = KVCache.__new__(KVCache)
        chosen._store = self._store.index_select(2, rows)
        chosen.length = self.length
        return chosen


def bytes_per_sequence(config: GPTConfig, capacity: int, itemsize: int) -> int:
    """Return the bytes that one sequence of `capacity` positions takes."""
    return 2 * config.n_layer * config.n_embd * capacity * itemsize
