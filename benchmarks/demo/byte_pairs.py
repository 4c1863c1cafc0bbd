"""Byte pair encoding of our own training, in tiktoken's terms: bytes to ranks.

A text is first cut into pieces by GPT-2's pattern; a merge never crosses a piece. Encoding takes
the lowest rank first, as tiktoken does, so the ranks mean there what they meant in training.

Source: arXiv:1508.07909; Radford et al. 2019 for bytes and the pattern.
"""

from __future__ import annotations

import base64
import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import regex  # type: ignore[import-untyped]
import tiktoken

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

WAYS = 8


def train_ranks(text: str, size: int) -> dict[bytes, int]:
    """Return `size` ranks learned from `text`: the 256 bytes, then merges, commonest first.

    Counted are the bytes that two neighbours make together, not the pair: tiktoken merges any
    two neighbours whose bytes are a token. Ties go to the lower bytes, so a run is repeatable.
    """
    ranks = {bytes([value]): value for value in range(256)}
    counts = Counter(piece.encode() for piece in regex.findall(PATTERN, text))
    pieces = {piece: split(piece, ranks) for piece in counts}
    totals: Counter[bytes] = Counter()
    holders: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for piece, parts in pieces.items():
        for joint in neighbours(parts):
            totals[joint] += counts[piece]
            holders[joint].add(piece)
    while len(ranks) < size:
        best = min(totals, key=lambda joint: (-totals[joint], joint))
        ranks[best] = len(ranks)
        for piece in holders[best]:
            for joint in neighbours(pieces[piece]):
                totals[joint] -= counts[piece]
            pieces[piece] = split(piece, ranks)
            for joint in neighbours(pieces[piece]):
                totals[joint] += counts[piece]
                holders[joint].add(piece)
        del totals[best], holders[best]
    return ranks


def split(
    piece: bytes, ranks: dict[bytes, int], skip: float = 0.0, draws: Random | None = None
) -> list[bytes]:
    """Cut one piece into tokens, merging the lowest rank first, leftmost among equals.

    With `draws`, each merge that could be made is passed over with probability `skip`, every
    time anew, and the piece is done when none is left: its spelling varies.

    Source: arXiv:1910.13267 for the passing over.
    """
    parts = [bytes([value]) for value in piece]
    while True:
        found = [
            (ranks[joint], place)
            for place, joint in enumerate(neighbours(parts))
            if joint in ranks and (draws is None or draws.random() >= skip)
        ]
        if not found:
            return parts
        _, place = min(found)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


def varied_ids(text: str, ranks: dict[bytes, int], skip: float, draws: Random) -> list[int]:
    """Return the ids of `text`, each piece spelled in one of eight ways drawn for it."""
    ways: dict[str, list[list[int]]] = {}
    ids: list[int] = []
    for piece in regex.findall(PATTERN, text):
        known = ways.setdefault(piece, [])
        if len(known) < WAYS:
            known.append([ranks[part] for part in split(piece.encode(), ranks, skip, draws)])
            ids += known[-1]
        else:
            ids += draws.choice(known)
    return ids


def neighbours(parts: list[bytes]) -> list[bytes]:
    """Return what each two neighbouring parts make together."""
    return [left + right for left, right in itertools.pairwise(parts)]


def encoding_of(ranks: dict[bytes, int]) -> tiktoken.Encoding:
    """Return tiktoken's encoding with these ranks and no special tokens."""
    return tiktoken.Encoding("demo", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


def write_ranks(ranks: dict[bytes, int], path: Path) -> None:
    """Write tiktoken's text format: base64 of the bytes, a space, the rank; a line each."""
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()]
    path.write_text("".join(lines), encoding="ascii")
