"""How a token is shown: its text, with what cannot be seen spelled out. Standard library only."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from nanogpt_cli.errors import TokenizerError, UsageError, name_some
from nanogpt_cli.tokenizers.base import Tokenizer

SPACE = "\N{OPEN BOX}"
NO_TEXT = "(no text)"
"""The label of an id that the model has and the tokenizer lacks, as padded vocabularies do."""

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")
_SHOWN = {" ": SPACE, "\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}


@dataclass(frozen=True)
class Token:
    """One token of a text or of the vocabulary.

    Args:
        id: its row of wte.
        text: decoded; bytes that are no whole character became U+FFFD.
        bytes: as numbers; empty where the tokenizer has no text for it.
        label: one visible line, as `label_token` makes it.
    """

    id: int
    text: str
    bytes: tuple[int, ...]
    label: str


def spell_token(tokenizer: Tokenizer, token: int) -> Token:
    """Return what there is to say of a token."""
    data = token_bytes(tokenizer, token)
    text = (data or b"").decode("utf-8", errors="replace")
    return Token(token, text, tuple(data or b""), label_token(tokenizer, token))


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


def show_text(text: str) -> str:
    r"""Return a text to be read: spaces and lines as they are, what else is hidden as a label's.

    A backslash stays one: this is not to be read back.
    """
    return "".join(char if char in " \n\t\\" else _show(char) for char in text)


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


def find_token(tokenizer: Tokenizer, text: str, vocab_size: int) -> int:
    """Return the one token that a text is, which the model has.

    Raises:
        UsageError: it is none, or several, or one that the model lacks.
    """
    ids = tokenizer.encode(text)
    if len(ids) != 1:
        labels = name_some(label_token(tokenizer, token) for token in ids)
        made = f"{len(ids)} tokens: {labels}" if ids else "no token"
        raise UsageError(
            f"{text!r} is {made}",
            hint="give one token; a space before a word is often a part of it",
        )
    if ids[0] >= vocab_size:
        raise UsageError(
            f"{text!r} is id {ids[0]}, and the model's {vocab_size} ids end at {vocab_size - 1}",
            hint="give another token, or the model's own --tokenizer",
        )
    return ids[0]


def token_bytes(tokenizer: Tokenizer, token: int) -> bytes | None:
    """Return the bytes of a token, or None where the tokenizer has none."""
    try:
        return tokenizer.token_bytes(token)
    except TokenizerError:
        return None
