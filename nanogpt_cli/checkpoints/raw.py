"""Reading a tensor's bytes without torch: one scalar, all of it, or two side by side."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.torch_files.zips import read_directory, read_member

CHUNK_BYTES = 1 << 20
SCALAR_CODES = {
    "float64": "<d", "float32": "<f", "float16": "<e",
    "int64": "<q", "int32": "<i", "int16": "<h", "int8": "<b", "uint8": "<B", "bool": "<?",
}  # fmt: skip


def read_scalar(info: TensorInfo) -> float | int:
    """Return the first element of a tensor."""
    data = read_bytes(info)[: info.nbytes]
    if info.dtype == "bfloat16":  # the upper half of a float32
        value: float = struct.unpack("<f", b"\0\0" + data[:2])[0]
        return value
    number: float | int = struct.unpack(SCALAR_CODES[info.dtype], data)[0]
    return number


def read_bytes(info: TensorInfo) -> bytes:
    """Return the bytes of a contiguous tensor."""
    return b"".join(_chunks(info))


def same_bytes(one: TensorInfo, other: TensorInfo) -> bool:
    """Return whether two tensors of one shape and type hold the same bytes."""
    if not (one.is_contiguous and other.is_contiguous):
        return False
    return all(a == b for a, b in zip(_chunks(one), _chunks(other), strict=True))


def _chunks(info: TensorInfo) -> Iterator[bytes]:
    if info.member:
        data = read_member(info.path, read_directory(info.path)[info.member], info.storage_bytes)
        yield bytes(data[info.offset : info.offset + info.nbytes])
        return
    remaining = info.nbytes
    with info.path.open("rb") as file:
        file.seek(info.offset)
        while remaining > 0 and (chunk := file.read(min(CHUNK_BYTES, remaining))):
            remaining -= len(chunk)
            yield chunk
