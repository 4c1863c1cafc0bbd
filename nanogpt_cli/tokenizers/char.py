"""nanoGPT's `meta.pkl`: a token a character, or a token a word.

How a text is cut follows from the tokens themselves. Where some token holds a space, or most
are single characters, nothing is printed between tokens and a text is cut into the longest
tokens that fit. Where most are words without spaces, tokens are printed with a space between,
and a text is cut at its blanks, then, where a part is no token, between words and punctuation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nanogpt_cli.errors import UsageError, count_of, name_some
from nanogpt_cli.tokenizers.base import (
    END_OF_TEXT,
    Found,
    Tokenizer,
    TokenizerKind,
    decode_ids,
    missing_id,
    name_characters,
    replace_surrogates,
)
from nanogpt_cli.tokenizers.files import is_file
from nanogpt_cli.tokenizers.gpt2 import N_VOCAB
from nanogpt_cli.tokenizers.meta import read_meta

_MARKER = re.compile(r"[<\[{|].*[>\]}|]", re.DOTALL)

_BLANK_OR_WORD = re.compile(r"\s+|\S+")

_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")

MOST_SHOWN = 100
"""Characters of a table that a hint can list: digits with signs, or an alphabet."""


class CharTokenizer:
    """A table of tokens.

    Args:
        tokens: id to token.
        source: where the table comes from, for people.
    """

    name = "char"
    is_bpe = False

    def __init__(self, tokens: dict[int, str], source: str) -> None:
        self.source = source
        self._tokens = tokens
        self._bytes = {number: _to_utf8(token) for number, token in tokens.items()}
        self._ids = {token: number for number, token in tokens.items() if token}
        self._lengths = sorted({len(token) for token in self._ids}, reverse=True)
        self._known = sorted(tokens)
        self._has_surrogates = any(replace_surrogates(token)[1] for token in self._ids)
        self.n_vocab = self._known[-1] + 1
        self.end_of_text = self._ids.get(END_OF_TEXT)
        self.separator = b" " if _are_words(self._ids) else b""

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the ids of `text`.

        Raises:
            UsageError: characters or words that the table lacks, listed together.
        """
        if not self._has_surrogates:
            text, _ = replace_surrogates(text)
        excluded = "" if special else END_OF_TEXT
        if self.separator:
            return self._encode_words(text, excluded)
        return self._encode_longest(text, excluded)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`."""
        return decode_ids(self, ids)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token.

        Raises:
            TokenizerError: no such id.
        """
        if token not in self._bytes:
            raise missing_id(self, token)
        return self._bytes[token]

    def known_ids(self) -> Sequence[int]:
        """Return every id of the table, ascending."""
        whole = len(self._known) == self.n_vocab
        return range(self.n_vocab) if whole else self._known

    def _encode_longest(self, text: str, excluded: str) -> list[int]:
        ids: list[int] = []
        unknown: dict[str, None] = {}
        place = 0
        while place < len(text):
            token = self._match(text, place, excluded)
            if token:
                ids.append(self._ids[token])
            else:
                unknown[text[place]] = None
            place += len(token) or 1
        if unknown:
            raise UsageError(
                f"{count_of(len(unknown), 'character')} of the prompt not among the "
                f"{len(self._ids)} tokens of {self.source}: {name_characters(unknown)}",
                hint=f"the model never saw such: leave it out of the prompt{self._alphabet()}",
            )
        return ids

    def _alphabet(self) -> str:
        """Return, to end a hint with, the characters of a small table."""
        if len(self._ids) > MOST_SHOWN or self._lengths != [1]:
            return ""
        return f"; it knows {''.join(self._ids)!r}"

    def _match(self, text: str, place: int, excluded: str) -> str:
        for length in self._lengths:
            token = text[place : place + length]
            if self._is_token(token, excluded):
                return token
        return ""

    def _encode_words(self, text: str, excluded: str) -> list[int]:
        ids: list[int] = []
        unknown: dict[str, None] = {}
        for part in _BLANK_OR_WORD.findall(text):
            for piece in self._split(part, excluded):
                if piece in self._ids:
                    ids.append(self._ids[piece])
                elif not piece.isspace():
                    unknown[piece] = None
        if unknown:
            raise UsageError(
                f"{count_of(len(unknown), 'word')} of the prompt not among the "
                f"{len(self._ids)} tokens of {self.source}: {name_some(unknown, 20)}",
                hint="the model never saw them: leave them out of the prompt",
            )
        return ids

    def _split(self, part: str, excluded: str) -> Iterator[str]:
        """Yield the tokens of a run of blanks or of other characters, the longest first."""
        if self._is_token(part, excluded):
            yield part
            return
        signs = list(part) if part.isspace() else _WORD_OR_SIGN.findall(part)
        start = 0
        while start < len(signs):
            end = min(len(signs), start + self._lengths[0])
            while end > start + 1 and not self._is_token("".join(signs[start:end]), excluded):
                end -= 1
            yield "".join(signs[start:end])
            start = end

    def _is_token(self, text: str, excluded: str) -> bool:
        return text in self._ids and text != excluded


def _are_words(tokens: dict[str, int]) -> bool:
    if any(" " in token for token in tokens):
        return False
    plain = [token for token in tokens if len(token) == 1 or not _MARKER.fullmatch(token)]
    words = sum(len(token) > 1 for token in plain)
    return 0 < words >= len(plain) - words


def _to_utf8(token: str) -> bytes:
    return replace_surrogates(token)[0].encode()


def _locate(folder: Path) -> Path | None:
    path = folder / "meta.pkl"
    return path if is_file(path) else None


def _sniff(path: Path, head: bytes) -> bool:
    return head[:1] == b"\x80" or path.suffix == ".pkl"


def _examine(path: Path | None) -> Found | None:
    """Return what a `meta.pkl` decides; nothing where it has no table and no name."""
    assert path is not None, "a table of characters is known by its path"
    meta = read_meta(path)
    if meta.is_gpt2:
        return Found("gpt2", path, N_VOCAB)
    return Found("char", path, max(meta.tokens) + 1) if meta.tokens else None


def _load(found: Found, vocab_size: int) -> Tokenizer:  # noqa: ARG001
    assert found.path is not None, "a table of characters is known by its path"
    return CharTokenizer(read_meta(found.path).tokens, str(found.path))


KIND = TokenizerKind(
    name="char",
    summary="nanoGPT's meta.pkl: characters or words",
    kept_in=("meta.pkl",),
    examine=_examine,
    load=_load,
    locate=_locate,
    sniff=_sniff,
)
