"""Ids that a model has and its tokenizer lacks: they are never drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from nanogpt_cli.tokenizers.base import Tokenizer


def forbidden_ids(
    tokenizer: Tokenizer, vocab_size: int, device: torch.device
) -> torch.Tensor | None:
    """Return (V,) bool, True for the ids that the tokenizer lacks, or None where it has all."""
    forbidden = torch.ones(vocab_size, dtype=torch.bool)
    forbidden[torch.tensor(tokenizer.known_ids(), dtype=torch.long)] = False
    return forbidden.to(device) if forbidden.any() else None
