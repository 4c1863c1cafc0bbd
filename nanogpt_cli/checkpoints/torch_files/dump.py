"""Writing a torch file's pickle: any tree of plain values, names, records and tensors.

Protocol 2 with the opcodes that torch's own weights-only reader knows. A class or a function is
written by its name alone and is never looked up.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from nanogpt_cli.checkpoints.contents import DTYPE_BYTES, TensorInfo
from nanogpt_cli.checkpoints.plans import NewTensor, Stored
from nanogpt_cli.checkpoints.torch_files.rebuild import STORAGE_DTYPES
from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.pickles import Global, Record

ORDERED_DICT = "collections.OrderedDict"

_STORAGE_CLASSES = {
    dtype: f"torch.{name}" for name, dtype in STORAGE_DTYPES.items() if dtype in DTYPE_BYTES
}
_BATCH = 1000
"""Entries a group, as Python's own pickler has it."""


@dataclass(eq=False, slots=True)
class Called(Record):
    """What a call made, to be written as that call; `class_name` is the function's name."""


class Constant(str):
    """A value that is written as a name; `name` is "module.name"."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, value: str, name: str) -> Constant:
        made = super().__new__(cls, value)
        made.name = name
        return made


class Size(tuple[int, ...]):
    """A shape that is written as torch.Size."""

    __slots__ = ()


def ordered(entries: dict[object, object]) -> Called:
    """Return a dict to be written as an OrderedDict, as state dicts are."""
    return Called(ORDERED_DICT, items=entries)


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in the file.

    Args:
        key: names the storage.
        storage_numel: elements of the whole storage.
        offset: elements before the tensor's first.
    """

    key: str
    storage_numel: int
    offset: int


def dump(root: object, place: Callable[[Stored], Place]) -> bytes:
    """Return the pickle of a tree.

    Args:
        root: None, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set,
            frozenset, Global, Record, TensorInfo, NewTensor, nested; nothing holds itself.
        place: says where a tensor lies.

    Raises:
        CheckpointError: a value of another type.
    """
    writer = _Writer(place)
    writer.value(root)
    return b"\x80\x02" + b"".join(writer.out) + b"."


class _Writer:
    def __init__(self, place: Callable[[Stored], Place]) -> None:
        self.out: list[bytes] = []
        self._place = place
        self._memo: dict[object, int] = {}
        self._kept: list[object] = []

    def value(self, value: object) -> None:
        """Write one value, or a reference to it where it was written before."""
        key = value if type(value) is str else id(value)
        if self._recall(key):
            return
        write = _WRITERS.get(type(value))
        if write is None:
            raise CheckpointError(
                f"a value of type {type(value).__name__} cannot be written to a torch file",
                "load it with torch where you trust it, delete that entry, and save it again",
            )
        write(self, value)

    def _recall(self, key: object) -> bool:
        index = self._memo.get(key)
        if index is None:
            return False
        self.out.append(_indexed(b"h", b"j", index))
        return True

    def _remember(self, key: object, value: object) -> None:
        """Give what was just written a number; it is kept, or its id would be another's."""
        self._memo[key] = index = len(self._memo)
        self._kept.append(value)
        self.out.append(_indexed(b"q", b"r", index))

    def _name(self, dotted: str) -> None:
        key = (Global, dotted)
        if self._recall(key):
            return
        if not dotted.isprintable():  # a line break would let a name smuggle opcodes in
            raise CheckpointError(
                f"a class in the file has the name {dotted[:80]!r}",
                hint="for its weights alone: nanogpt convert CKPT -o weights.safetensors",
            )
        module, _, name = dotted.rpartition(".")
        self.out.append(b"c" + f"{module}\n{name}\n".encode())
        self._remember(key, None)

    def _group(self, values: Iterable[object]) -> None:
        """Write a fresh tuple, which nothing else refers to."""
        self.out.append(b"(")
        for value in values:
            self.value(value)
        self.out.append(b"t")

    def _call(self, dotted: str, *args: object) -> None:
        self._name(dotted)
        self._group(args)
        self.out.append(b"R")

    # Plain values

    def write_none(self, _: object) -> None:
        self.out.append(b"N")

    def write_bool(self, value: bool) -> None:
        self.out.append(b"\x88" if value else b"\x89")

    def write_int(self, value: int) -> None:
        if 0 <= value < 1 << 8:
            self.out.append(struct.pack("<cB", b"K", value))
        elif 0 <= value < 1 << 16:
            self.out.append(struct.pack("<cH", b"M", value))
        elif -(1 << 31) <= value < 1 << 31:
            self.out.append(struct.pack("<ci", b"J", value))
        else:
            raw = value.to_bytes((value.bit_length() >> 3) + 1, "little", signed=True)
            self.out.append(struct.pack("<cB", b"\x8a", len(raw)) + raw)

    def write_float(self, value: float) -> None:
        self.out.append(struct.pack(">cd", b"G", value))

    def write_complex(self, value: complex) -> None:
        self._call("__builtin__.complex", value.real, value.imag)

    def write_str(self, value: str) -> None:
        raw = value.encode("utf-8", "surrogatepass")
        self.out.append(struct.pack("<cI", b"X", len(raw)) + raw)
        self._remember(value, value)

    def write_bytes(self, value: bytes) -> None:
        self._call("_codecs.encode", value.decode("latin1"), "latin1")
        self._remember(id(value), value)

    def write_bytearray(self, value: bytearray) -> None:
        self._call("__builtin__.bytearray", bytes(value))
        self._remember(id(value), value)

    def write_constant(self, value: Constant) -> None:
        self._name(value.name)

    def write_name(self, value: Global) -> None:
        self._name(value.name)

    # Containers

    def write_list(self, value: list[object]) -> None:
        self.out.append(b"]")
        self._remember(id(value), value)
        self._entries(value)

    def write_dict(self, value: dict[object, object]) -> None:
        self.out.append(b"}")
        self._remember(id(value), value)
        self._entries(value)

    def write_tuple(self, value: tuple[object, ...]) -> None:
        if not value:
            self.out.append(b")")
            return
        self._group(value)
        self._remember(id(value), value)

    def write_size(self, value: Size) -> None:
        self._call("torch.Size", tuple(value))
        self._remember(id(value), value)

    def write_set(self, value: set[object]) -> None:
        self._call("__builtin__.set", sorted(value, key=repr))
        self._remember(id(value), value)

    def write_frozenset(self, value: frozenset[object]) -> None:
        self._call("__builtin__.frozenset", sorted(value, key=repr))
        self._remember(id(value), value)

    def _entries(self, entries: list[object] | dict[object, object]) -> None:
        """Write what fills the empty list or dict on the stack, in groups."""
        pairs = entries.items() if isinstance(entries, dict) else ((entry,) for entry in entries)
        close = b"u" if isinstance(entries, dict) else b"e"
        for count, pair in enumerate(pairs):
            if count % _BATCH == 0:
                self.out.append(close + b"(" if count else b"(")
            for part in pair:
                self.value(part)
        if entries:
            self.out.append(close)

    # Objects

    def write_record(self, value: Record) -> None:
        """Write an object made by its class without arguments."""
        self._name(value.class_name)
        self.out.append(b")\x81")
        self._finish(value)

    def write_called(self, value: Called) -> None:
        """Write an object made by a call."""
        self._call(value.class_name, *value.args)
        self._finish(value)

    def _finish(self, value: Record) -> None:
        self._remember(id(value), value)
        if value.items is not None:
            self._entries(value.items)
        if value.state is not None:
            self.value(value.state)
            self.out.append(b"b")

    def write_tensor(self, value: Stored) -> None:
        """Write a tensor as torch does: a call that rebuilds it from its storage."""
        place = self._place(value)
        self._name("torch._utils._rebuild_tensor_v2")
        self.out.append(b"((")
        self.value("storage")
        self._name(_STORAGE_CLASSES[value.dtype])
        for part in (place.key, "cpu", place.storage_numel):
            self.value(part)
        self.out.append(b"tQ")
        self.write_int(place.offset)
        self._group(value.shape)
        self._group(value.stride)
        self.write_bool(value.requires_grad)
        self._name(ORDERED_DICT)
        self.out.append(b")RtR")
        self._remember(id(value), value)


def _indexed(short: bytes, long: bytes, index: int) -> bytes:
    return short + struct.pack("<B", index) if index < 256 else long + struct.pack("<I", index)


_WRITERS: dict[type, Callable[[_Writer, Any], None]] = {
    type(None): _Writer.write_none,
    bool: _Writer.write_bool,
    int: _Writer.write_int,
    float: _Writer.write_float,
    complex: _Writer.write_complex,
    str: _Writer.write_str,
    bytes: _Writer.write_bytes,
    bytearray: _Writer.write_bytearray,
    list: _Writer.write_list,
    tuple: _Writer.write_tuple,
    dict: _Writer.write_dict,
    set: _Writer.write_set,
    frozenset: _Writer.write_frozenset,
    Constant: _Writer.write_constant,
    Size: _Writer.write_size,
    Global: _Writer.write_name,
    Record: _Writer.write_record,
    Called: _Writer.write_called,
    TensorInfo: _Writer.write_tensor,
    NewTensor: _Writer.write_tensor,
}
"""A value's type -> how it is written."""
