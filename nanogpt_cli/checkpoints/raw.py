"""Reading a tensor's bytes without torch: one scalar, or two tensors side by side."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator

from nanogpt_cli.checkpoints.contents import TensorInfo

CHUNK_BYTES = 1 << 20
SCALAR_CODES = {
    "float64": "<d", "float32": "<f", "float16": "<e",
    "int64": "<q", "int32": "<i", "int16": "<h", "int8": "<b", "uint8": "<B", "bool": "<?",
}  # fmt: skip


def read_scalar(info: TensorInfo) -> float | int:
    """Return the first element of a tensor."""
    data = b"".join(_chunks(info))[: info.nbytes]
    if info.dtype == "bfloat16":  # the upper half of a float32
        value: float = struct.unpack("<f", b"\0\0" + data[:2])[0]
        return value
    number: float | int = struct.unpack(SCALAR_CODES[info.dtype], data)[0]
    return number


def same_bytes(one: TensorInfo, other: TensorInfo) -> bool:
    """Return whether two tensors of one shape and type hold the same bytes."""
    if not (one.is_contiguous and other.is_contiguous):
        return False
    return all(a == b for a, b in zip(_chunks(one), _chunks(other), strict=True))


def _chunks(info: TensorInfo) -> Iterator[bytes]:
    if info.member:
        with zipfile.ZipFile(info.path) as archive, archive.open(info.member) as member:
            member.read(info.offset)
            yield from _read(member, info.nbytes)
    else:
        with info.path.open("rb") as file:
            file.seek(info.offset)
            yield from _read(file, info.nbytes)


def _read(stream: object, remaining: int) -> Iterator[bytes]:
    while remaining > 0:
        chunk: bytes = stream.read(min(CHUNK_BYTES, remaining))  # type: ignore[attr-defined]
        if not chunk:
            return
        remaining -= len(chunk)
        yield chunk
