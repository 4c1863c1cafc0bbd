"""The written list: every call that a pickle may make, and what it makes instead.

Each entry takes the arguments as one tuple and returns plain values or a `Record`. None of them
is, imports or looks up the thing it is named after.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath, PureWindowsPath

from nanogpt_cli.pickles.keys import KeyGuard
from nanogpt_cli.pickles.values import Global, Malformed, Record

Arguments = tuple[object, ...]
Call = Callable[[Arguments], object]

_ALIASES = {
    "__builtin__.": "builtins.",
    "copy_reg.": "copyreg.",
    "numpy._core.": "numpy.core.",
    "pathlib._local.": "pathlib.",
}
_ENCODINGS = ("latin1", "latin-1", "utf-8", "utf8", "ascii")
_NUMBERS = {
    "b1": "?",
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
    "f2": "e",
    "f4": "f",
    "f8": "d",
}
"""numpy's type code -> struct's."""


def canonical(name: str) -> str:
    """Return `name` as Python 3 and numpy 1 spell it."""
    for old, new in _ALIASES.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return name


def _bad(args: Arguments) -> Malformed:
    kinds = ", ".join(type(arg).__name__ for arg in args[:5])
    return Malformed(f"arguments that do not fit ({kinds})")


def _mapping(args: Arguments) -> object:
    """Return a dict of at most one argument: a dict, or a list of pairs."""
    if not args:
        return {}
    if len(args) != 1:
        raise _bad(args)
    if isinstance(args[0], dict):
        return dict(args[0])
    if not isinstance(args[0], list | tuple):
        raise _bad(args)
    guard = KeyGuard()
    made: dict[object, object] = {}
    for pair in args[0]:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise Malformed("an entry that is no pair")
        guard.admit(pair[0])
        made[pair[0]] = pair[1]
    return made


def _default_dict(args: Arguments) -> object:
    if args and not (args[0] is None or isinstance(args[0], Global)):
        raise _bad(args)
    return _mapping(args[1:])


def _members(args: Arguments) -> set[object]:
    if not args:
        return set()
    if len(args) != 1 or not isinstance(args[0], list | tuple | set | frozenset):
        raise _bad(args)
    guard = KeyGuard()
    for member in args[0]:
        guard.admit(member)
    return set(args[0])


def _frozen_members(args: Arguments) -> object:
    return frozenset(_members(args))


def _sequence(args: Arguments) -> object:
    """Return a list; deque's second argument, its longest length, is dropped."""
    if not args:
        return []
    if len(args) > 2 or not isinstance(args[0], list | tuple):
        raise _bad(args)
    return list(args[0])


def _encode(args: Arguments) -> object:
    """Return the bytes that `_codecs.encode` would make, latin-1 or UTF-8 alone."""
    if len(args) != 2 or not isinstance(args[0], str):
        raise _bad(args)
    encoding = args[1]
    if not isinstance(encoding, str) or encoding not in _ENCODINGS:
        raise Malformed(f"an encoding that is none of {', '.join(_ENCODINGS)}")
    try:
        return args[0].encode(encoding)
    except UnicodeEncodeError:
        raise Malformed(f"text that is no {encoding}") from None


def _byte_array(args: Arguments) -> object:
    if not args:
        return bytearray()
    if len(args) == 1 and isinstance(args[0], bytes):
        return bytearray(args[0])
    encoded = _encode(args)
    assert isinstance(encoded, bytes), "encoding gives bytes"
    return bytearray(encoded)


def _no_bytes(args: Arguments) -> object:
    if args:
        raise _bad(args)
    return b""


def _complex(args: Arguments) -> object:
    if len(args) != 2 or not all(type(arg) in (int, float) for arg in args):
        raise _bad(args)
    try:
        return complex(*(float(arg) for arg in args if isinstance(arg, int | float)))
    except OverflowError:
        raise _bad(args) from None


def _path(flavour: type[PurePosixPath] | type[PureWindowsPath]) -> Call:
    """Return the call that joins the parts of a path into a str."""

    def join(args: Arguments) -> object:
        parts = [arg for arg in args if isinstance(arg, str)]
        if len(parts) != len(args):
            raise _bad(args)
        return str(flavour(*parts))

    return join


def _namespace(args: Arguments) -> object:
    if len(args) > 1 or (args and not isinstance(args[0], dict)):
        raise _bad(args)
    return Record("types.SimpleNamespace", state=args[0] if args else {})


def _reconstructor(args: Arguments) -> object:
    """Return the object of `copyreg._reconstructor(C, object, None)`, a record."""
    if len(args) != 3 or not isinstance(args[0], Global) or args[2] is not None:
        raise _bad(args)
    base = args[1]
    if not isinstance(base, Global) or canonical(base.name) != "builtins.object":
        raise _bad(args)
    return Record(args[0].name)


def _recorded(name: str) -> Call:
    """Return the call that keeps the arguments of a constructor and constructs nothing."""

    def keep(args: Arguments) -> object:
        return Record(name, args=args)

    return keep


def _dtype_code(dtype: object) -> tuple[str, str]:
    """Return (type code, byte order) of a recorded numpy dtype."""
    if not isinstance(dtype, Record) or dtype.class_name != "numpy.dtype" or not dtype.args:
        raise Malformed("a numpy scalar without its dtype")
    code = dtype.args[0]
    order = "<"
    if isinstance(dtype.state, tuple) and len(dtype.state) > 1 and dtype.state[1] == ">":
        order = ">"
    if not isinstance(code, str):
        raise Malformed("a numpy dtype without its code")
    return code, order


def _scalar(args: Arguments) -> object:
    """Return the Python number or text that a numpy scalar stands for."""
    if len(args) != 2:
        raise _bad(args)
    code, order = _dtype_code(args[0])
    # Python 2 wrote the bytes as a str, which came here as UTF-8 where that was possible.
    raw = args[1].encode() if isinstance(args[1], str) else args[1]
    if not isinstance(raw, bytes):
        raise _bad(args)
    if code in _NUMBERS:
        return _unpack(order + _NUMBERS[code], raw)[0]
    if code in ("c8", "c16"):
        return complex(*_unpack(order + ("2f" if code == "c8" else "2d"), raw))
    if code[:1] == "S":
        return raw
    if code[:1] == "U":
        return _utf32(raw, order)
    return Record("numpy.scalar", args=(code, raw))


def _unpack(layout: str, raw: bytes) -> tuple[float, ...]:
    if len(raw) != struct.calcsize(layout):
        raise Malformed(f"a numpy scalar of {len(raw)} bytes instead of {struct.calcsize(layout)}")
    return struct.unpack(layout, raw)


def _utf32(raw: bytes, order: str) -> str:
    try:
        return raw.decode("utf-32-le" if order == "<" else "utf-32-be").rstrip("\0")
    except UnicodeDecodeError:
        raise Malformed("a numpy text that is no UTF-32") from None


KNOWN_CALLS: Mapping[str, Call] = {
    "_codecs.encode": _encode,
    "argparse.Namespace": _recorded("argparse.Namespace"),
    "builtins.bytearray": _byte_array,
    "builtins.bytes": _no_bytes,
    "builtins.complex": _complex,
    "builtins.dict": _mapping,
    "builtins.frozenset": _frozen_members,
    "builtins.list": _sequence,
    "builtins.range": _recorded("builtins.range"),
    "builtins.set": _members,
    "builtins.slice": _recorded("builtins.slice"),
    "builtins.xrange": _recorded("builtins.range"),
    "collections.Counter": _mapping,
    "collections.OrderedDict": _mapping,
    "collections.defaultdict": _default_dict,
    "collections.deque": _sequence,
    "copyreg._reconstructor": _reconstructor,
    "datetime.date": _recorded("datetime.date"),
    "datetime.datetime": _recorded("datetime.datetime"),
    "datetime.timedelta": _recorded("datetime.timedelta"),
    "datetime.timezone": _recorded("datetime.timezone"),
    "decimal.Decimal": _recorded("decimal.Decimal"),
    "fractions.Fraction": _recorded("fractions.Fraction"),
    "numpy.core.multiarray._reconstruct": _recorded("numpy.ndarray"),
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _recorded("numpy.ndarray"),
    "numpy.dtype": _recorded("numpy.dtype"),
    "pathlib.Path": _path(PurePosixPath),
    "pathlib.PosixPath": _path(PurePosixPath),
    "pathlib.PurePath": _path(PurePosixPath),
    "pathlib.PurePosixPath": _path(PurePosixPath),
    "pathlib.PureWindowsPath": _path(PureWindowsPath),
    "pathlib.WindowsPath": _path(PureWindowsPath),
    "types.SimpleNamespace": _namespace,
}
"""Canonical name -> what stands in for the call."""

KNOWN_NAMES = frozenset({"builtins.object", "builtins.int", "builtins.float", "builtins.str"})
"""Names of no consequence that the known calls take as arguments."""
