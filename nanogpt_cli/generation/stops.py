"""Ending a sample at a text, wherever the borders between its tokens fall."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nanogpt_cli.generation.text import Piece


def cut_at_stops(
    pieces: Iterable[Piece], stops: Sequence[str], stopped: set[int]
) -> Iterator[Piece]:
    """End each sample just before the first of `stops` in its new text.

    A piece whose text may be the beginning of a stop is held back until that is decided.

    Args:
        pieces: of any number of samples.
        stops: texts, none of them empty.
        stopped: the numbers of the samples that a stop ended are added to it.
    """
    held: dict[int, list[Piece]] = {}
    for piece in pieces:
        if piece.index in stopped:
            continue
        own = held.setdefault(piece.index, [])
        own.append(piece)
        text = "".join(part.text for part in own)
        match = min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
        if match is not None:
            stopped.add(piece.index)
            yield from _cut(own, match)
        elif piece.finish_reason is not None:
            yield from held.pop(piece.index)
        else:
            safe = len(text) - max(_overlap(text, stop) for stop in stops)
            while own and len(own[0].text) <= safe:
                safe -= len(own[0].text)
                yield own.pop(0)


def _cut(pieces: list[Piece], length: int) -> Iterator[Piece]:
    """Give the pieces that hold the first `length` characters; the last ends the sample."""
    kept: list[Piece] = []
    for piece in pieces:
        if length <= 0:
            break
        kept.append(replace(piece, text=piece.text[:length], finish_reason=None))
        length -= len(piece.text)
    last = kept.pop() if kept else Piece(pieces[0].index, None, "")
    yield from kept
    yield replace(last, finish_reason="stop")


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of `text` may begin `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)
