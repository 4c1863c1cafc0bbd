"""What the model expects after the text: the likeliest next tokens, by its raw logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from nanogpt_cli.inspection.behaviour import Arrays, Progress, bulk, no_progress
from nanogpt_cli.inspection.behaviour.labels import Token
from nanogpt_cli.inspection.behaviour.limits import check_top
from nanogpt_cli.inspection.behaviour.scoring import entropy_bits

if TYPE_CHECKING:
    from torch import Tensor

    from nanogpt_cli.inspection.behaviour.subject import Subject

DEFAULT_TOP = 10


@dataclass(frozen=True)
class NextToken(Token):
    """A token that may come next.

    Args:
        logit: as the model gave it.
        logprob: natural logarithm of its probability, the whole vocabulary in the sum.
        probability: 0 to 1.
        cumulative: its probability and that of every likelier token, together.
        rank: 1 for the likeliest; among equals, the lowest id comes first.
    """

    logit: float
    logprob: float
    probability: float
    cumulative: float
    rank: int


@dataclass(frozen=True)
class NextReport:
    """The next-token table.

    Args:
        checkpoint: the model, for people.
        prompt: the text.
        prompt_tokens: tokens that the model saw.
        dropped_tokens: tokens before those, which it cannot see.
        vocab_size: ids that the probabilities are over.
        entropy_bits: of the whole distribution.
        tokens: the likeliest, best first.
        tracked: the token that --track names, or None.
    """

    schema: ClassVar[str] = "nanogpt.inspect.next/1"

    checkpoint: str
    prompt: str
    prompt_tokens: int
    dropped_tokens: int
    vocab_size: int
    entropy_bits: float
    tokens: tuple[NextToken, ...]
    tracked: NextToken | None
    bulk: Arrays = bulk()

    def arrays(self) -> Arrays:
        """Return `logits` (V) float32."""
        return self.bulk


def measure(
    subject: Subject,
    *,
    progress: Progress = no_progress,
    top: int = DEFAULT_TOP,
    track: str | None = None,
) -> NextReport:
    """Run the model once and rank the vocabulary by its last logits.

    Args:
        subject: with at most block_size tokens.
        progress: told when it is done.
        top: rows of the table; more than the vocabulary has are all of it.
        track: a token to show wherever it stands.

    Raises:
        UsageError: `top` below 1, or a `track` that is not one token.
        NanoGPTError: logits that are not finite.
    """
    check_top(top)
    tracked = None if track is None else subject.find(track)
    with torch.inference_mode():
        logits = subject.model(subject.idx)[0][0, -1].float()  # (V)
    subject.require_finite(logits, subject.idx)
    ranked = _Ranking(subject, logits)
    progress(1, 1)
    return NextReport(
        checkpoint=subject.name,
        prompt=subject.text,
        prompt_tokens=len(subject.ids),
        dropped_tokens=subject.dropped,
        vocab_size=logits.numel(),
        entropy_bits=ranked.entropy_bits,
        tokens=tuple(ranked.row(place) for place in range(min(top, logits.numel()))),
        tracked=None if tracked is None else ranked.row(ranked.place_of(tracked)),
        bulk={"logits": logits.cpu().numpy()},
    )


class _Ranking:
    """The vocabulary, likeliest first."""

    def __init__(self, subject: Subject, logits: Tensor) -> None:
        self._subject = subject
        self._logits = logits.cpu().double()
        self._logprobs = self._logits.log_softmax(dim=-1)
        self._order = self._logits.argsort(descending=True, stable=True)
        self._cumulative = self._logprobs.exp()[self._order].cumsum(dim=-1)

    @property
    def entropy_bits(self) -> float:
        return entropy_bits(self._logprobs[None]).item()

    def place_of(self, token: int) -> int:
        return int((self._order == token).nonzero())

    def row(self, place: int) -> NextToken:
        token = int(self._order[place])
        spelled = self._subject.spell(token)
        logprob = self._logprobs[token]
        return NextToken(
            **vars(spelled),
            logit=self._logits[token].item(),
            logprob=logprob.item(),
            probability=logprob.exp().item(),
            cumulative=min(1.0, self._cumulative[place].item()),
            rank=place + 1,
        )
