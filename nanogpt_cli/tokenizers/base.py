"""What every tokenizer can do. The registry is in `nanogpt_cli.tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


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
