"""What a model makes of a text it never saw: nats per character."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

if TYPE_CHECKING:
    from nanogpt_cli.model import GPT


@torch.no_grad()
def summed_loss(model: GPT, ids: list[int], start: int, stride: int) -> float:
    """Return the loss in nats, summed over all of `ids`; dropout must be off.

    Each token is scored once. Windows are block_size long and move by `stride`, so from the
    second window on a token sees at least block_size - stride tokens before it.

    Args:
        ids: the tokens to score.
        start: the token put before the first, as its only context; not scored itself.
        stride: at most block_size, in tokens.
    """
    size = model.config.block_size
    tokens = torch.tensor([start, *ids])
    total, scored = 0.0, 0
    for first in range(0, len(ids), stride):
        window = tokens[first : first + size + 1]
        logits, _ = model(window[None, :-1], window[None, 1:].contiguous())
        losses = F.cross_entropy(logits[0].float(), window[1:], reduction="none")
        total += losses[scored - first :].double().sum().item()
        scored = first + len(losses)
        if scored == len(ids):
            break
    return total
