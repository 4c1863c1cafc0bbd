"""Writing a zip archive as torch lays it out: records stored as they are, each aligned.

The layout is settled before the first byte; only checksums are filled in afterwards.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nanogpt_cli.checkpoints.plans import Bytes, Sink
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

ALIGNMENT = 64
"""Bytes; torch's own since 2.1, enough for any vector unit that maps a record."""

WIDE_FROM = 0xFFFFFFFF
"""A size or offset of at least this needs the 64-bit fields."""
MANY_FROM = 0xFFFF

_CRC_AT = 14
_PLAIN_VERSION, _WIDE_VERSION = 20, 45
_UTF8_NAME = 0x0800
_DATE = 33
"""1 January 1980, so that equal contents give equal files."""


@dataclass(frozen=True)
class ZipRecord:
    """A member of the archive.

    Args:
        name: its whole name.
        size: bytes of its data.
        chunks: gives the data.
    """

    name: str
    size: int
    chunks: Callable[[], Iterable[Bytes]]


@dataclass(frozen=True)
class _Placed:
    """A record with the place of its header, and the header but for the checksum."""

    record: ZipRecord
    at: int
    header: bytes


class ZipPlan:
    """An archive of stored records.

    Args:
        records: in the order in which they are written.
        wide_from: sizes and offsets of at least this get 64-bit fields.

    Source: PKWARE APPNOTE 6.3, and caffe2/serialize/inline_container.cc for the padding.
    """

    def __init__(self, records: Sequence[ZipRecord], wide_from: int = WIDE_FROM) -> None:
        self._wide_from = wide_from
        self._placed: list[_Placed] = []
        self.crcs: list[int] = []
        """Checksums of the records written so far."""
        at = 0
        for record in records:
            header = _local_header(record, at, wide=record.size >= wide_from)
            self._placed.append(_Placed(record, at, header))
            at += len(header) + record.size
        self._directory_at = at
        self.total_bytes = at + len(self._directory([0] * len(self._placed)))

    def write_to(self, sink: Sink) -> None:
        """Write the archive, asking each record for its data in turn."""
        self.crcs.clear()
        for placed in self._placed:
            sink.write(placed.header)
            crc = written = 0
            for chunk in placed.record.chunks():
                crc = zlib.crc32(chunk, crc)
                written += len(chunk)
                sink.write(chunk)
            assert written == placed.record.size, f"{placed.record.name} has its planned size"
            sink.patch(placed.at + _CRC_AT, struct.pack("<I", crc))
            self.crcs.append(crc)
        sink.write(self._directory(self.crcs))

    def _directory(self, crcs: Sequence[int]) -> bytes:
        lines = b"".join(
            self._central_line(placed, crc) for placed, crc in zip(self._placed, crcs, strict=True)
        )
        count, start, length = len(self._placed), self._directory_at, len(lines)
        wide = count >= MANY_FROM or max(start, length) >= self._wide_from
        end64 = b""
        if wide:
            fields = (44, _WIDE_VERSION, _WIDE_VERSION, 0, 0, count, count, length, start)
            end64 = END64.pack(END64_SIGNATURE, *fields)
            end64 += LOCATOR.pack(LOCATOR_SIGNATURE, 0, start + length, 1)
            count, length, start = MANY_FROM, WIDE_FROM, WIDE_FROM
        return lines + end64 + END.pack(END_SIGNATURE, 0, 0, count, count, length, start, 0)

    def _central_line(self, placed: _Placed, crc: int) -> bytes:
        name, size, at = placed.record.name.encode(), placed.record.size, placed.at
        wide: list[int] = []
        if size >= self._wide_from:
            wide += [size, size]
            size = WIDE_FROM
        if at >= self._wide_from:
            wide.append(at)
            at = WIDE_FROM
        extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        version = _WIDE_VERSION if wide else _PLAIN_VERSION
        fields = (version, version, _UTF8_NAME, 0, 0, _DATE, crc, size, size)
        lengths = (len(name), len(extra), 0)
        return CENTRAL.pack(CENTRAL_SIGNATURE, *fields, *lengths, 0, 0, 0, at) + name + extra


def _local_header(record: ZipRecord, at: int, *, wide: bool) -> bytes:
    """Return a record's header, padded so that the data after it is aligned."""
    name, size = record.name.encode(), record.size
    extra = struct.pack("<2H2Q", 1, 16, size, size) if wide else b""
    bare = at + LOCAL.size + len(name) + len(extra) + 4
    padding = -bare % ALIGNMENT
    extra += struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    version = _WIDE_VERSION if wide else _PLAIN_VERSION
    size = WIDE_FROM if wide else size
    fields = (version, _UTF8_NAME, 0, 0, _DATE, 0, size, size, len(name), len(extra))
    return LOCAL.pack(LOCAL_SIGNATURE, *fields) + name + extra
