"""What a file about to be written is made of: tensors to copy or to make, and plans of files.

A plan knows its file's size before a byte is written, and streams: no tensor is held whole.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from nanogpt_cli.checkpoints.contents import DTYPE_BYTES, TensorInfo
from nanogpt_cli.errors import CheckpointError

CHUNK_BYTES = 1 << 20

Bytes = bytes | bytearray | memoryview


class Sink(Protocol):
    """Where a plan writes its bytes, in order."""

    def write(self, data: Bytes) -> None:
        """Append `data`, all of it."""

    def patch(self, position: int, data: bytes) -> None:
        """Overwrite what was written at `position`, and go on at the end."""


class FilePlan(Protocol):
    """A file that can be written."""

    @property
    def total_bytes(self) -> int:
        """The size that the file will have."""

    def write_to(self, sink: Sink) -> None:
        """Write the file, `total_bytes` in all."""


@dataclass(frozen=True, eq=False)
class NewTensor:
    """A tensor whose bytes are made while they are written; the same object is one storage.

    Args:
        dtype: torch's name, a key of DTYPE_BYTES.
        shape: sizes of the axes.
        chunks: gives the elements' bytes in row-major order, little-endian, `nbytes` in all. Each
            chunk is used up before the next one is asked for.
        requires_grad: as a torch file should say.
    """

    dtype: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[Bytes]]
    requires_grad: bool = False

    @property
    def numel(self) -> int:
        """How many elements the tensor has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's elements."""
        return self.numel * DTYPE_BYTES[self.dtype]

    @property
    def stride(self) -> tuple[int, ...]:
        """Elements between neighbours along each axis."""
        return row_major(self.shape)


Stored = TensorInfo | NewTensor
"""A tensor to be written: copied as it lies in another file, or made."""


@dataclass(frozen=True)
class BytesPlan:
    """A file of given bytes."""

    data: bytes

    @property
    def total_bytes(self) -> int:
        """The size that the file will have."""
        return len(self.data)

    def write_to(self, sink: Sink) -> None:
        """Write the bytes."""
        sink.write(self.data)


class CopyPlan:
    """A copy of a file, byte for byte, at the size that it has now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.total_bytes = path.stat().st_size

    def write_to(self, sink: Sink) -> None:
        """Copy the file."""
        for chunk in read_extent(self.path, 0, self.total_bytes):
            sink.write(chunk)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    stride: list[int] = []
    step = 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))


def read_extent(path: Path, offset: int, nbytes: int, member: str = "") -> Iterator[bytes]:
    """Yield a run of a file's bytes, or of a compressed archive member's, in chunks.

    Raises:
        CheckpointError: the file cannot be read, or ends before them.
    """
    try:
        if member:
            with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
                yield from _read(stream, path, offset, nbytes, by_reading=True)
        else:
            with path.open("rb", buffering=0) as file:
                yield from _read(file, path, offset, nbytes)
    except (OSError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CheckpointError(f"cannot read {str(path)!r}: {reason}") from error


def _read(
    stream: object, path: Path, offset: int, nbytes: int, *, by_reading: bool = False
) -> Iterator[bytes]:
    file: BinaryIO = stream  # type: ignore[assignment]
    if by_reading:  # zipfile's own seek holds what it skips
        while offset and (skipped := file.read(min(CHUNK_BYTES, offset))):
            offset -= len(skipped)
    else:
        file.seek(offset)
    while nbytes:
        chunk = file.read(min(CHUNK_BYTES, nbytes))
        if not chunk:
            raise CheckpointError(
                f"{str(path)!r} ends {nbytes:,} bytes too early",
                "the file changed while it was read: run the command again",
            )
        nbytes -= len(chunk)
        yield chunk
