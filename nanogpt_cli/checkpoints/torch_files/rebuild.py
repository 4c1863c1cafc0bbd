"""What torch's pickles call: storages, dtypes, and the functions that rebuild tensors from them.

Each becomes a TensorInfo whose extent was checked against its storage. The table at the bottom
is all that a `.pt` file may call beside what `nanogpt_cli.pickles` knows by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nanogpt_cli.checkpoints.contents import DTYPE_BYTES, TensorInfo
from nanogpt_cli.pickles import Arguments, Call, Global, Malformed, Pickle

MAX_AXES = 64
MAX_KEY = 256
MAX_SIZE = 1 << 62
SPARE_EXPANSION = 16 << 20
"""Bytes that a tensor of repeated elements may have beyond those of its storage."""

STORAGE_DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "qint8",
    "QInt32Storage": "qint32",
    "QUInt8Storage": "quint8",
}
DTYPE_ALIASES = {"double": "float64", "float": "float32", "half": "float16", "long": "int64"} | {
    "int": "int32",
    "short": "int16",
}
OTHER_DTYPES = (
    *("complex32", "complex64", "complex128", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("qint8", "qint32", "quint8"),
)


@dataclass(frozen=True)
class StorageType:
    """A class of storages.

    Args:
        dtype: of its elements; None for untyped bytes.
    """

    dtype: str | None


@dataclass(frozen=True)
class Storage:
    """Where a run of bytes lies.

    Args:
        key: names the storage within the file.
        dtype: of its elements; None for untyped bytes.
        path: the file.
        offset: bytes from its start, or from the member's.
        nbytes: how many.
        member: name of a compressed archive member, or "".
    """

    key: str
    dtype: str | None
    path: Path
    offset: int
    nbytes: int
    member: str = ""


def element_bytes(dtype: str | None) -> int:
    """Return bytes an element, one for untyped storages.

    Raises:
        Malformed: a type that no model here can have.
    """
    if dtype is None:
        return 1
    if dtype not in DTYPE_BYTES:
        raise Malformed(
            f"a tensor of type {dtype!r}",
            f"no model here has one; the types that can be read are {', '.join(DTYPE_BYTES)}",
        )
    return DTYPE_BYTES[dtype]


def is_count(value: object) -> bool:
    """Whether `value` is an int, no bool, that a size or an offset can be."""
    return type(value) is int and 0 <= value < MAX_SIZE


def read_identity(identity: object, length: int) -> tuple[StorageType, str, int, object]:
    """Return (type, key, elements, the rest) of a storage's persistent id of `length` parts.

    Raises:
        Malformed: it is no such id.
    """
    if not isinstance(identity, tuple) or len(identity) != length or identity[0] != "storage":
        raise Malformed("a reference to data that is no torch storage")
    kind, key, _, numel = identity[1:5]
    if not isinstance(kind, StorageType):
        raise Malformed(f"a storage of an unknown class, {_class_name(kind)}")
    if not isinstance(key, str) or len(key) > MAX_KEY or not is_count(numel):
        raise Malformed("a storage without a key or a length")
    return kind, key, numel, identity[5:]


def _class_name(kind: object) -> str:
    return repr(kind.name) if isinstance(kind, Global) else type(kind).__name__


def _counts(value: object) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or len(value) > MAX_AXES:
        raise Malformed(f"a tensor whose shape is a {type(value).__name__}, or too long")
    counts = tuple(part for part in value if isinstance(part, int) and is_count(part))
    if len(counts) != len(value):
        raise Malformed("a tensor with a size or a stride that is no count")
    return counts


def _rebuild(args: Arguments, dtype: object = None) -> TensorInfo:
    """Return the tensor of `_rebuild_tensor(storage, offset, size, stride)`."""
    storage, offset, size, stride = args
    if not isinstance(storage, Storage) or not isinstance(offset, int) or not is_count(offset):
        raise Malformed("a tensor without its storage or its offset")
    shape, steps = _counts(size), _counts(stride)
    kind = storage.dtype if dtype is None else dtype
    if len(shape) != len(steps) or not isinstance(kind, str):
        raise Malformed("a tensor whose strides or type do not fit its shape")
    info = TensorInfo(
        dtype=kind,
        shape=shape,
        stride=steps,
        path=storage.path,
        offset=storage.offset + offset * element_bytes(kind),
        storage=storage.key,
        storage_bytes=storage.nbytes,
        member=storage.member,
    )
    _check_extent(info, offset)
    return info


def _check_extent(info: TensorInfo, offset: int) -> None:
    """Raise Malformed unless every element lies within the storage."""
    last = offset - 1 if info.numel == 0 else offset
    if info.numel:
        last += sum((size - 1) * step for size, step in zip(info.shape, info.stride, strict=True))
    needed = (last + 1) * DTYPE_BYTES[info.dtype]
    if needed > info.storage_bytes:
        raise Malformed(
            f"a tensor of shape {list(info.shape)} that needs {needed:,} bytes "
            f"of a storage of {info.storage_bytes:,}"
        )
    if info.nbytes > info.storage_bytes + SPARE_EXPANSION:
        raise Malformed(
            f"a tensor of shape {list(info.shape)} that repeats {info.storage_bytes:,} bytes "
            f"into {info.nbytes:,}"
        )


def _rebuild_tensor(args: Arguments) -> object:
    if len(args) != 4:
        raise Malformed(f"a tensor of {len(args)} parts")
    return _rebuild(args)


def _rebuild_tensor_v2(args: Arguments) -> object:
    if len(args) not in (6, 7):
        raise Malformed(f"a tensor of {len(args)} parts")
    return _finished(_rebuild(args[:4]), args[4], args[6:])


def _rebuild_tensor_v3(args: Arguments) -> object:
    if len(args) not in (7, 8):
        raise Malformed(f"a tensor of {len(args)} parts")
    if not isinstance(args[6], str):
        raise Malformed("a tensor without its type")
    return _finished(_rebuild(args[:4], dtype=args[6]), args[4], args[7:])


def _finished(info: TensorInfo, requires_grad: object, metadata: Arguments) -> TensorInfo:
    """Return the tensor with its gradient flag; lazily negated or conjugated ones are refused."""
    if not isinstance(requires_grad, bool):
        raise Malformed("a tensor whose gradient flag is no bool")
    for flags in metadata:
        if flags and not (isinstance(flags, dict) and not any(flags.values())):
            raise Malformed("a tensor that is stored negated or conjugated")
    return replace(info, requires_grad=requires_grad)


def _rebuild_parameter(args: Arguments) -> object:
    if len(args) not in (3, 4) or not isinstance(args[0], TensorInfo):
        raise Malformed("a parameter without its tensor")
    return _finished(args[0], args[1], ())


def _rebuild_from_type(args: Arguments) -> object:
    """Return the tensor of `_rebuild_from_type_v2(rebuild, type, arguments, attributes)`."""
    if len(args) != 4 or not isinstance(args[0], Global) or not isinstance(args[2], tuple):
        raise Malformed("a tensor without its rebuilding function")
    rebuild = _TENSOR_CALLS.get(args[0].name)
    if rebuild is None:
        raise Malformed(f"a tensor rebuilt by {args[0].name!r}, which is not on the list")
    return rebuild(args[2])


def _size(args: Arguments) -> object:
    return () if not args else _counts(args[0])


def _device(args: Arguments) -> object:
    """Return a device's name, "cuda:0"."""
    if not args or len(args) > 2 or not all(isinstance(arg, str | int) for arg in args):
        raise Malformed("a device without a name")
    return ":".join(str(arg) for arg in args)


def _layout(args: Arguments) -> object:
    if len(args) != 1 or not isinstance(args[0], str):
        raise Malformed("a layout without a name")
    return args[0]


def notes_on(made: Pickle) -> tuple[str, ...]:
    """Return what a user should hear about the reading of a pickle."""
    if not made.cut:
        return ()
    return (f"{made.cut} references from pickled objects back to what holds them are dropped",)


_TENSOR_CALLS: Mapping[str, Callable[[Arguments], object]] = {
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": _rebuild_parameter,
}

TORCH_CALLS: Mapping[str, Call] = {
    **_TENSOR_CALLS,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "torch.Size": _size,
    "torch.device": _device,
    "torch.serialization._get_layout": _layout,
}
"""Every call of torch's that a file may make."""

TORCH_CONSTANTS: Mapping[str, object] = {
    **{f"torch.{name}": StorageType(dtype) for name, dtype in STORAGE_DTYPES.items()},
    **{f"torch.cuda.{name}": StorageType(dtype) for name, dtype in STORAGE_DTYPES.items()},
    "torch.storage.UntypedStorage": StorageType(None),
    "torch.UntypedStorage": StorageType(None),
    "torch.storage._UntypedStorage": StorageType(None),
    "torch._UntypedStorage": StorageType(None),
    **{f"torch.{name}": name for name in (*DTYPE_BYTES, *OTHER_DTYPES)},
    **{f"torch.{alias}": dtype for alias, dtype in DTYPE_ALIASES.items()},
}
"""Names of torch's that stand for values."""
