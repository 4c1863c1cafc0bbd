"""The logit lens: what the model would say if it stopped after each layer.

Every place in the residual stream goes through ln_f, with its own mean and variance, and the
head. Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; arXiv:2303.08112.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from nanogpt_cli.inspection.behaviour import Arrays, Progress, bulk, no_progress
from nanogpt_cli.inspection.behaviour.labels import Token
from nanogpt_cli.inspection.behaviour.scoring import entropy_bits, ranks_of, rows_at_once
from nanogpt_cli.inspection.behaviour.trace import Step, unembed, walk

if TYPE_CHECKING:
    from torch import Tensor

    from nanogpt_cli.inspection.behaviour.subject import Subject


@dataclass(frozen=True)
class LensRow:
    """One place in the residual stream; every tuple has an entry a position.

    Args:
        label: "embed" (wte + wpe), "block 0", ...
        layer: the block's number, or None for the embedding.
        top_ids: the likeliest next token.
        top_labels: the same, as a visible line.
        top_probabilities: of the same, 0 to 1.
        entropies_bits: of the whole distribution.
        tracked_ranks: of the token that --track names, 1 for the likeliest; None without one.
        tracked_probabilities: of the same.
    """

    label: str
    layer: int | None
    top_ids: tuple[int, ...]
    top_labels: tuple[str, ...]
    top_probabilities: tuple[float, ...]
    entropies_bits: tuple[float, ...]
    tracked_ranks: tuple[int, ...] | None
    tracked_probabilities: tuple[float, ...] | None


@dataclass(frozen=True)
class LensReport:
    """The grid of layer and position.

    Args:
        checkpoint: the model, for people.
        prompt: the text.
        tokens: those that the model saw; position t predicts what follows tokens[t].
        dropped_tokens: tokens before those, which it cannot see.
        vocab_size: ids that the probabilities are over.
        rows: n_layer + 1 of them; the last is the model's own prediction.
        tracked: the token that --track names, or None.
    """

    schema: ClassVar[str] = "nanogpt.inspect.lens/1"

    checkpoint: str
    prompt: str
    tokens: tuple[Token, ...]
    dropped_tokens: int
    vocab_size: int
    rows: tuple[LensRow, ...]
    tracked: Token | None
    bulk: Arrays = bulk()

    def arrays(self) -> Arrays:
        """Return the grid as arrays (n_layer + 1, T), and `last_logits` (n_layer + 1, V).

        `ids` (T) int64, `top_ids`, `top_probabilities`, `entropies_bits`, with a tracked token
        `tracked_ranks` and `tracked_probabilities`; `last_logits` are the last position's.
        """
        return self.bulk


def measure(
    subject: Subject, *, progress: Progress = no_progress, track: str | None = None
) -> LensReport:
    """Run the model once and read a prediction off the residual stream after every layer.

    Args:
        subject: with at most block_size tokens.
        progress: told how many rows are done.
        track: a token to follow, or None.

    Raises:
        UsageError: a `track` that is not one token.
        NanoGPTError: logits that are not finite.
    """
    tracked = None if track is None else subject.find(track)
    count = subject.model.config.n_layer + 1
    read: list[dict[str, Tensor]] = []
    labels: list[tuple[str, int | None]] = []
    for step in walk(subject.model, subject.idx):
        labels.append((step.label, step.layer))
        read.append(_read_row(subject, step, tracked))
        progress(len(read), count)
    return LensReport(
        checkpoint=subject.name,
        prompt=subject.text,
        tokens=subject.tokens,
        dropped_tokens=subject.dropped,
        vocab_size=subject.model.config.vocab_size,
        rows=tuple(
            _make_row(subject, *names, row) for names, row in zip(labels, read, strict=True)
        ),
        tracked=None if tracked is None else subject.spell(tracked),
        bulk={
            "ids": np.asarray(subject.ids, dtype=np.int64),
            **{name: torch.stack([row[name] for row in read]).numpy() for name in read[0]},
        },
    )


@torch.inference_mode()
def _read_row(subject: Subject, step: Step, tracked: int | None) -> dict[str, Tensor]:
    """Return what the report shows of a place in the stream, on the CPU."""
    parts: dict[str, list[Tensor]] = {}
    logits = torch.empty(0)
    for logits in _logits_of(subject, step):
        top = logits.argmax(dim=-1)
        logprobs = logits.log_softmax(dim=-1)
        row = {
            "top_ids": top,
            "top_probabilities": logprobs.amax(dim=-1).exp(),
            "entropies_bits": entropy_bits(logprobs),
        }
        if tracked is not None:
            column = torch.full_like(top, tracked)[:, None]
            row["tracked_ranks"] = ranks_of(logits, column)
            row["tracked_probabilities"] = logprobs[:, tracked].exp()
        for name, part in row.items():
            parts.setdefault(name, []).append(part.cpu())
    return {
        **{name: torch.cat(chunks) for name, chunks in parts.items()},
        "last_logits": logits[-1].cpu().clone(),
    }


def _logits_of(subject: Subject, step: Step) -> Iterator[Tensor]:
    """Yield the logits, (N, V), that a place in the stream gives, some positions at a time."""
    at_once = rows_at_once(subject.model.config.vocab_size)
    for start in range(0, step.residual.size(1), at_once):
        logits = unembed(subject.model, step.residual[0, start : start + at_once])
        subject.require_finite(logits, subject.idx)
        yield logits


def _make_row(subject: Subject, label: str, layer: int | None, row: dict[str, Tensor]) -> LensRow:
    top_ids = tuple(row["top_ids"].tolist())
    followed = "tracked_ranks" in row
    return LensRow(
        label=label,
        layer=layer,
        top_ids=top_ids,
        top_labels=tuple(subject.label(token) for token in top_ids),
        top_probabilities=tuple(row["top_probabilities"].tolist()),
        entropies_bits=tuple(row["entropies_bits"].tolist()),
        tracked_ranks=tuple(row["tracked_ranks"].tolist()) if followed else None,
        tracked_probabilities=tuple(row["tracked_probabilities"].tolist()) if followed else None,
    )
