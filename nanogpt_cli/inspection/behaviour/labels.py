"""How a token is shown: its text, with what cannot be seen spelled out. Standard library only."""

from __future__ import annotations

import unicodedata

from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.tokenizers.base import Tokenizer

SPACE = "\N{OPEN BOX}"
NO_TEXT = "(no text)"
"""The label of an id that the model has and the tokenizer lacks, as padded vocabularies do."""

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")
_SHOWN = {" ": SPACE, "\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}


def label_token(tokenizer: Tokenizer, token: int) -> str:
    r"""Return a token as one visible line.

    A space is `␣`, a newline `\n`, a backslash `\\`; bytes that are no whole character are `\xNN`,
    and characters that a terminal obeys or hides are `\xNN` below 128 and `\uNNNN` above.
    """
    data = token_bytes(tokenizer, token)
    return NO_TEXT if data is None else label_bytes(data)


def label_bytes(data: bytes) -> str:
    """Return bytes as `label_token` shows them."""
    text = data.decode("utf-8", errors="surrogateescape")
    return "".join(_show(char) for char in text)


def _show(char: str) -> str:
    if char in _SHOWN:
        return _SHOWN[char]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8, as surrogateescape carries it
        return f"\\x{code - 0xDC00:02x}"
    if unicodedata.category(char) not in _HIDDEN:
        return char
    width = 2 if code < 0x80 else 4 if code < 0x10000 else 8
    return f"\\{'xuU'[width // 4]}{code:0{width}x}"


def token_bytes(tokenizer: Tokenizer, token: int) -> bytes | None:
    """Return the bytes of a token, or None where the tokenizer has none."""
    try:
        return tokenizer.token_bytes(token)
    except TokenizerError:
        return None
