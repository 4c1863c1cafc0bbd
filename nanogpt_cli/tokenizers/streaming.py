"""Text from tokens as they are drawn, in whole characters."""

from __future__ import annotations

import codecs

from nanogpt_cli.tokenizers.base import Tokenizer


class TextStream:
    """Turns tokens into text one by one; the parts joined are what `decode` gives for all.

    Args:
        tokenizer: whose tokens they are.
        continues: whether tokens came before, so that a separator comes first.
    """

    def __init__(self, tokenizer: Tokenizer, *, continues: bool = False) -> None:
        self._tokenizer = tokenizer
        self._pending = tokenizer.separator if continues else b""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """Return the characters that `token` completes; half a character is held back.

        Raises:
            TokenizerError: no such id.
        """
        data = self._pending + self._tokenizer.token_bytes(token)
        self._pending = self._tokenizer.separator
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return what is left: U+FFFD where the last character stayed half, else nothing."""
        return self._decoder.decode(b"", final=True)
