"""Opening one file: its first bytes, its map, and whose name stands in an error."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nanogpt_cli.errors import CheckpointError


def read_start(path: Path, length: int) -> bytes:
    """Return the first bytes of a regular file, b"" where it cannot be opened."""
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(length)
    except OSError:
        return b""


def stamp(path: Path) -> tuple[int, ...]:
    """Return what differs once a file was written again or replaced: device, number, size, time."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def map_file(path: Path) -> Iterator[mmap.mmap]:
    """Map a file that is not empty, for reading."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


DAMAGED = "the file is damaged, or of a kind that is not read: copy or download it again"
"""What to do about a file whose parts do not fit together."""


@contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Name the file in what goes wrong while it is read.

    Raises:
        CheckpointError: in place of one without the path, and of every failure to read.
    """
    try:
        yield
    except CheckpointError as error:
        hint = error.hint or DAMAGED
        raise CheckpointError(f"cannot read {str(path)!r}: {error.message}", hint) from error
    except OSError as error:
        raise CheckpointError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
