"""From tokens to text: whole characters, sample by sample, in order. Knows no terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nanogpt_cli.generation.engine import NewToken
from nanogpt_cli.generation.scores import TokenScore
from nanogpt_cli.tokenizers.base import Tokenizer
from nanogpt_cli.tokenizers.streaming import TextStream


@dataclass(frozen=True)
class Piece:
    """What one token adds to one sample's text.

    Args:
        index: the sample's number.
        id: the token, or None where a sample ends without one.
        text: whole characters; empty while a character is incomplete.
        finish_reason: "length", "stop" or "eos" with the last piece of a sample, else None.
        score: how likely the token was, where that was asked for.
    """

    index: int
    id: int | None
    text: str
    finish_reason: str | None = None
    score: TokenScore | None = None


def stream_text(tokens: Iterable[NewToken], tokenizer: Tokenizer) -> Iterator[Piece]:
    """Give each token the characters that it completes; half a one at the end is one U+FFFD.

    Raises:
        TokenizerError: an id that the tokenizer lacks.
    """
    streams: dict[int, TextStream] = {}
    for token in tokens:
        text = ""
        if token.id is not None:
            if token.index not in streams:
                streams[token.index] = TextStream(tokenizer)
            text = streams[token.index].feed(token.id)
        if token.finish_reason is not None and token.index in streams:
            text += streams.pop(token.index).finish()
        yield Piece(token.index, token.id, text, token.finish_reason, token.score)


def in_order(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Give sample 0 as it comes, and hold each later sample back until those before it end."""
    held: dict[int, list[Piece]] = {}
    current = 0
    for piece in pieces:
        if piece.index != current:
            held.setdefault(piece.index, []).append(piece)
            continue
        yield piece
        ended = piece.finish_reason is not None
        while ended:
            current += 1
            waiting = held.pop(current, [])
            yield from waiting
            ended = bool(waiting) and waiting[-1].finish_reason is not None
