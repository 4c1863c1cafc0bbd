"""The keys and values of one text in a tensor of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nanogpt_cli.config import GPTConfig

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TextCache:
    """Keys and values of one text: (L, 2, H, capacity, D) of the type computed in."""

    store: Tensor

    @classmethod
    def empty(
        cls, config: GPTConfig, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> TextCache:
        """Return one with room for `capacity` positions."""
        D = config.n_embd // config.n_head
        shape = (config.n_layer, 2, config.n_head, capacity, D)
        return cls(torch.empty(shape, dtype=dtype, device=device))

    @property
    def capacity(self) -> int:
        """How many positions have room."""
        return self.store.size(3)

    def copy_into(self, new: TextCache, length: int) -> TextCache:
        """Copy the first `length` positions into another, and return that."""
        new.store[:, :, :, :length] = self.store[:, :, :, :length]
        return new
