"""What each attention head does, as a few numbers.

Two come from the user's text: how much of its attention a head gives to the previous token and
to the first. Two need a text in which every token comes twice: random ids, then the same again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nanogpt_cli.inspection.behaviour.attention_maps import walk_maps
from nanogpt_cli.inspection.behaviour.trace import unembed
from nanogpt_cli.model import GPT

PROBE_SEED = 1337
LONGEST_PERIOD = 64
SHORTEST_PERIOD = 4
"""Random ids before they repeat; with fewer, chance alone gives high scores."""

NAMED_FROM = 0.4
"""A mean weight that names a head after what it does."""


@dataclass(frozen=True)
class TextScores:
    """How one head looks at the user's text; None where the text is too short to tell.

    Args:
        previous_token: mean weight on position t - 1, over t from 2.
        first_token: mean weight on position 0, over t from 2.
        entropy_bits: mean entropy of the weights, over t from 1.
    """

    previous_token: float | None
    first_token: float | None
    entropy_bits: float | None


@dataclass(frozen=True)
class RepeatScores:
    """How one head looks back from the second half of a repeated text of period P; None if none.

    Args:
        induction: mean weight on t - P + 1, the token after the last time this one came.
        duplicate: mean weight on t - P, the last time this token came.
    """

    induction: float | None
    duplicate: float | None


@dataclass(frozen=True)
class Probe:
    """The repeated random text, and what the model makes of it.

    Args:
        ids: `period` distinct random ids, then the same again.
        period: how many.
        seed: of the draw.
        first_loss_nats: per token, where nothing has repeated yet.
        repeat_loss_nats: per token, in the second half: lower where the model copies.
        reason: why there is no such text, with no ids and a period of 0; else None.
    """

    ids: tuple[int, ...]
    period: int
    seed: int
    first_loss_nats: float | None = None
    repeat_loss_nats: float | None = None
    reason: str | None = None


def score_text(weights: Tensor) -> list[TextScores]:
    """Return the scores of each head for weights (H, T, T)."""
    H, T, _ = weights.shape
    nothing: list[float | None] = [None] * H
    previous = first = entropy = nothing
    if T > 1:
        entropy = _means(torch.special.entr(weights)[:, 1:].sum(dim=-1) / math.log(2))
    if T > 2:
        previous = _means(weights.diagonal(-1, dim1=1, dim2=2)[:, 1:])
        first = _means(weights[:, 2:, 0])
    return [TextScores(*scores) for scores in zip(previous, first, entropy, strict=True)]


def score_repeats(weights: Tensor, period: int) -> list[RepeatScores]:
    """Return the scores of each head for weights (H, 2P, 2P) over a text of period P."""
    after = weights.diagonal(1 - period, dim1=1, dim2=2)[:, 1:]
    same = weights.diagonal(-period, dim1=1, dim2=2)
    return [RepeatScores(*pair) for pair in zip(_means(after), _means(same), strict=True)]


def _means(values: Tensor) -> list[float | None]:
    means: list[float | None] = values.double().mean(dim=-1).tolist()
    return means


def make_probe(known: Sequence[int], block_size: int, seed: int = PROBE_SEED) -> Probe:
    """Return a random text that repeats once, as long as context and vocabulary allow.

    Args:
        known: ids to draw from, such as those that have a text.
        block_size: the longest that the model takes.
        seed: the same seed, ids and block_size give the same text.
    """
    period = min(LONGEST_PERIOD, block_size // 2, len(known))
    if period < SHORTEST_PERIOD:
        return Probe((), 0, seed, reason=_too_small(len(known), block_size))
    once = tuple(random.Random(seed).sample(known, period))
    return Probe(once * 2, period, seed)


def _too_small(known: int, block_size: int) -> str:
    wanted = f"a text of {SHORTEST_PERIOD} distinct tokens, twice"
    if block_size < 2 * SHORTEST_PERIOD:
        return f"block_size is {block_size}, too short for {wanted}"
    return f"the vocabulary has {known} ids, too few for {wanted}"


@torch.inference_mode()
def run_probe(model: GPT, probe: Probe) -> tuple[Probe, list[list[RepeatScores]]]:
    """Return the probe with the model's losses on it, and the scores by layer and head.

    A probe that is empty comes back as it is, without scores.
    """
    if not probe.ids:
        return probe, []
    scores = []
    idx = torch.tensor([probe.ids], device=model.lm_head.weight.device)
    for weights, residual in walk_maps(model, idx):  # noqa: B007
        scores.append(score_repeats(weights, probe.period))
    logits = unembed(model, residual[0, :-1])  # (2P - 1, V)
    losses = torch.nn.functional.cross_entropy(logits, idx[0, 1:], reduction="none").double()
    # Position P - 1 predicts the first repeated token, which nothing announces.
    first, repeat = losses[: probe.period].mean(), losses[probe.period :].mean()
    told = Probe(probe.ids, probe.period, probe.seed, first.item(), repeat.item())
    return told, scores


def name_head(scores: dict[str, float | None]) -> str | None:
    """Return the name of the highest score, if it is high enough to name the head after."""
    known = {name: score for name, score in scores.items() if score is not None}
    best = max(known, key=lambda name: known[name], default=None)
    return best if best is not None and known[best] >= NAMED_FROM else None
