"""What can be said of a file that is refused or broken, executing nothing.

Nothing here raises on what the bytes are: where the strict readers stop, members are found by
their headers and names in a pickle by its opcodes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from nanogpt_cli import pickles
from nanogpt_cli.checkpoints import describe
from nanogpt_cli.checkpoints.contents import Contents
from nanogpt_cli.checkpoints.torch_files.rebuild import TORCH_CALLS, TORCH_CONSTANTS
from nanogpt_cli.checkpoints.torch_files.zip_layout import LOCAL_SIGNATURE
from nanogpt_cli.checkpoints.torch_files.zips import read_directory
from nanogpt_cli.errors import CheckpointError, NanoGPTError
from nanogpt_cli.inspection.stored import list_others
from nanogpt_cli.pickles import GlobalUse

CHUNK = 1 << 20
MAX_MEMBERS = 20_000
MAX_FILES = 1_000
MAX_PICKLES = 4
_LOCAL = struct.Struct("<4s5H3I2H")
_STORED, _DEFLATED = 0, 8


@dataclass(frozen=True)
class MemberSize:
    """A member of an archive, or a file of a folder.

    Args:
        name: as it is stored.
        size_bytes: once unpacked, as far as it is there; None where that is not known.
    """

    name: str
    size_bytes: int | None


@dataclass(frozen=True)
class PickleUses:
    """What one pickle refers to.

    Args:
        name: the member, or "" where the file itself is the pickle.
        globals: every name, with its offset in the pickle.
    """

    name: str
    globals: tuple[GlobalUse, ...]


@dataclass(frozen=True)
class TensorName:
    """A tensor that could be made out."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class RefusalReport:
    """A file that is not opened, and what is in it all the same.

    Args:
        path: the file or folder.
        error: why it is not opened.
        hint: what to do.
        size_bytes: of the file; None for a folder.
        container: what the file could be described as, or None where it could not.
        members: of the archive or the folder, in the file's order.
        members_by: "directory", or "headers" where the directory is missing or damaged.
        pickles: what each pickle in it refers to.
        tensors: where the file could be described, though it is no model that is known here.
    """

    path: str
    error: str
    hint: str | None
    size_bytes: int | None
    container: str | None
    members: tuple[MemberSize, ...]
    members_by: str
    pickles: tuple[PickleUses, ...]
    tensors: tuple[TensorName, ...]
    schema: ClassVar[str] = "nanogpt.inspect-refusal/1"


@dataclass(frozen=True)
class _Member:
    """A member as one of its headers has it."""

    name: str
    start: int
    packed: int
    size: int | None
    method: int


def examine(path: Path, error: NanoGPTError) -> RefusalReport:
    """Return what can be said of a file or folder that was refused with `error`."""
    contents = _described(path)
    members, members_by = _members(path)
    return RefusalReport(
        path=str(path),
        error=error.message,
        hint=error.hint,
        size_bytes=None if path.is_dir() else path.stat().st_size,
        container=None if contents is None else contents.container,
        members=tuple(MemberSize(member.name, member.size) for member in members),
        members_by=members_by,
        pickles=tuple(_pickles(path, members)),
        tensors=() if contents is None else _tensors(contents),
    )


def _described(path: Path) -> Contents | None:
    try:
        return describe(path)
    except NanoGPTError:
        return None


def _tensors(contents: Contents) -> tuple[TensorName, ...]:
    try:
        stored = list_others(contents, None)
    except CheckpointError:
        return ()
    return tuple(TensorName(each.name, each.info.dtype, each.info.shape) for each in stored)


def _members(path: Path) -> tuple[list[_Member], str]:
    if path.is_dir():
        return _files(path), "directory"
    with path.open("rb") as file:
        if file.read(4) != LOCAL_SIGNATURE:
            return [], ""
    try:
        listed = read_directory(path).values()
    except CheckpointError:
        return list(_find_members(path)), "headers"
    return [
        _Member(each.name, each.start, each.packed, each.size, 8 if each.is_deflated else 0)
        for each in listed
    ], "directory"


def _files(folder: Path) -> list[_Member]:
    names = sorted(entry for entry in folder.iterdir() if entry.is_file())[:MAX_FILES]
    return [_Member(entry.name, 0, 0, entry.stat().st_size, _STORED) for entry in names]


def _find_members(path: Path) -> Iterator[_Member]:
    """Yield the members whose headers are found, sizes by where the next header begins."""
    size = path.stat().st_size
    found: tuple[str, int, int, int] | None = None
    with path.open("rb") as file:
        for count, header in enumerate(_find_headers(path, size)):
            if found is not None:
                yield _member(*found, header)
            if count == MAX_MEMBERS:
                return
            file.seek(header)
            found = _read_header(file.read(_LOCAL.size + 256), header)
        if found is not None:
            yield _member(*found, size)


def _find_headers(path: Path, size: int) -> Iterator[int]:
    """Yield where local headers seem to begin."""
    with path.open("rb") as file:
        at, kept = 0, b""
        while at < size and (chunk := file.read(CHUNK)):
            data = kept + chunk
            base = at - len(kept)
            place = data.find(LOCAL_SIGNATURE)
            while 0 <= place <= len(data) - _LOCAL.size - 256:
                if _read_header(data[place : place + _LOCAL.size + 256], 0) is not None:
                    yield base + place
                place = data.find(LOCAL_SIGNATURE, place + 4)
            at += len(chunk)
            kept = data[max(0, len(data) - _LOCAL.size - 256 + 1) :]
        yield from _headers_at_end(kept, size - len(kept))


def _headers_at_end(data: bytes, base: int) -> Iterator[int]:
    place = data.find(LOCAL_SIGNATURE)
    while place >= 0:
        if _read_header(data[place:], 0) is not None:
            yield base + place
        place = data.find(LOCAL_SIGNATURE, place + 4)


def _read_header(data: bytes, at: int) -> tuple[str, int, int, int] | None:
    """Return (name, start, packed bytes or 0, method) of the header at `at`, or None."""
    if len(data) < _LOCAL.size:
        return None
    fields = _LOCAL.unpack_from(data)
    method, packed, name_length, extra_length = fields[3], fields[7], fields[9], fields[10]
    raw = data[_LOCAL.size : _LOCAL.size + name_length]
    if method not in (_STORED, _DEFLATED) or not 0 < name_length <= 256 or len(raw) < name_length:
        return None
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    start = at + _LOCAL.size + name_length + extra_length
    return (name, start, 0 if packed == 0xFFFFFFFF else packed, method)


def _member(name: str, start: int, packed: int, method: int, end: int) -> _Member:
    there = max(0, end - start)
    size = min(packed, there) if packed else there
    return _Member(name, start, size, size if method == _STORED else None, method)


def _pickles(path: Path, members: list[_Member]) -> Iterator[PickleUses]:
    if path.is_dir():
        return
    inside = [member for member in members if member.name.endswith(".pkl")]
    for member in inside[:MAX_PICKLES]:
        yield PickleUses(member.name, _scan(_unpacked(path, member)))
    if not members:
        with path.open("rb") as file:
            uses = _scan(file.read(pickles.MAX_BYTES))
        if uses:
            yield PickleUses("", uses)


def _unpacked(path: Path, member: _Member) -> bytes:
    """Return a member's bytes as far as they unpack, at most as many as a pickle may have."""
    with path.open("rb") as file:
        file.seek(member.start)
        data = file.read(min(member.packed, pickles.MAX_BYTES))
    if member.method == _STORED:
        return data
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, pickles.MAX_BYTES)
    except zlib.error:
        return b""


def _scan(data: bytes) -> tuple[GlobalUse, ...]:
    uses = pickles.scan_globals(data, calls=TORCH_CALLS, constants=TORCH_CONSTANTS)
    return tuple(uses)
