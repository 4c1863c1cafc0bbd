"""The safetensors format, read by its header alone: names, shapes, types, places.

No tensor byte is touched here, and nothing but the standard library is needed.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.checkpoints.contents import DTYPE_BYTES, Contents, TensorInfo
from nanogpt_cli.checkpoints.files import errors_name, read_start
from nanogpt_cli.errors import CheckpointError, name_some

HEADER_LIMIT = 100_000_000
"""Bytes that a header may have; the reference implementation sets the same limit."""

AXES_LIMIT = 64
SIZE_LIMIT = 2**63

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
"""The format's names of the types we read -> torch's."""


class SafetensorsFile:
    """The FORMATS entry for a bare `.safetensors` file, whatever it is called.

    Source: https://github.com/huggingface/safetensors, section "Format".
    """

    name = "safetensors"

    def sniff(self, path: Path) -> bool:
        """Return whether a regular file begins as safetensors do: a length, then a JSON object."""
        start = read_start(path, 9)
        return len(start) == 9 and start[8:] == b"{" and _length(start) <= HEADER_LIMIT

    def describe(self, path: Path) -> Contents:
        """Return the tensors of a file as its header lists them, each place checked.

        Raises:
            CheckpointError: a header that is cut, no JSON, or whose tensors overlap, leave holes,
                have sizes that disagree with their shapes, or a type that no model here can have.
        """
        with errors_name(path):
            tensors, metadata = _read_header(path)
        return Contents(
            path=path,
            format=self.name,
            container=self.name,
            files=(path,),
            root=tensors,
            metadata=metadata,
        )


@dataclass(frozen=True)
class _Entry:
    """One line of the header, its types checked; offsets are relative to the data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _length(start: bytes) -> int:
    return int.from_bytes(start[:8], "little")


def _read_header(path: Path) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = _length(start)
        if len(start) < 8:
            raise CheckpointError(f"it has {size} bytes, and a header needs more")
        if length > HEADER_LIMIT:
            raise CheckpointError(f"its header claims {length} bytes: the limit is {HEADER_LIMIT}")
        if length > size - 8:
            raise CheckpointError(
                f"it ends inside its header: {length} bytes are claimed, {size - 8} follow",
                hint="the file is cut short: copy or download it again",
            )
        header = _parse(file.read(length))
    entries = {key: _entry(key, value) for key, value in header.items() if key != "__metadata__"}
    data = 8 + length
    _check_layout(entries, size - data)
    tensors = {key: _tensor_info(path, data, key, entry) for key, entry in entries.items()}
    return tensors, _metadata(header.get("__metadata__", {}))


def _parse(text: bytes) -> dict[str, object]:
    if not text.startswith(b"{"):
        raise CheckpointError("its header is not a JSON object")
    try:
        # Every ValueError that can come out of this call is about the text itself: bad JSON, bad
        # UTF-8, or a number too long to convert.
        header = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise CheckpointError("its header is not valid: JSON nested too deeply") from None
    except ValueError as error:
        raise CheckpointError(f"its header is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError("its header is not a JSON object")
    return header


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
        raise CheckpointError(f"its header names {name_some(repeated)} more than once")
    return entries


def _metadata(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise CheckpointError("its __metadata__ is not a map of strings")
    for key, text in value.items():
        if not isinstance(text, str):
            raise CheckpointError(
                f"its __metadata__ has {key!r}: {text!r}, and only strings may be"
            )
    return value


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < SIZE_LIMIT


def _entry(key: str, value: object) -> _Entry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"tensor {key!r} needs dtype, shape and data_offsets alone")
    shape, offsets = value["shape"], value["data_offsets"]
    if not isinstance(shape, list) or len(shape) > AXES_LIMIT or not all(map(_is_size, shape)):
        raise CheckpointError(f"tensor {key!r} has a shape that no tensor can have")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise CheckpointError(f"tensor {key!r} has data_offsets that are no two positions")
    name = value["dtype"]
    dtype = DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise CheckpointError(
            f"tensor {key!r} has dtype {name!r}: known are {', '.join(DTYPES)}",
            hint="quantized and 8-bit float weights need the program that made them",
        )
    return _checked(key, _Entry(dtype, tuple(shape), *offsets))


def _checked(key: str, entry: _Entry) -> _Entry:
    stored = entry.end - entry.begin
    needed = math.prod(entry.shape) * DTYPE_BYTES[entry.dtype]
    if stored != needed:
        raise CheckpointError(
            f"tensor {key!r} has {stored} bytes at {entry.begin} to {entry.end}: "
            f"{entry.dtype} of shape {list(entry.shape)} needs {needed}"
        )
    return entry


def _check_layout(entries: dict[str, _Entry], data_bytes: int) -> None:
    position = 0
    previous = "the header"
    for key, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin < position:
            raise CheckpointError(
                f"tensor {key!r} begins at {entry.begin}, "
                f"inside {previous}, which ends at {position}"
            )
        if entry.begin > position:
            raise CheckpointError(
                f"a hole of {entry.begin - position} bytes lies before tensor {key!r}, "
                f"which begins at {entry.begin}"
            )
        position, previous = entry.end, f"tensor {key!r}"
    if position > data_bytes:
        raise CheckpointError(
            f"{previous} ends at byte {position} of the data, and the file has {data_bytes}",
            hint="the file is cut short: copy or download it again",
        )
    if position < data_bytes:
        raise CheckpointError(f"{data_bytes - position} bytes follow the last tensor")


def _tensor_info(path: Path, data: int, key: str, entry: _Entry) -> TensorInfo:
    stride: list[int] = []
    step = 1
    for size in reversed(entry.shape):
        stride.append(step)
        step *= max(size, 1)
    return TensorInfo(
        dtype=entry.dtype,
        shape=entry.shape,
        stride=tuple(reversed(stride)),
        path=path,
        offset=data + entry.begin,
        storage=key,
        storage_bytes=entry.end - entry.begin,
    )
