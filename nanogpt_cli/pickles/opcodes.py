"""The opcodes of pickle protocols 0 to 5 and how their arguments are spelled.

Decoding only: no stack, no memo, no meaning. The machine and the scanner both stand on it.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable

from nanogpt_cli.pickles.values import Malformed

Buffer = bytes | mmap.mmap
ArgumentReader = Callable[[Buffer, int, int], tuple[object, int]]
"""(data, position, end) -> (argument, position after it)."""

MAX_INT_BYTES = 255
"""Longer integers are refused: Python takes quadratic time to print them."""
MAX_LINE = 1 << 20
MAX_NAME = 512

_INT = re.compile(rb"[+-]?[0-9]{1,600}")
_FLOAT = re.compile(rb"[+-]?(?:[0-9.eE+-]{1,64}|inf|nan|infinity)", re.IGNORECASE)
_QUOTED = re.compile(rb"'((?:[^'\\]|\\.)*+)'|\"((?:[^\"\\]|\\.)*+)\"", re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)", re.DOTALL)
_SIMPLE_ESCAPES = {
    b"\\": b"\\",
    b"'": b"'",
    b'"': b'"',
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
}


def decode_utf8(raw: bytes) -> str:
    """Return `raw` as text; lone surrogates are refused, since nothing could print them."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("text that is not UTF-8") from None


def _python2_text(raw: bytes) -> str | bytes:
    """Return a Python 2 str as text where it is UTF-8, else as bytes."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def _raw_unicode(raw: bytes) -> str:
    try:
        text = raw.decode("raw-unicode-escape")
        text.encode("utf-8")
    except UnicodeError:
        raise Malformed("text with a broken escape") from None
    return text


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[code]
    if code[:1] == b"x" and len(code) == 3:
        return bytes([int(code[1:], 16)])
    if code.isdigit() and int(code, 8) < 256:
        return bytes([int(code, 8)])
    raise Malformed("a quoted string with an unknown escape")


def _quoted(raw: bytes) -> str | bytes:
    match = _QUOTED.fullmatch(raw)
    if match is None:
        raise Malformed("a string without its quotes")
    body: bytes = match[1] if match[1] is not None else match[2]
    return _python2_text(_ESCAPE.sub(_unescape, body))


def _decimal(raw: bytes) -> int:
    if not _INT.fullmatch(raw):
        raise Malformed(f"{raw[:20]!r} where an integer should stand")
    return int(raw)


def _int_or_bool(raw: bytes) -> int:
    if raw in (b"00", b"01"):
        return raw == b"01"
    return _decimal(raw)


def _python2_long(raw: bytes) -> int:
    return _decimal(raw[:-1] if raw.endswith(b"L") else raw)


def _text_float(raw: bytes) -> float:
    if not _FLOAT.fullmatch(raw):
        raise Malformed(f"{raw[:20]!r} where a number should stand")
    try:
        return float(raw)
    except ValueError:
        raise Malformed(f"{raw[:20]!r} where a number should stand") from None


def _binary_long(raw: bytes) -> int:
    if len(raw) > MAX_INT_BYTES:
        raise Malformed(f"an integer of {len(raw)} bytes, more than {MAX_INT_BYTES}")
    return int.from_bytes(raw, "little", signed=True)


def _none(_data: Buffer, at: int, _end: int) -> tuple[object, int]:
    return None, at


def _take_line(data: Buffer, at: int, end: int, limit: int) -> tuple[bytes, int]:
    stop = data.find(b"\n", at, min(end, at + limit + 1))
    if stop < 0:
        raise Malformed("a line that does not end")
    return data[at:stop], stop + 1


def _fixed(layout: str) -> ArgumentReader:
    """Return the reader of one number of a fixed width."""
    packed = struct.Struct(layout)

    def read(data: Buffer, at: int, end: int) -> tuple[object, int]:
        after = at + packed.size
        if after > end:
            raise Malformed("the stream ends in the middle of a number")
        return packed.unpack_from(data, at)[0], after

    return read


def _counted(layout: str, convert: Callable[[bytes], object]) -> ArgumentReader:
    """Return the reader of bytes that their length precedes."""
    packed = struct.Struct(layout)

    def read(data: Buffer, at: int, end: int) -> tuple[object, int]:
        start = at + packed.size
        if start > end:
            raise Malformed("the stream ends in the middle of a length")
        length = packed.unpack_from(data, at)[0]
        if length < 0 or length > end - start:
            raise Malformed(f"a length of {length} bytes where {end - start} are left")
        return convert(data[start : start + length]), start + length

    return read


def _line(convert: Callable[[bytes], object]) -> ArgumentReader:
    """Return the reader of text up to the end of its line."""

    def read(data: Buffer, at: int, end: int) -> tuple[object, int]:
        raw, after = _take_line(data, at, end, MAX_LINE)
        return convert(raw), after

    return read


def _dotted(data: Buffer, at: int, end: int) -> tuple[object, int]:
    """Read a module and a name, a line each, as "module.name"."""
    module, at = _take_line(data, at, end, MAX_NAME)
    name, at = _take_line(data, at, end, MAX_NAME)
    return f"{decode_utf8(module)}.{decode_utf8(name)}", at


OPCODES: dict[int, tuple[str, ArgumentReader]] = {
    ord(code): (name, reader)
    for code, name, reader in (
        ("(", "MARK", _none),
        (".", "STOP", _none),
        ("0", "POP", _none),
        ("1", "POP_MARK", _none),
        ("2", "DUP", _none),
        ("F", "FLOAT", _line(_text_float)),
        ("I", "INT", _line(_int_or_bool)),
        ("J", "BININT", _fixed("<i")),
        ("K", "BININT1", _fixed("<B")),
        ("L", "LONG", _line(_python2_long)),
        ("M", "BININT2", _fixed("<H")),
        ("N", "NONE", _none),
        ("P", "PERSID", _line(decode_utf8)),
        ("Q", "BINPERSID", _none),
        ("R", "REDUCE", _none),
        ("S", "STRING", _line(_quoted)),
        ("T", "BINSTRING", _counted("<i", _python2_text)),
        ("U", "SHORT_BINSTRING", _counted("<B", _python2_text)),
        ("V", "UNICODE", _line(_raw_unicode)),
        ("X", "BINUNICODE", _counted("<I", decode_utf8)),
        ("a", "APPEND", _none),
        ("b", "BUILD", _none),
        ("c", "GLOBAL", _dotted),
        ("d", "DICT", _none),
        ("}", "EMPTY_DICT", _none),
        ("e", "APPENDS", _none),
        ("g", "GET", _line(_decimal)),
        ("h", "BINGET", _fixed("<B")),
        ("i", "INST", _dotted),
        ("j", "LONG_BINGET", _fixed("<I")),
        ("l", "LIST", _none),
        ("]", "EMPTY_LIST", _none),
        ("o", "OBJ", _none),
        ("p", "PUT", _line(_decimal)),
        ("q", "BINPUT", _fixed("<B")),
        ("r", "LONG_BINPUT", _fixed("<I")),
        ("s", "SETITEM", _none),
        ("t", "TUPLE", _none),
        (")", "EMPTY_TUPLE", _none),
        ("u", "SETITEMS", _none),
        ("G", "BINFLOAT", _fixed(">d")),
        ("\x80", "PROTO", _fixed("<B")),
        ("\x81", "NEWOBJ", _none),
        ("\x82", "EXT1", _fixed("<B")),
        ("\x83", "EXT2", _fixed("<H")),
        ("\x84", "EXT4", _fixed("<i")),
        ("\x85", "TUPLE1", _none),
        ("\x86", "TUPLE2", _none),
        ("\x87", "TUPLE3", _none),
        ("\x88", "NEWTRUE", _none),
        ("\x89", "NEWFALSE", _none),
        ("\x8a", "LONG1", _counted("<B", _binary_long)),
        ("\x8b", "LONG4", _counted("<i", _binary_long)),
        ("B", "BINBYTES", _counted("<I", bytes)),
        ("C", "SHORT_BINBYTES", _counted("<B", bytes)),
        ("\x8c", "SHORT_BINUNICODE", _counted("<B", decode_utf8)),
        ("\x8d", "BINUNICODE8", _counted("<Q", decode_utf8)),
        ("\x8e", "BINBYTES8", _counted("<Q", bytes)),
        ("\x8f", "EMPTY_SET", _none),
        ("\x90", "ADDITEMS", _none),
        ("\x91", "FROZENSET", _none),
        ("\x92", "NEWOBJ_EX", _none),
        ("\x93", "STACK_GLOBAL", _none),
        ("\x94", "MEMOIZE", _none),
        ("\x95", "FRAME", _fixed("<Q")),
        ("\x96", "BYTEARRAY8", _counted("<Q", bytearray)),
        ("\x97", "NEXT_BUFFER", _none),
        ("\x98", "READONLY_BUFFER", _none),
    )
}
"""Opcode byte -> (name, reader of its argument)."""


def decode(data: Buffer, at: int, end: int) -> tuple[str, object, int]:
    """Return the opcode at `at`, its argument, and the position after both.

    Raises:
        Malformed: no such opcode, or an argument that does not fit before `end`.
    """
    if at >= end:
        raise Malformed("the stream ends without its stop mark")
    entry = OPCODES.get(data[at])
    if entry is None:
        raise Malformed(f"byte {data[at]:#04x} is no opcode")
    name, reader = entry
    argument, after = reader(data, at + 1, end)
    return name, argument, after
