"""Files as torch writes them, and as it never would."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from pickle_recipes import call, group, named, text, whole
from torch import Tensor

from nanogpt_cli.checkpoints.contents import Contents, TensorInfo
from nanogpt_cli.checkpoints.tensors import TensorReader

Members = dict[str, bytes]


def save(value: object, *, legacy: bool = False, protocol: int = 2) -> bytes:
    """Return what torch.save writes."""
    buffer = io.BytesIO()
    torch.save(value, buffer, pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def unzip(data: bytes) -> Members:
    """Return the members of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rezip(members: Mapping[str, bytes], *, compressed: bool = False) -> bytes:
    """Return an archive as any other program would write it: nothing aligned."""
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return buffer.getvalue()


def changed(data: bytes, change: Callable[[Members], object], *, compressed: bool = False) -> bytes:
    """Return an archive whose members were changed in place."""
    members = unzip(data)
    change(members)
    return rezip(members, compressed=compressed)


def number(value: int) -> bytes:
    """Push an int."""
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def numbers(*values: int) -> bytes:
    """Push a tuple of ints."""
    return group(*map(number, values))


def storage(
    numel: bytes = number(4),
    key: bytes = text("0"),
    kind: bytes = named("torch", "FloatStorage"),
    word: bytes = text("storage"),
) -> bytes:
    """Push what a zip file's reference to a storage stands for."""
    return group(word, kind, key, text("cpu"), numel) + b"Q"


def tensor(
    place: bytes | None = None,
    offset: bytes = number(0),
    size: bytes = numbers(2, 2),
    stride: bytes = numbers(2, 1),
    requires_grad: bytes = b"\x89",
    *more: bytes,
) -> bytes:
    """Push a tensor, by default of four float32 elements."""
    hooks = call("collections", "OrderedDict")
    parts = (place or storage(), offset, size, stride, requires_grad, hooks, *more)
    return call("torch._utils", "_rebuild_tensor_v2", *parts)


def archive_of(value: bytes, records: Mapping[str, bytes] | None = None) -> bytes:
    """Return a torch archive whose pickle pushes `value`; by default with one record, "0"."""
    records = {"0": bytes(range(16))} if records is None else records
    return rezip(
        {"archive/data.pkl": whole(value)}
        | {f"archive/data/{key}": data for key, data in records.items()}
        | {"archive/version": b"3\n"}
    )


def infos(value: object) -> list[TensorInfo]:
    """Return every tensor of a description, in order."""
    if isinstance(value, TensorInfo):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [info for part in value for info in infos(part)] if isinstance(value, list) else []


def assert_same(contents: Contents, expected: object) -> int:
    """Assert that every value and tensor is what torch.load gave; return how many tensors."""
    return _compare(contents.root, expected, TensorReader())


def _compare(ours: object, theirs: object, reader: TensorReader) -> int:
    if isinstance(theirs, Tensor):
        assert isinstance(ours, TensorInfo)
        read = reader.read(ours)
        assert read.dtype == theirs.dtype
        assert read.shape == theirs.shape
        assert read.stride() == theirs.stride()
        assert ours.requires_grad == theirs.requires_grad
        assert torch.equal(_bits(read), _bits(theirs))
        return 1
    if isinstance(theirs, dict):
        assert isinstance(ours, dict)
        assert list(ours) == list(theirs)
        return sum(_compare(ours[key], theirs[key], reader) for key in theirs)
    if isinstance(theirs, list | tuple):
        assert isinstance(ours, list | tuple)
        return sum(_compare(a, b, reader) for a, b in zip(ours, theirs, strict=True))
    assert ours == theirs
    return 0


def _bits(tensor: Tensor) -> Tensor:
    """Return the bytes, so that NaN equals NaN and -0.0 is not 0.0."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def write(folder: Path, data: bytes, name: str = "ckpt.pt") -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_bytes(data)
    return path
