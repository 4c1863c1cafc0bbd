"""Ranks, entropies and log-probabilities of many positions, a bounded number at a time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

LOGITS_AT_ONCE = 1 << 22
"""So many logits are held at a time: 32 MB in float64, and a few copies of that."""


class Scores(NamedTuple):
    """Of N tokens in their places; each (N).

    Args:
        logit: as the model gave it.
        logprob: natural logarithm, the whole vocabulary in the sum.
        rank: int64, 1 for the likeliest; among equals, the lowest id comes first.
        entropy_bits: of the prediction, whatever the token is.
    """

    logit: Tensor
    logprob: Tensor
    rank: Tensor
    entropy_bits: Tensor


def rows_at_once(vocab_size: int) -> int:
    """Return how many positions' logits are made at a time."""
    return max(1, LOGITS_AT_ONCE // vocab_size)


def score_targets(logits: Tensor, targets: Tensor) -> Scores:
    """Score one token a row: logits (N, V), targets (N) int64; float64 where the logits are."""
    column = targets[:, None]
    logit = logits.gather(1, column)
    logprobs = logits.log_softmax(dim=-1)
    chosen = logprobs.gather(1, column)
    return Scores(logit[:, 0], chosen[:, 0], ranks_of(logits, column), entropy_bits(logprobs))


def ranks_of(logits: Tensor, column: Tensor) -> Tensor:
    """Return the rank, (N) int64, of one token a row: logits (N, V), column (N, 1) int64."""
    logit = logits.gather(1, column)
    ids = torch.arange(logits.size(-1), device=logits.device)
    before = (logits > logit) | ((logits == logit) & (ids < column))
    return before.sum(dim=-1) + 1


def entropy_bits(logprobs: Tensor) -> Tensor:
    """Return the entropy of each row's distribution, (N), for finite logarithms (N, V)."""
    return -(logprobs.exp() * logprobs).sum(dim=-1) / math.log(2)
