"""Writing a report's arrays to a file, all of it or nothing."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nanogpt_cli.checkpoints.atomic import Progress, write_file
from nanogpt_cli.checkpoints.safetensors_write import SafetensorsPlan
from nanogpt_cli.checkpoints.targets import check_target
from nanogpt_cli.checkpoints.writing import CHUNK_BYTES, FilePlan, NewTensor
from nanogpt_cli.checkpoints.zip_write import ZipPlan, ZipRecord
from nanogpt_cli.errors import UsageError

if TYPE_CHECKING:
    from nanogpt_cli.inspection.behaviour import BehaviourReport

    Array = np.ndarray[Any, Any]

SUFFIXES = (".npz", ".safetensors")


def check_save(target: Path, inputs: list[Path], *, force: bool = False) -> None:
    """Refuse, before anything is computed, a file that cannot be meant.

    Raises:
        UsageError: the name ends in neither .npz nor .safetensors, or the file exists already and
            `force` is not given, or it is an input.
    """
    if target.suffix not in SUFFIXES:
        raise UsageError(
            f"--save {str(target)!r}: the name must end in {' or '.join(SUFFIXES)}",
            hint=f"give --save {str(target.with_suffix('.npz'))!r}",
        )
    try:
        check_target(target, inputs, force=force)
    except UsageError as error:
        error.hint = (error.hint or "").replace("--output", "--save") or None
        raise


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
    arrays = {name: np.ascontiguousarray(array) for name, array in report.arrays().items()}
    plan: FilePlan
    if target.suffix == ".npz":
        plan = ZipPlan([_npy_record(name, array) for name, array in arrays.items()])
    else:
        tensors = {name: _tensor(array) for name, array in arrays.items()}
        plan = SafetensorsPlan(tensors, {"schema": report.schema})
    write_file(target, plan, progress=progress)
    return plan.total_bytes


def _npy_record(name: str, array: Array) -> ZipRecord:
    """Return an array as numpy's own file format, a member of an .npz."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
    header = head.getvalue()

    def chunks() -> Iterator[bytes | memoryview]:
        yield header
        yield from _bytes_of(array)

    return ZipRecord(f"{name}.npy", len(header) + array.nbytes, chunks)


def _tensor(array: Array) -> NewTensor:
    return NewTensor(array.dtype.name, array.shape, lambda: _bytes_of(array))


def _bytes_of(array: Array) -> Iterator[memoryview]:
    flat = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(flat), CHUNK_BYTES):
        yield flat[start : start + CHUNK_BYTES]
