"""A strict reader of zip directories, for archives whose members are mapped, not extracted.

Anything on which two unzippers could disagree is refused: members that overlap, twice the same
name, a local header that contradicts the directory, bytes before the archive.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nanogpt_cli.checkpoints.torch_files.zip_layout import (
    CENTRAL,
    CENTRAL_SIGNATURE,
    END,
    END64,
    END64_SIGNATURE,
    END_SIGNATURE,
    LOCAL,
    LOCAL_SIGNATURE,
    LOCATOR,
    LOCATOR_SIGNATURE,
)
from nanogpt_cli.errors import CheckpointError

MAX_DIRECTORY = 64 << 20
MAX_MEMBERS = 200_000
CHUNK = 1 << 16
SPARE_INFLATION = 64 << 20
MAX_INFLATION = 100
"""How many times its size, beyond SPARE_INFLATION, an archive may unpack to."""

_ENCRYPTED = 0x2041
_STORED, _DEFLATED = 0, 8
_DAMAGED = "the file is damaged: download or copy it again"


@dataclass(frozen=True)
class Member:
    """One member of an archive, its place checked.

    Args:
        name: as the directory has it.
        size: bytes once unpacked.
        packed: bytes in the file.
        start: where they begin in the file.
        is_deflated: whether they are compressed.
    """

    name: str
    size: int
    packed: int
    start: int
    is_deflated: bool


@dataclass(frozen=True)
class _Entry:
    """A line of the directory, its member's local header unread."""

    raw_name: bytes
    name: str
    size: int
    packed: int
    header: int
    method: int


def read_directory(path: Path) -> dict[str, Member]:
    """Return the members of a zip archive by name, directories left out.

    Raises:
        CheckpointError: no archive, a damaged one, or one that is not what it seems.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start, length, count = _find_directory(file, size)
        entries = _read_entries(_read_at(file, start, length), count)
        entries.sort(key=lambda entry: entry.header)
        members: dict[str, Member] = {}
        end = 0
        for entry in entries:
            member = _check_member(file, entry, end, start)
            end = member.start + member.packed
            if entry.name in members:
                raise CheckpointError(f"the archive holds {entry.name!r} twice")
            members[entry.name] = member
    _check_inflation(members, size)
    return {name: member for name, member in members.items() if not name.endswith("/")}


def read_member(path: Path, member: Member, limit: int) -> bytearray:
    """Return the unpacked bytes of a member of at most `limit` bytes.

    Raises:
        CheckpointError: it is larger, or does not unpack to the size that the directory gives.
    """
    if member.size > limit:
        raise CheckpointError(f"{member.name!r} has {member.size:,} bytes, more than {limit:,}")
    with path.open("rb") as file:
        if member.is_deflated:
            return _inflate(file, member)
        return bytearray(_read_at(file, member.start, member.packed))


def _inflate(file: BinaryIO, member: Member) -> bytearray:
    """Return a member's bytes; memory grows with what is there, not with what is claimed."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    data = bytearray()
    at, end = member.start, member.start + member.packed
    while at < end and len(data) <= member.size and not unpacker.eof:
        chunk = _read_at(file, at, min(CHUNK, end - at))
        at += len(chunk)
        try:
            data += unpacker.decompress(chunk, member.size + 1 - len(data))
        except zlib.error:
            raise CheckpointError(f"{member.name!r} does not unpack", _DAMAGED) from None
    if len(data) != member.size or not unpacker.eof or at != end:
        raise CheckpointError(
            f"{member.name!r} does not unpack to its {member.size:,} bytes", _DAMAGED
        )
    return data


def _read_at(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    data = file.read(length)
    if len(data) != length:
        raise CheckpointError(f"the file ends at byte {offset + len(data):,}, too early", _DAMAGED)
    return data


def _find_directory(file: BinaryIO, size: int) -> tuple[int, int, int]:
    """Return (offset, bytes, entries) of the central directory."""
    tail_start = max(0, size - END.size - 0xFFFF)
    tail = _read_at(file, tail_start, size - tail_start)
    at = tail.rfind(END_SIGNATURE)
    while at >= 0 and not _ends_file(tail, at):
        at = tail.rfind(END_SIGNATURE, 0, at)
    if at < 0:
        raise CheckpointError(
            f"the file is cut: {size:,} bytes, and the archive's directory is missing at the end",
            "the download or copy stopped early: get it again, or wait for the save",
        )
    _, disk, first_disk, here, count, length, offset, _ = END.unpack_from(tail, at)
    end = tail_start + at
    if end >= LOCATOR.size:
        locator = LOCATOR.unpack(_read_at(file, end - LOCATOR.size, LOCATOR.size))
        if locator[0] == LOCATOR_SIGNATURE:
            end, disk, first_disk, here, count, length, offset = _read_end64(file, locator[2], end)
    if disk or first_disk or here != count:
        raise CheckpointError("the archive is one of several parts")
    if offset + length != end:
        raise CheckpointError(f"the archive's directory does not end at byte {end:,} as it should")
    if length > MAX_DIRECTORY or count > MAX_MEMBERS:
        raise CheckpointError(f"the archive claims {count:,} members, more than {MAX_MEMBERS:,}")
    return offset, length, count


def _ends_file(tail: bytes, at: int) -> bool:
    if at + END.size > len(tail):
        return False
    comment: int = END.unpack_from(tail, at)[-1]
    return at + END.size + comment == len(tail)


def _read_end64(file: BinaryIO, at: int, end: int) -> tuple[int, int, int, int, int, int, int]:
    """Return the place and the fields of the 64-bit end record that a locator points to."""
    if at + END64.size + LOCATOR.size > end:
        raise CheckpointError("the archive's directory points outside of the file")
    fields = END64.unpack(_read_at(file, at, END64.size))
    signature, length = fields[:2]
    if signature != END64_SIGNATURE or at + 12 + length + LOCATOR.size != end:
        raise CheckpointError("the archive's directory is damaged")
    return at, *fields[4:]


def _read_entries(directory: bytes, count: int) -> list[_Entry]:
    entries = []
    at = 0
    while at < len(directory):
        if at + CENTRAL.size > len(directory) or directory[at : at + 4] != CENTRAL_SIGNATURE:
            raise CheckpointError("the archive's directory is damaged")
        fields = CENTRAL.unpack_from(directory, at)
        flags, method = fields[3], fields[4]
        name_length, extra_length, comment_length = fields[10:13]
        at += CENTRAL.size
        raw_name = directory[at : at + name_length]
        extra = directory[at + name_length : at + name_length + extra_length]
        at += name_length + extra_length + comment_length
        if at > len(directory):
            raise CheckpointError("the archive's directory is damaged")
        name = _decode_name(raw_name)
        if flags & _ENCRYPTED:
            raise CheckpointError(f"{name!r} in the archive is encrypted")
        size, packed, header = _widen(fields[9], fields[8], fields[16], extra)
        entries.append(_Entry(raw_name, name, size, packed, header, method))
    if len(entries) != count:
        raise CheckpointError(f"the archive's directory lists {len(entries)} of {count} members")
    return entries


def _decode_name(raw: bytes) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise CheckpointError(f"a member of the archive has no UTF-8 name: {raw[:40]!r}") from None
    parts = name.removesuffix("/").split("/")
    if "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise CheckpointError(f"a member of the archive has the name {name[:80]!r}")
    return name


def _widen(size: int, packed: int, header: int, extra: bytes) -> tuple[int, int, int]:
    """Return the sizes and the offset with what the 64-bit extra field has in their place."""
    values = [size, packed, header]
    if 0xFFFFFFFF not in values:
        return size, packed, header
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            field = extra[at + 4 : at + 4 + length]
            wide = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
            values = [next(wide, v) if v == 0xFFFFFFFF else v for v in values]
            break
        at += 4 + length
    return values[0], values[1], values[2]


def _check_member(file: BinaryIO, entry: _Entry, after: int, before: int) -> Member:
    """Return a member whose local header agrees and which lies between two offsets."""
    if entry.header < after or entry.header + LOCAL.size > before:
        raise CheckpointError(f"{entry.name!r} lies across another part of the archive")
    fields = LOCAL.unpack(_read_at(file, entry.header, LOCAL.size))
    signature, _, flags, method = fields[:4]
    name_length, extra_length = fields[9:11]
    start = entry.header + LOCAL.size + name_length + extra_length
    if signature != LOCAL_SIGNATURE or method != entry.method or flags & _ENCRYPTED:
        raise CheckpointError(f"{entry.name!r} has a header that contradicts the directory")
    if start + entry.packed > before:
        raise CheckpointError(f"{entry.name!r} lies across another part of the archive")
    if _read_at(file, entry.header + LOCAL.size, name_length) != entry.raw_name:
        raise CheckpointError(f"{entry.name!r} has another name in its own header")
    if entry.method not in (_STORED, _DEFLATED):
        raise CheckpointError(f"{entry.name!r} is compressed by method {entry.method}, not deflate")
    if entry.method == _STORED and entry.size != entry.packed:
        raise CheckpointError(f"{entry.name!r} is stored in {entry.packed} of {entry.size} bytes")
    return Member(entry.name, entry.size, entry.packed, start, entry.method == _DEFLATED)


def _check_inflation(members: dict[str, Member], file_size: int) -> None:
    total = sum(member.size for member in members.values() if member.is_deflated)
    if total > MAX_INFLATION * file_size + SPARE_INFLATION:
        raise CheckpointError(
            f"the archive has {file_size:,} bytes and claims to unpack to {total:,}"
        )
