"""A file of finished rows: appended whole, or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType

from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.tokenizers.base import replace_surrogates

try:
    import fcntl
except ImportError:  # Windows: two runs into one file are not told apart there
    fcntl = None  # type: ignore[assignment]


class RowFile:
    """A file of rows that is open for appending, and for this run alone.

    Args:
        path: the file; made if it is not there.
        keep: whether what is in it stays; else it goes when the first row is written.

    Raises:
        NanoGPTError: it cannot be opened, or another run is writing it.
    """

    def __init__(self, path: Path, *, keep: bool) -> None:
        self.path, self.rows = path, 0
        self._replaces = not keep
        self._is_new = not path.exists()
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            raise NanoGPTError(
                f"cannot write {str(path)!r}: {(error.strerror or str(error)).lower()}",
                hint="give --output in a folder that can be written to",
            ) from error
        self._lock()

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise NanoGPTError(
                f"another run is writing {str(self.path)!r}",
                hint="wait until it is done; shards need an --output each",
            ) from error
        except OSError:  # a file system without locks
            pass

    def append(self, line: str) -> None:
        """Add a row, newline included, in one write; one that fails leaves none of it.

        Raises:
            NanoGPTError: the disk is full, or the like.
        """
        data = replace_surrogates(line)[0].encode()
        try:
            self._drop_old()
            before = os.fstat(self._descriptor).st_size
            self._write(data, before)
        except OSError as error:
            raise NanoGPTError(
                f"cannot write {str(self.path)!r}: {(error.strerror or str(error)).lower()}",
                hint="the rows in it are whole: make room, then add --resume for the rest",
            ) from error
        self.rows += 1

    def _write(self, data: bytes, before: int) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except BaseException:
            if os.fstat(self._descriptor).st_size < before + len(data):
                os.ftruncate(self._descriptor, before)
            raise

    def _drop_old(self) -> None:
        if self._replaces:
            os.ftruncate(self._descriptor, 0)
            self._replaces = False

    def cut(self, size: int) -> None:
        """Take away what is beyond so many bytes."""
        os.ftruncate(self._descriptor, size)

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._drop_old()
            elif self._is_new and not self.rows:
                self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # a pipe, or a disk that promises nothing
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)
