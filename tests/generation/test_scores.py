"""How likely tokens were, by hand-worked logits."""

from __future__ import annotations

import torch

from nanogpt_cli.generation.scores import TokenScore, score_tokens


def test_equal_logits_rank_by_id_and_the_sum_is_over_all_ids() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0, -1.0], [0.0, 0.0, 0.0, 0.0, 5.0]])
    totals = logits.double().logsumexp(dim=-1).tolist()

    def score(row: int, token: int, rank: int, *others: TokenScore) -> TokenScore:
        logit = logits[row, token].item()
        return TokenScore(token, logit, logit - totals[row], rank, others)

    assert score_tokens(logits, [2, 2], 3) == [
        score(0, 2, 2, score(0, 1, 1), score(0, 2, 2), score(0, 3, 3)),
        score(1, 2, 4, score(1, 4, 1), score(1, 0, 2), score(1, 1, 3)),
    ]
    assert score_tokens(logits, [4, 4], 0) == [score(0, 4, 5), score(1, 4, 1)]


def test_many_equal_logits_come_in_the_order_of_ids() -> None:
    logits = torch.zeros(1, 5000)
    (found,) = score_tokens(logits, [4999], 4999)
    assert [other.id for other in found.alternatives] == list(range(4999))
    assert found.rank == 5000
