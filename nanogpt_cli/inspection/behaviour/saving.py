"""Writing a report's arrays to a file, all of it or nothing."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from nanogpt_cli.checkpoints.plans import CHUNK_BYTES, FilePlan, NewTensor
from nanogpt_cli.checkpoints.safetensors_files.write import SafetensorsPlan
from nanogpt_cli.checkpoints.torch_files.zip_write import ZipPlan, ZipRecord
from nanogpt_cli.checkpoints.writing.atomic import Progress, write_file

if TYPE_CHECKING:
    from nanogpt_cli.inspection.behaviour import BehaviourReport

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Stream:
    """An array that need not be in memory as a whole.

    Args:
        dtype: numpy's.
        shape: of the whole.
        pieces: gives it in row-major order, some leading rows at a time.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[Array]]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole."""
        return math.prod(self.shape) * self.dtype.itemsize


@runtime_checkable
class Streaming(Protocol):
    """A report whose arrays are too big to be made at once."""

    def streams(self) -> Mapping[str, Stream]:
        """Return what `arrays` does, to be made while it is written."""


def save_arrays(
    target: Path, report: BehaviourReport, progress: Progress = lambda _done, _total: None
) -> int:
    """Write the arrays of a report as .npz or .safetensors, by the target's name.

    Both hold them in row-major order, little-endian; the .safetensors file names the schema.

    Returns:
        The size of the file in bytes.

    Raises:
        NanoGPTError: the folder cannot be written to, or the disk is full.
    """
    streams = _streams(report)
    plan: FilePlan
    if target.suffix == ".npz":
        plan = ZipPlan([_npy_record(name, stream) for name, stream in streams.items()])
    else:
        tensors = {name: _tensor(stream) for name, stream in streams.items()}
        plan = SafetensorsPlan(tensors, {"schema": report.schema})
    write_file(target, plan, progress=progress)
    return plan.total_bytes


def _streams(report: BehaviourReport) -> Mapping[str, Stream]:
    if isinstance(report, Streaming):
        return report.streams()
    return {name: _stream(array) for name, array in report.arrays().items()}


def _stream(array: Array) -> Stream:
    return Stream(array.dtype, array.shape, lambda: iter([array]))


def _npy_record(name: str, stream: Stream) -> ZipRecord:
    """Return an array as numpy's own file format, a member of an .npz."""
    head = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(stream.dtype)
    fields = {"descr": descr, "fortran_order": False, "shape": stream.shape}
    np.lib.format.write_array_header_1_0(head, fields)
    header = head.getvalue()

    def chunks() -> Iterator[bytes | memoryview]:
        yield header
        yield from _bytes_of(stream)

    return ZipRecord(f"{name}.npy", len(header) + stream.nbytes, chunks)


def _tensor(stream: Stream) -> NewTensor:
    return NewTensor(stream.dtype.name, stream.shape, lambda: _bytes_of(stream))


def _bytes_of(stream: Stream) -> Iterator[memoryview]:
    for piece in stream.pieces():
        flat = np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data
        for start in range(0, len(flat), CHUNK_BYTES):
            yield flat[start : start + CHUNK_BYTES]
