"""The text of a `.tiktoken` file: one token a line, base64, a space, its rank."""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from nanogpt_cli.errors import TokenizerError

MOST_IDS = 1 << 24
"""Higher ids than this are no vocabulary's."""


def split_ranks(text: bytes) -> dict[bytes, int]:
    """Return the ranks of a text that is known to be well formed."""
    words = text.split()
    return dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


def parse_ranks(text: bytes, source: str) -> dict[bytes, int]:
    """Return the ranks of a text that may hold anything.

    Args:
        text: lines of base64, a space and a rank; blank lines are passed over.
        source: where it comes from, for the errors.

    Raises:
        TokenizerError: a malformed line, or a token or rank that came before, by line number.
    """
    lines_of_ranks: dict[int, int] = {}
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            token, rank = _parse_line(line)
        except ValueError as error:
            raise TokenizerError(f"{source}, line {number}: {error}") from error
        if token in ranks:
            before = lines_of_ranks[ranks[token]]
            raise TokenizerError(
                f"{source}, line {number}: token {token!r} is on line {before} too"
            )
        if rank in lines_of_ranks:
            before = lines_of_ranks[rank]
            raise TokenizerError(f"{source}, line {number}: rank {rank} is on line {before} too")
        ranks[token] = rank
        lines_of_ranks[rank] = number
    if not ranks:
        raise TokenizerError(f"{source} holds no ranks")
    return ranks


def join_ranks(ranks: dict[bytes, int]) -> bytes:
    """Return the text of `ranks` as OpenAI writes it: by rank, one line feed a line."""
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    return b"".join(b2a_base64(token, newline=False) + b" %d\n" % rank for token, rank in ordered)


def _parse_line(line: bytes) -> tuple[bytes, int]:
    words = line.split()
    if len(words) != 2:
        raise ValueError(f"{_shown(line)} is not base64, a space and a rank")
    try:
        token = a2b_base64(words[0], strict_mode=True)
    except Base64Error as error:
        raise ValueError(f"{_shown(words[0])} is no base64") from error
    if not (words[1].isdigit() and len(words[1]) <= 9 and int(words[1]) < MOST_IDS):
        raise ValueError(f"rank {_shown(words[1])} is no number from 0 to {MOST_IDS - 1}")
    return token, int(words[1])


def _shown(data: bytes) -> str:
    return repr(data[:40].decode("utf-8", errors="backslashreplace"))
