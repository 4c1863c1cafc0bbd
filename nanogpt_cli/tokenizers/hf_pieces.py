"""From the spelling of a token in a `tokenizer.json` to the bytes it stands for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.tokenizers.base import replace_surrogates

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_glyphs() -> dict[str, int]:
    """Return the byte that each character of the byte-level alphabet stands for.

    Printable Latin-1 stands for itself; the others are U+0100 onwards, in order.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    glyphs = {chr(byte): byte for byte in plain}
    return glyphs | {chr(0x100 + place): byte for place, byte in enumerate(others)}


GLYPHS = byte_glyphs()


@dataclass(frozen=True)
class Pieces:
    """How a table spells its tokens.

    Args:
        to_bytes: from spelling to bytes.
        separator: bytes between two tokens.
        is_byte_level: whether every byte has a spelling of its own.
        is_bpe: whether tokens are pieces of words.
    """

    to_bytes: Callable[[str], bytes]
    separator: bytes = b""
    is_byte_level: bool = False
    is_bpe: bool = True


BYTE_LEVEL = Pieces(lambda piece: _from_glyphs(piece), is_byte_level=True)


def choose_pieces(pipeline: dict[str, object], source: str) -> Pieces:
    """Return how the tokens of a `tokenizer.json` are spelled.

    Raises:
        TokenizerError: its kind is not known here, by name.
    """
    model = pipeline["model"]
    assert isinstance(model, dict), "checked when it was read"
    steps = [*_steps(pipeline.get("pre_tokenizer")), *_steps(pipeline.get("decoder"))]
    kinds = [step.get("type") for step in steps]
    if "ByteLevel" in kinds:
        return BYTE_LEVEL
    if model.get("type") == "WordPiece":
        prefix = _text(model.get("continuing_subword_prefix"), "##")
        return Pieces(lambda piece: _from_word_piece(piece, prefix))
    blank = _blank_mark([*steps, *_steps(pipeline.get("normalizer"))])
    if blank:
        return Pieces(lambda piece: _from_marked(piece, blank))
    if "BPEDecoder" in kinds:
        suffix = next(_text(step.get("suffix"), "</w>") for step in steps if "suffix" in step)
        return Pieces(lambda piece: _to_utf8(piece.replace(suffix, " ")))
    if model.get("type") == "WordLevel" and pipeline.get("decoder") is None:
        return Pieces(_to_utf8, separator=b" ", is_bpe=False)
    decoder = next(_steps(pipeline.get("decoder")), {}).get("type", "none")
    raise TokenizerError(
        f"{source} is of a kind not known here: model {model.get('type')!r}, decoder {decoder!r}",
        hint="give --tokenizer ids to work with bare token ids",
    )


def _steps(step: object, depth: int = 4) -> Iterator[dict[str, object]]:
    """Yield the steps of a pipeline's part, which may be one, none or a nested sequence."""
    if not isinstance(step, dict):
        return
    yield step
    for key in ("pretokenizers", "decoders", "normalizers"):
        parts = step.get(key)
        for part in parts if isinstance(parts, list) and depth else ():
            yield from _steps(part, depth - 1)


def _blank_mark(steps: list[dict[str, object]]) -> str:
    """Return the character that stands for a space, or nothing where none does."""
    for step in steps:
        if step.get("type") == "Metaspace":
            return _text(step.get("replacement"), "▁")
        if "▁" in (step.get("prepend"), step.get("content")):
            return "▁"
    return ""


def _from_glyphs(piece: str) -> bytes:
    if all(sign in GLYPHS for sign in piece):
        return bytes(GLYPHS[sign] for sign in piece)
    return _to_utf8(piece)


def _from_word_piece(piece: str, prefix: str) -> bytes:
    return _to_utf8(piece[len(prefix) :] if piece.startswith(prefix) else " " + piece)


def _from_marked(piece: str, blank: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else _to_utf8(piece.replace(blank, " "))


def _to_utf8(text: str) -> bytes:
    return replace_surrogates(text)[0].encode()


def _text(value: object, default: str) -> str:
    return value if isinstance(value, str) and value else default
