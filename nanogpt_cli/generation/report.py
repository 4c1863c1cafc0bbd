"""What is said of samples: a report each, and how the run went."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from nanogpt_cli.checkpoints import Architecture
from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.generation.scores import TokenScore
from nanogpt_cli.generation.text import Piece
from nanogpt_cli.tokenizers.base import Tokenizer

DIGESTED_BYTES = 1024
"""Read of each tensor: training moves every weight, so its first bytes tell two models apart."""


@dataclass(frozen=True)
class SampleReport:
    """One finished sample; `text` and `ids` are the new part alone.

    Args:
        id: of the row it came from, or None.
        index: its number among the prompt's samples.
        finish_reason: "length", "stop" or "eos".
        step: what computed: "compiled", "eager" or another of `generation.steps`, or "reference"
            for nanoGPT's own loop.
        batch_invariant: whether the text is the same, bit for bit, whatever shares its batch.
        settings: what changes a text, with a digest that covers the model and tokenizer too.
        logprobs: where asked for, a token each: id, text, bytes, logit, logprob, rank, top.
    """

    schema: ClassVar[str] = "nanogpt.sample/1"

    id: str | None
    index: int
    prompt: str
    text: str
    ids: list[int]
    finish_reason: str
    seed: int
    device: str
    dtype: str
    step: str
    batch_invariant: bool
    prompt_tokens: int
    new_tokens: int
    settings: dict[str, object]
    logprobs: list[dict[str, object]] | None = None


@dataclass
class Timing:
    """How a run of samples went; seconds from its start.

    Args:
        new_tokens: drawn so far, over all samples.
        first_token_seconds: until the first token, prefill included, or None.
        total_seconds: until the last.
        finish_reasons: of the finished samples, each once, in order.
    """

    new_tokens: int = 0
    first_token_seconds: float | None = None
    total_seconds: float = 0.0
    finish_reasons: dict[str, None] = field(default_factory=dict)

    def watch(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Pass pieces on, counting their tokens and time."""
        start = time.perf_counter()
        for piece in pieces:
            self.total_seconds = time.perf_counter() - start
            if piece.id is not None:
                self.new_tokens += 1
                if self.first_token_seconds is None:
                    self.first_token_seconds = self.total_seconds
            if piece.finish_reason is not None:
                self.finish_reasons[piece.finish_reason] = None
            yield piece

    @property
    def tokens_per_second(self) -> float | None:
        """New tokens a second, the prefill's time included; None before any."""
        return self.new_tokens / self.total_seconds if self.total_seconds > 0 else None


def digest_weights(architecture: Architecture) -> str:
    """Return a digest that changes with config and weights, from a little of each tensor."""
    digest = hashlib.sha256(repr(architecture.config).encode())
    for name, weight in architecture.weights.items():
        digest.update(f"{name} {weight.info.dtype}".encode())
        if not weight.info.member:
            with weight.info.path.open("rb") as file:
                file.seek(weight.info.offset)
                digest.update(file.read(min(DIGESTED_BYTES, weight.info.nbytes)))
    return digest.hexdigest()


def digest_tokens(tokenizer: Tokenizer) -> str:
    """Return a digest of a tokenizer's table, wherever it lies."""
    digest = hashlib.sha256(tokenizer.separator)
    for token in tokenizer.known_ids():
        data = tokenizer.token_bytes(token)
        digest.update(b"%d %d " % (token, len(data)) + data)
    return digest.hexdigest()


def spell_score(tokenizer: Tokenizer, score: TokenScore) -> dict[str, object]:
    """Return a token's score with its text, those of its alternatives under `top`."""
    top = [_spell(tokenizer, other) for other in score.alternatives]
    return {**_spell(tokenizer, score), "top": top}


def _spell(tokenizer: Tokenizer, score: TokenScore) -> dict[str, object]:
    try:
        data = tokenizer.token_bytes(score.id)
    except TokenizerError:  # padding: the model has the id, and the tokenizer no text for it
        data = b""
    return {
        "id": score.id,
        "text": data.decode("utf-8", errors="replace"),
        "bytes": list(data),
        "logit": score.logit,
        "logprob": score.logprob,
        "rank": score.rank,
    }
