"""Reading tensors from the places that a file's description gives: the heavy half."""

from __future__ import annotations

import mmap
from pathlib import Path

import torch
from torch import Tensor

from nanogpt_cli.checkpoints.contents import DTYPE_BYTES, TensorInfo
from nanogpt_cli.checkpoints.files import errors_name
from nanogpt_cli.checkpoints.torch_files.zips import read_directory, read_member
from nanogpt_cli.errors import CheckpointError

READ_BYTES = 64 << 20
"""At once: some systems read no more than 2 GB so."""

_CHANGED = "the file changed while it was read: run the command again"


class TensorReader:
    """Maps files and hands out their tensors, as long as it or one of them lives.

    Args:
        copies: read each tensor into memory of its own instead: what a file holds later, or that
            it is cut off, which would end the process at the next look, is then no matter.
    """

    def __init__(self, *, copies: bool = False) -> None:
        self._copies = copies
        self._maps: dict[Path, mmap.mmap] = {}
        self._unpacked: tuple[Path, str, bytearray] | None = None

    def read(self, info: TensorInfo) -> Tensor:
        """Return a tensor with the type, shape and strides that `info` gives, on the CPU.

        It is a view of the mapped file, copy on write: it costs no memory until it is written
        to, and the file never changes. Tensors of one storage share bytes. One that is compressed
        or lies unaligned is a copy, and so are all of a reader that makes copies.

        Raises:
            CheckpointError: the file is shorter than when it was described, or cannot be read.
        """
        dtype: torch.dtype = getattr(torch, info.dtype)
        if info.numel == 0:
            return torch.empty_strided(info.shape, info.stride, dtype=dtype)
        count = 1 + sum(
            (size - 1) * step for size, step in zip(info.shape, info.stride, strict=True)
        )
        end = info.offset + count * DTYPE_BYTES[info.dtype]
        if self._copies and not info.member:
            return _copy(info, count, dtype).as_strided(info.shape, info.stride)
        buffer = self._unpack(info) if info.member else self._map(info.path, end)
        if end > len(buffer):
            raise CheckpointError(f"{info.member!r} in {str(info.path)!r} is too short", _CHANGED)
        if info.offset % DTYPE_BYTES[info.dtype]:
            buffer = bytearray(memoryview(buffer)[info.offset : end])
            flat = torch.frombuffer(buffer, dtype=dtype, count=count)
        else:
            flat = torch.frombuffer(buffer, dtype=dtype, count=count, offset=info.offset)
        return flat.as_strided(info.shape, info.stride)

    def _map(self, path: Path, end: int) -> mmap.mmap:
        """Return the map of a file that still has at least `end` bytes."""
        with errors_name(path):
            size = path.stat().st_size
            if path not in self._maps and size:
                with path.open("rb") as file:
                    self._maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        # A page beyond the end of a file that shrank would end the process with a bus error.
        if end > size or end > len(self._maps[path]):
            raise CheckpointError(
                f"{str(path)!r} has {size:,} bytes, and a tensor ends at byte {end:,}", _CHANGED
            )
        return self._maps[path]

    def _unpack(self, info: TensorInfo) -> bytearray:
        """Return the bytes of a compressed member, kept until another one is asked for."""
        if self._unpacked is None or self._unpacked[:2] != (info.path, info.member):
            self._unpacked = None
            with errors_name(info.path):
                member = read_directory(info.path).get(info.member)
                if member is None:
                    raise CheckpointError(f"it lacks {info.member!r}", _CHANGED)
                data = read_member(info.path, member, info.storage_bytes)
            self._unpacked = (info.path, info.member, data)
        return self._unpacked[2]


def _copy(info: TensorInfo, count: int, dtype: torch.dtype) -> Tensor:
    """Return `count` elements from a tensor's place in its file, flat, in memory of their own."""
    flat = torch.empty(count, dtype=dtype)
    rest = flat.view(torch.uint8).numpy().data
    with errors_name(info.path), info.path.open("rb", buffering=0) as file:
        file.seek(info.offset)
        while rest:
            read = file.readinto(rest[:READ_BYTES])
            if not read:
                raise CheckpointError(f"a tensor's last {len(rest):,} bytes are missing", _CHANGED)
            rest = rest[read:]
    return flat
