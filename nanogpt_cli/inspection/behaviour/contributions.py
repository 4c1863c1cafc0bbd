"""Which parts of the model speak for an answer, and which against."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from nanogpt_cli.generation.scores import score_tokens
from nanogpt_cli.inspection.behaviour import Progress, bulk, no_progress
from nanogpt_cli.inspection.behaviour.attribution import (
    Decomposition,
    Shares,
    Write,
    decompose,
    mean_row,
    share_out,
)
from nanogpt_cli.inspection.behaviour.labels import Token
from nanogpt_cli.inspection.behaviour.limits import find_position
from nanogpt_cli.inspection.behaviour.subject import Subject
from nanogpt_cli.inspection.behaviour.vocabulary import known_ids

if TYPE_CHECKING:
    from nanogpt_cli.inspection.behaviour import Arrays

DEFINITION = (
    "direct logit attribution: what each part writes to the residual stream, through ln_f with "
    "its scale held at the value it has, times the answer's row of lm_head; effects by way of "
    "later layers are not in it"
)


@dataclass(frozen=True)
class Answer(Token):
    """A token as what may come next.

    Args:
        logit: as the model gave it.
        logprob: natural logarithm of its probability, the whole vocabulary in the sum.
        probability: 0 to 1.
        rank: 1 for the likeliest; among equals, the lowest id comes first.
    """

    logit: float
    logprob: float
    probability: float
    rank: int


@dataclass(frozen=True)
class Contribution:
    """The share of one part.

    Args:
        part: for people, such as "block 3 head 2".
        kind: "token embedding", "position embedding", "head", "attention bias", "mlp" or
            "ln_f bias".
        layer: its block, or None.
        head: its number there, or None.
        logit: its share of the answer's logit.
        relative: its share of the answer's logit less the reference's.
    """

    part: str
    kind: str
    layer: int | None
    head: int | None
    logit: float
    relative: float


@dataclass(frozen=True)
class ContributionsReport:
    """How an answer's logit splits over the parts of the model.

    Args:
        checkpoint: the model, for people.
        prompt: the text.
        tokens: those that the model saw, up to `position`.
        dropped_tokens: tokens before those, which it cannot see.
        position: of the token after which the answer would come.
        n_layer: layers.
        n_head: heads a layer.
        answer: the token whose logit it is.
        against: the token that it is compared with; None for the mean.
        reference_logit: of that token, or the mean over `reference_ids` of them: adding one
            number to all logits changes no probability, so only differences count.
        reference_ids: how many ids the mean is over: those that have a text; 1 with `against`.
        parts: in the model's order; their shares sum to the logit but for rounding.
        sum_logit: of the shares.
        sum_relative: of the shares of the difference.
        error_logit: the model's logit less the sum.
        error_relative: the model's difference less the sum.
        definition: what a share is.
        bulk: what `arrays` returns.
    """

    schema: ClassVar[str] = "nanogpt.inspect.contributions/1"

    checkpoint: str
    prompt: str
    tokens: tuple[Token, ...]
    dropped_tokens: int
    position: int
    n_layer: int
    n_head: int
    answer: Answer
    against: Answer | None
    reference_logit: float
    reference_ids: int
    parts: tuple[Contribution, ...]
    sum_logit: float
    sum_relative: float
    error_logit: float
    error_relative: float
    definition: str = DEFINITION
    bulk: Arrays = bulk()

    def arrays(self) -> Arrays:
        """Return `logits` and `relative`, (P), and `writes`, (P, C), each part's to the stream.

        All float64; the last of P, where ln_f has a bias, writes nothing.
        """
        return self.bulk


@dataclass(frozen=True, eq=False)
class _Reference:
    """What the answer's logit is compared with: its row of lm_head, its logit, how many ids."""

    row: torch.Tensor
    logit: float
    ids: int


@torch.inference_mode()
def measure(
    subject: Subject,
    *,
    progress: Progress = no_progress,
    answer: str | None = None,
    against: str | None = None,
    position: int | None = None,
) -> ContributionsReport:
    """Return how the logit of an answer splits over embeddings, heads, MLPs and biases.

    Args:
        subject: a model and at most block_size tokens.
        progress: told when it is done.
        answer: one token's text; None for what the model expects most.
        against: the token to compare it with; None for the mean logit.
        position: of the token after which the answer would come; None for the last; below 0
            counts from the end.

    Raises:
        UsageError: no such position, or a text that is not one token.
        NanoGPTError: the model's logits are not finite.
    """
    model, place = subject.model, find_position(position, len(subject.ids))
    chosen = None if answer is None else subject.find(answer)
    other = None if against is None else subject.find(against)
    split = decompose(model, subject.idx, place)
    subject.require_finite(split.logits, subject.window(0, place + 1))
    told = _answer(subject, split, int(split.logits.argmax()) if chosen is None else chosen)
    reference = _refer(subject, split, other)
    row = _row(subject, told.id)
    shares = share_out(model, split, row)
    relative = share_out(model, split, row - reference.row)
    parts = tuple(_name_parts(split, shares, relative))
    progress(1, 1)
    return ContributionsReport(
        checkpoint=subject.name,
        prompt=subject.text,
        tokens=subject.tokens[: place + 1],
        dropped_tokens=subject.dropped,
        position=place,
        n_layer=model.config.n_layer,
        n_head=model.config.n_head,
        answer=told,
        against=None if other is None else _answer(subject, split, other),
        reference_logit=reference.logit,
        reference_ids=reference.ids,
        parts=parts,
        sum_logit=shares.total,
        sum_relative=relative.total,
        error_logit=told.logit - shares.total,
        error_relative=told.logit - reference.logit - relative.total,
        bulk=_arrays(split, parts),
    )


def _row(subject: Subject, token: int) -> torch.Tensor:
    return subject.model.lm_head.weight[token].cpu().double()


def _refer(subject: Subject, split: Decomposition, other: int | None) -> _Reference:
    if other is not None:
        return _Reference(_row(subject, other), split.logits[other].item(), 1)
    known = known_ids(subject)
    mean = split.logits[known].double().mean().item()
    return _Reference(mean_row(subject.model, known), mean, len(known))


def _answer(subject: Subject, split: Decomposition, token: int) -> Answer:
    [score] = score_tokens(split.logits[None], [token], 0)
    spelled, probability = vars(subject.spell(token)), math.exp(score.logprob)
    return Answer(
        **spelled,
        logit=score.logit,
        logprob=score.logprob,
        probability=probability,
        rank=score.rank,
    )


def _arrays(split: Decomposition, parts: tuple[Contribution, ...]) -> Arrays:
    writes = np.zeros((len(parts), split.final.numel()))
    for row, write in zip(writes, split.writes, strict=False):
        row[:] = write.vector.numpy()
    logits, relative = zip(*((part.logit, part.relative) for part in parts), strict=True)
    return {"logits": np.array(logits), "relative": np.array(relative), "writes": writes}


def _name_parts(split: Decomposition, shares: Shares, relative: Shares) -> Iterator[Contribution]:
    for write, *both in zip(split.writes, shares.writes, relative.writes, strict=True):
        yield Contribution(_name(write), write.kind, write.layer, write.head, *both)
    if shares.ln_f_bias is not None and relative.ln_f_bias is not None:
        kind, both = "ln_f bias", [shares.ln_f_bias, relative.ln_f_bias]
        yield Contribution(kind, kind, None, None, *both)


def _name(write: Write) -> str:
    if write.layer is None:
        return write.kind
    head = f"head {write.head}" if write.head is not None else write.kind
    return f"block {write.layer} {head}"
