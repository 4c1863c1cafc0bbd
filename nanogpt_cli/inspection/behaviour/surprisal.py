"""How surprising each token of a text is, and what that comes to over the whole.

Surprisal is minus the binary logarithm of the probability that the model gave a token, before it
saw it. Perplexity is e to the mean loss in nats. Source: Shannon 1948; Jelinek et al. 1977.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from nanogpt_cli.inspection.behaviour import Arrays, Progress, bulk, no_progress
from nanogpt_cli.inspection.behaviour.labels import Token, token_bytes
from nanogpt_cli.inspection.behaviour.scoring import Scores, rows_at_once, score_targets
from nanogpt_cli.inspection.behaviour.trace import last_residual, unembed
from nanogpt_cli.inspection.behaviour.windows import Protocol, Window

if TYPE_CHECKING:
    from nanogpt_cli.inspection.behaviour.subject import Subject

    Floats = np.ndarray[Any, np.dtype[np.float64]]

TOKENS_AT_ONCE = 4096
"""Tokens of one forward pass, over all of its windows; one window is always taken."""

MOST_LISTED = 50_000
"""Tokens of a text up to which the report lists each; beyond, the arrays have them."""


@dataclass(frozen=True)
class SurprisingToken(Token):
    """A token in its place; None where nothing predicted it.

    Args:
        logit: as the model gave it.
        logprob: natural logarithm of its probability, the whole vocabulary in the sum.
        bits: its surprisal.
        rank: 1 for the likeliest; among equals, the lowest id comes first.
        entropy_bits: of the prediction: the surprisal that was to be expected.
    """

    logit: float | None
    logprob: float | None
    bits: float | None
    rank: int | None
    entropy_bits: float | None


@dataclass(frozen=True)
class SurprisalReport:
    """Every token's surprisal, and the sums.

    Args:
        checkpoint: the model, for people.
        prompt: the text; empty for a token file.
        separator: what stands between two tokens; empty but for numbers and words.
        protocol: "one window", "sliding, stride N" or "disjoint windows": see `windows`.
        block_size: tokens that the model sees at most.
        windows: passes over a part of the text.
        prompt_tokens: tokens of the text.
        scored_tokens: how many of them were predicted.
        scored_bytes: the bytes of those, an end-of-text token having none; None where tokens
            are numbers.
        total_nats: sum of the scored tokens' surprisals.
        loss: the same a token, as training reports it.
        bits_per_token: the same in bits.
        perplexity: e to the loss; None where that is beyond all numbers.
        bits_per_byte: bits of the scored tokens over their bytes, or None.
        mean_entropy_bits: of the predictions.
        tokens: each of them, or None for more than 50,000.
    """

    schema: ClassVar[str] = "nanogpt.inspect.surprisal/1"

    checkpoint: str
    prompt: str
    separator: str
    protocol: str
    block_size: int
    windows: int
    prompt_tokens: int
    scored_tokens: int
    scored_bytes: int | None
    total_nats: float
    loss: float
    bits_per_token: float
    perplexity: float | None
    bits_per_byte: float | None
    mean_entropy_bits: float
    tokens: tuple[SurprisingToken, ...] | None
    bulk: Arrays = bulk()

    def arrays(self) -> Arrays:
        """Return a value a token, NaN (rank: 0) where nothing predicted it.

        `ids` (T) int64, `logits`, `logprobs`, `bits`, `entropies_bits` (T) float64, `ranks` (T)
        int64.
        """
        return self.bulk


def measure(
    subject: Subject, *, progress: Progress = no_progress, stride: int | None = None
) -> SurprisalReport:
    """Predict every token of a text of any length; memory does not grow with its windows.

    Args:
        subject: with all the tokens of the text.
        progress: told how many tokens are predicted.
        stride: how far the window moves over a text longer than block_size; None is half of that.

    Raises:
        UsageError: a text of one token, or a stride that is not 1 to block_size.
        NanoGPTError: logits that are not finite.
    """
    count, block_size = len(subject.ids), subject.model.config.block_size
    protocol = Protocol(count, block_size, stride)
    columns = _Columns(count)
    windows = 0
    for batch in protocol.batches(TOKENS_AT_ONCE):
        _score_windows(subject, batch, columns)
        windows += len(batch)
        progress(batch[-1].stop, count - 1)
    return _sum_up(subject, protocol, windows, columns)


class _Columns:
    """A value a token, undefined until it is predicted."""

    def __init__(self, count: int) -> None:
        self.logits = np.full(count, np.nan)
        self.logprobs = np.full(count, np.nan)
        self.ranks = np.zeros(count, dtype=np.int64)
        self.entropies_bits = np.full(count, np.nan)

    def put(self, start: int, scores: Scores) -> None:
        """Enter the scores of tokens from `start` on."""
        place = slice(start, start + len(scores.logit))
        self.logits[place] = scores.logit.cpu().numpy()
        self.logprobs[place] = scores.logprob.cpu().numpy()
        self.ranks[place] = scores.rank.cpu().numpy()
        self.entropies_bits[place] = scores.entropy_bits.cpu().numpy()

    @property
    def scored(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return self.ranks > 0


@torch.inference_mode()
def _score_windows(subject: Subject, batch: list[Window], columns: _Columns) -> None:
    """Run windows of one size side by side and score what each of them predicts last."""
    idx = torch.cat([subject.window(window.start, window.stop) for window in batch])
    scored = batch[0].scored
    residual = last_residual(subject.model, idx)[:, -scored:].flatten(0, 1)  # (B * scored, C)
    first, last = batch[0].stop - scored + 1, batch[-1].stop
    assert last - first + 1 == len(residual), "what the windows score lies side by side"
    at_once = rows_at_once(subject.model.config.vocab_size)
    for start in range(first, last + 1, at_once):
        targets = subject.window(start, min(start + at_once, last + 1))[0]
        logits = unembed(subject.model, residual[start - first :][: len(targets)])
        subject.require_finite(logits, idx)
        columns.put(start, score_targets(_exact(logits), targets))


def _exact(logits: torch.Tensor) -> torch.Tensor:
    """Return logits in float64, but on MPS, which has none."""
    return logits if logits.device.type == "mps" else logits.double()


def _sum_up(
    subject: Subject, protocol: Protocol, windows: int, columns: _Columns
) -> SurprisalReport:
    scored = columns.scored
    nats = -columns.logprobs
    total, number = math.fsum(nats[scored]), int(scored.sum())
    loss, bits = total / number, total / math.log(2)
    size = _count_bytes(subject, scored)
    ids = np.asarray(subject.ids, dtype=np.int64)
    listed = len(ids) <= MOST_LISTED
    return SurprisalReport(
        checkpoint=subject.name,
        prompt=subject.text,
        separator=subject.tokenizer.separator.decode(),
        protocol=protocol.name,
        block_size=protocol.block_size,
        windows=windows,
        prompt_tokens=len(ids),
        scored_tokens=number,
        scored_bytes=size,
        total_nats=total,
        loss=loss,
        bits_per_token=bits / number,
        perplexity=math.exp(loss) if loss < math.log(np.finfo(np.float64).max) else None,
        bits_per_byte=bits / size if size else None,
        mean_entropy_bits=math.fsum(columns.entropies_bits[scored]) / number,
        tokens=_list_tokens(subject, columns) if listed else None,
        bulk={
            "ids": ids,
            "logits": columns.logits,
            "logprobs": columns.logprobs,
            "bits": nats / math.log(2),
            "ranks": columns.ranks,
            "entropies_bits": columns.entropies_bits,
        },
    )


def _count_bytes(subject: Subject, scored: np.ndarray[Any, np.dtype[np.bool_]]) -> int | None:
    """Return how many bytes of text the scored tokens are."""
    tokenizer = subject.tokenizer
    if tokenizer.name == "ids":
        return None
    used, counts = np.unique(np.asarray(subject.ids)[scored], return_counts=True)
    total = 0
    for token, count in zip(used.tolist(), counts.tolist(), strict=True):
        if token != tokenizer.end_of_text:
            data = token_bytes(tokenizer, token) or b""
            total += count * (len(data) + len(tokenizer.separator))
    return total


def _list_tokens(subject: Subject, columns: _Columns) -> tuple[SurprisingToken, ...]:
    listed: list[SurprisingToken] = []
    for place, token in enumerate(subject.ids):
        known = columns.ranks[place] > 0
        logprob = float(columns.logprobs[place])
        listed.append(
            SurprisingToken(
                **vars(subject.spell(token)),
                logit=float(columns.logits[place]) if known else None,
                logprob=logprob if known else None,
                bits=-logprob / math.log(2) if known else None,
                rank=int(columns.ranks[place]) if known else None,
                entropy_bits=float(columns.entropies_bits[place]) if known else None,
            )
        )
    return tuple(listed)
