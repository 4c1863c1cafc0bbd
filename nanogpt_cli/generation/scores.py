"""How likely tokens were by the model's raw distribution, before any filter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TokenScore:
    """One token in its place.

    Args:
        id: the token.
        logit: as the model gave it.
        logprob: natural logarithm of its probability, the whole vocabulary in the sum.
        rank: 1 for the likeliest; among equals, the lowest id comes first.
        alternatives: the likeliest tokens of that place, best first; for a drawn token only.
    """

    id: int
    logit: float
    logprob: float
    rank: int
    alternatives: tuple[TokenScore, ...] = ()


def score_tokens(logits: Tensor, ids: list[int], alternatives: int) -> list[TokenScore]:
    """Score one token a row.

    Args:
        logits: (B, V) float32, unfiltered.
        ids: B tokens.
        alternatives: how many of the likeliest to add to each.
    """
    exact = logits.cpu().double()
    totals = exact.logsumexp(dim=-1).tolist()
    best = _likeliest(exact, alternatives)

    def score(row: int, token: int, rank: int, *others: TokenScore) -> TokenScore:
        logit = exact[row, token].item()
        return TokenScore(token, logit, logit - totals[row], rank, others)

    scored = []
    for row, token in enumerate(ids):
        others = [score(row, other, place) for place, other in enumerate(best[row], start=1)]
        above = exact[row] > exact[row, token]
        equal = exact[row, :token] == exact[row, token]
        rank = 1 + int(above.sum()) + int(equal.sum())
        scored.append(score(row, token, rank, *others))
    return scored


def _likeliest(logits: Tensor, count: int) -> list[list[int]]:
    """Return the ids of the largest logits of each row, lowest id first among equals."""
    if count == 0:  # a sort is the dearest part
        return [[] for _ in range(logits.size(0))]
    return logits.argsort(dim=-1, descending=True, stable=True)[:, :count].tolist()
