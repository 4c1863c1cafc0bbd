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
    logprobs = exact.log_softmax(dim=-1)
    order = exact.argsort(dim=-1, descending=True, stable=True)

    def score(row: int, token: int, rank: int, *others: TokenScore) -> TokenScore:
        logit, logprob = exact[row, token].item(), logprobs[row, token].item()
        return TokenScore(token, logit, logprob, rank, others)

    scored = []
    for row, token in enumerate(ids):
        best = order[row, :alternatives].tolist()
        others = [score(row, other, place) for place, other in enumerate(best, start=1)]
        rank = int((order[row] == token).nonzero()) + 1
        scored.append(score(row, token, rank, *others))
    return scored
