"""Byte-pair encoding over tiktoken ranks, with GPT-2's split. The heavy half of two entries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import tiktoken

from nanogpt_cli.tokenizers.base import (
    END_OF_TEXT,
    decode_ids,
    missing_id,
    replace_surrogates,
    require_bytes,
)

SPLIT = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    r"|\s++$|\s+(?!\S)|\s"
)
"""GPT-2's split of a text into pieces, before merges; `\\s++$` only spares long backtracking."""

_BLANK = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

_LONG_BLANK = re.compile(f"(?<![{_BLANK}])[{_BLANK}]{{50000,}}+(?=[^{_BLANK}])")


class RankTokenizer:
    """A byte-pair encoding.

    Args:
        name: the registry's entry.
        source: where the ranks come from, for people.
        ranks: token bytes to id.
        end_of_text: id of `<|endoftext|>`, or None where there is no such token.

    Source: "Language Models are Unsupervised Multitask Learners" (GPT-2), section 2.2.
    """

    separator = b""
    is_bpe = True

    def __init__(
        self, name: str, source: str, ranks: dict[bytes, int], end_of_text: int | None
    ) -> None:
        self.name = name
        self.source = source
        self.end_of_text = end_of_text
        special = {} if end_of_text is None else {END_OF_TEXT: end_of_text}
        self._encoding = tiktoken.Encoding(
            name, pat_str=SPLIT, mergeable_ranks=ranks, special_tokens=special
        )
        self.n_vocab = self._encoding.max_token_value + 1
        self._known = _list_ids(ranks, special, self.n_vocab)
        self._lacking = frozenset(byte for byte in range(256) if bytes([byte]) not in ranks)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the ids of `text`.

        Raises:
            UsageError: characters with bytes that no token has alone, all of them listed.
        """
        text, _ = replace_surrogates(text)
        allowed = {END_OF_TEXT} if special and self.end_of_text is not None else set()
        if self._lacking:
            require_bytes(self, text, self._lacking)
        ids: list[int] = []
        for part in _cut_long_blanks(text, allowed):
            ids += self._encoding.encode(part, allowed_special=allowed, disallowed_special=())
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`."""
        return decode_ids(self, ids)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token.

        Raises:
            TokenizerError: no such id.
        """
        if not 0 <= token < self.n_vocab:
            raise missing_id(self, token)
        try:
            return self._encoding.decode_single_token_bytes(token)
        except KeyError as error:
            raise missing_id(self, token) from error

    def known_ids(self) -> Sequence[int]:
        """Return every id of the table, ascending."""
        return self._known


def _list_ids(ranks: dict[bytes, int], special: dict[str, int], n_vocab: int) -> Sequence[int]:
    if len(ranks) + len(special) == n_vocab:
        return range(n_vocab)
    return sorted((*ranks.values(), *special.values()))


def _cut_long_blanks(text: str, allowed: set[str]) -> Iterator[str]:
    """Yield parts of `text` that encode one by one as they would together.

    The split's lookahead gives up, and takes the process with it, on blanks without end before
    a word. The split always cuts such a run before its last character, so we may; not before a
    special token, where the split ends anyway.
    """
    start = 0
    for run in _LONG_BLANK.finditer(text):
        if text.startswith(tuple(allowed), run.end()):
            continue
        yield text[start : run.start()]
        yield text[run.start() : run.end() - 1]
        start = run.end() - 1
    yield text[start:]
