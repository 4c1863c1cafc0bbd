"""Token ids as text: the prompt and the output are numbers with spaces between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from nanogpt_cli.errors import UsageError
from nanogpt_cli.tokenizers.base import Found, Tokenizer, TokenizerKind, decode_ids, missing_id

_DECIMAL = re.compile(r"[0-9]{1,18}")


class IdsTokenizer:
    """Ids as they are; every id that the model has is known."""

    name = "ids"
    source = "the text, as token ids"
    end_of_text: int | None = None
    separator = b" "
    is_bpe = False

    def __init__(self, n_vocab: int) -> None:
        self.n_vocab = n_vocab

    def encode(self, text: str, *, special: bool = True) -> list[int]:  # noqa: ARG002
        """Return the ids that `text` spells.

        Raises:
            UsageError: a word that is no id, with its place.
        """
        words = text.split()
        for place, word in enumerate(words, start=1):
            if not _DECIMAL.fullmatch(word):
                raise UsageError(
                    f"word {place} of the prompt, {word[:40]!r}, is no token id",
                    hint="with --tokenizer ids a prompt is numbers with spaces between: '5 7 2'",
                )
        return [int(word) for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        """Return `ids` with spaces between."""
        return decode_ids(self, ids)

    def token_bytes(self, token: int) -> bytes:
        """Return an id's digits.

        Raises:
            TokenizerError: the model has no such id.
        """
        if not 0 <= token < self.n_vocab:
            raise missing_id(self, token)
        return b"%d" % token

    def known_ids(self) -> Sequence[int]:
        """Return every id of the model."""
        return range(self.n_vocab)


def _examine(path: Path | None) -> Found:
    return Found("ids", path, None)


def _load(found: Found, vocab_size: int) -> Tokenizer:  # noqa: ARG001
    return IdsTokenizer(vocab_size)


KIND = TokenizerKind(
    name="ids",
    summary="token ids with spaces between, in and out",
    kept_in=(),
    examine=_examine,
    load=_load,
)
