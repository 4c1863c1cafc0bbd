"""What every tokenizer can do, and what a registry entry is. The registry is the package's own.

Standard library only: what is heavy about a tokenizer is imported when its entry loads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nanogpt_cli.errors import TokenizerError, UsageError, count_of

END_OF_TEXT = "<|endoftext|>"

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_SURROGATE = re.compile("[\ud800-\udfff]")

_MOST_CHARACTERS_NAMED = 20


class Tokenizer(Protocol):
    """Text to ids and back.

    Attributes:
        name: the TOKENIZERS entry it came from ("gpt2", "char", "hf", "tiktoken", "ids").
        source: where its table lies, for people: a path, or "bundled".
        n_vocab: one more than the highest id it knows.
        end_of_text: id of the end-of-text token, or None.
        separator: bytes printed between two tokens; empty for all but `ids` and word tables.
        is_bpe: whether tokens are pieces of words (notes about trailing spaces rest on it).
    """

    name: str
    source: str
    n_vocab: int
    end_of_text: int | None
    separator: bytes
    is_bpe: bool

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the ids of `text`; with `special`, `<|endoftext|>` in it is the token.

        Lone surrogates become U+FFFD; `replace_surrogates` counts them beforehand.

        Raises:
            UsageError: characters that the table lacks, all of them listed.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`; bytes that are no UTF-8 become U+FFFD."""

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token; they need not be whole characters.

        Raises:
            TokenizerError: no such id.
        """

    def known_ids(self) -> Sequence[int]:
        """Return the ids that the table has, ascending (a range where there are no holes)."""


@dataclass(frozen=True)
class Found:
    """A tokenizer that was found and not yet loaded.

    Args:
        name: its entry in TOKENIZERS.
        path: the file or folder that decided; None where only the name or the size did.
        n_vocab: one more than the highest id of its table; None where any id will do (`ids`).
        looked_in: the places tried before it, for people.
        notes: what a user should hear about the finding.
    """

    name: str
    path: Path | None
    n_vocab: int | None
    looked_in: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TokenizerKind:
    """An entry of TOKENIZERS.

    Args:
        name: what `--tokenizer` calls it.
        summary: one line for people.
        kept_in: the files that hold its table, as the list of places names them.
        examine: what is at a path, or None where a well-formed file leaves the question open.
        load: the tokenizer, for a model of so many ids. Heavy imports happen here.
        locate: the table's path in a folder, or None. Looks at names alone.
        sniff: whether a file that begins with these bytes is such a table; where they tell
            nothing, by its name.
    """

    name: str
    summary: str
    kept_in: tuple[str, ...]
    examine: Callable[[Path | None], Found | None]
    load: Callable[[Found, int], Tokenizer]
    locate: Callable[[Path], Path | None] = lambda _folder: None
    sniff: Callable[[Path, bytes], bool] = lambda _path, _head: False


class TokenizerMissingError(TokenizerError):
    """No tokenizer was found; `looked_in` says where."""

    def __init__(self, message: str, hint: str, looked_in: tuple[str, ...]) -> None:
        super().__init__(message, hint)
        self.looked_in = looked_in


def replace_surrogates(text: str) -> tuple[str, int]:
    """Return `text` with each lone surrogate made U+FFFD, and how many there were."""
    return _SURROGATE.subn(REPLACEMENT, text)


def decode_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return the text of `ids`: their bytes with the separator between, read as UTF-8."""
    joined = tokenizer.separator.join(tokenizer.token_bytes(token) for token in ids)
    return joined.decode("utf-8", errors="replace")


def start_id(tokenizer: Tokenizer) -> int:
    """Return the id that an empty prompt starts from.

    That is end-of-text where there is one, else a newline, else the table's lowest id.
    """
    if tokenizer.end_of_text is not None:
        return tokenizer.end_of_text
    try:
        ids = tokenizer.encode("\n")
    except UsageError:
        ids = []
    if len(ids) == 1 and tokenizer.token_bytes(ids[0]) == b"\n":
        return ids[0]
    return tokenizer.known_ids()[0]


def require_bytes(tokenizer: Tokenizer, text: str, lacking: frozenset[int]) -> None:
    """Refuse a text that needs bytes for which a byte-level table has no token.

    Raises:
        UsageError: the characters that hold such bytes, all of them listed.
    """
    if lacking.isdisjoint(text.encode()):
        return
    unknown = [each for each in dict.fromkeys(text) if not lacking.isdisjoint(each.encode())]
    raise UsageError(
        f"{count_of(len(unknown), 'character')} of the prompt cannot be spelled with the "
        f"{tokenizer.n_vocab} tokens of {tokenizer.source}: {name_characters(unknown)}",
        hint="the model never saw them: leave them out of the prompt",
    )


def missing_id(tokenizer: Tokenizer, token: int) -> TokenizerError:
    """Return the error for an id that `tokenizer` lacks."""
    last = tokenizer.n_vocab - 1
    return TokenizerError(
        f"no token has id {token}: {tokenizer.source} has ids 0 to {last}",
        hint="the tokenizer is not the model's: see --tokenizer",
    )


def name_characters(characters: Iterable[str]) -> str:
    """Return each character as repr and U+XXXX, at most twenty, then the count of the rest."""
    listed = list(characters)
    shown = [f"{each!r} U+{ord(each):04X}" for each in listed[:_MOST_CHARACTERS_NAMED]]
    rest = len(listed) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
