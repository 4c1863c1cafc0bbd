"""What a checkpoint file holds, as its reader describes it: names, shapes, types, places.

No tensor data is read here and nothing heavy is imported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from nanogpt_cli.pickles import GlobalUse

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes an element, by torch's dtype name."""


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file, unread.

    Args:
        dtype: torch's name, a key of DTYPE_BYTES.
        shape: sizes of the axes.
        stride: elements between neighbours along each axis.
        path: the file that holds the bytes.
        offset: bytes from the start of `path` to the first element; where `member` is set, from
            the start of that member's decompressed bytes.
        storage: names the storage; tensors of one file with equal names share bytes.
        storage_bytes: size of the whole storage.
        member: name of a compressed archive member, or "" where the bytes lie in the file as is.
        requires_grad: as the file says.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    path: Path
    offset: int
    storage: str
    storage_bytes: int
    member: str = ""
    requires_grad: bool = False

    @property
    def numel(self) -> int:
        """How many elements the tensor has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's own elements."""
        return self.numel * DTYPE_BYTES[self.dtype]

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        expected = 1
        for size, step in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and step != expected:
                return False
            expected *= size
        return True


@dataclass(frozen=True)
class Contents:
    """A file or folder of weights, described.

    Args:
        path: what was opened.
        format: name of the entry of FORMATS that read it.
        container: the same for people, with its age where that shows ("torch zip, version 3").
        files: the files that hold weights.
        root: nested dicts, lists and plain values with TensorInfo leaves; objects of classes we
            do not know are `pickles.Record`.
        hf_config: the Hugging Face config.json that belongs to the weights, if there is one.
        metadata: string metadata of a safetensors file.
        globals: every global that a pickle named, in order of first use.
        notes: what a user should hear about the reading.
    """

    path: Path
    format: str
    container: str
    files: tuple[Path, ...]
    root: object
    hf_config: dict[str, object] | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    globals: tuple[GlobalUse, ...] = ()
    notes: tuple[str, ...] = ()
