"""Output that is there whole or not at all.

A file or a folder is written under a hidden name beside its target, flushed to the disk, looked
at, and renamed. The hidden name is locked while its process lives, so that the next run can tell
what a killed one left behind, and removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from nanogpt_cli.checkpoints.plans import Bytes, FilePlan
from nanogpt_cli.errors import NanoGPTError

try:
    import fcntl
except ImportError:  # Windows, which lets nobody remove an open file
    fcntl = None  # type: ignore[assignment]

Progress = Callable[[int, int], None]
"""Called with bytes written so far, and in all."""

_UNFINISHED = re.compile(r"\..+\.nanogpt-[0-9a-f]{16}\.tmp", re.DOTALL)
_ASIDE = re.compile(r"\.(.+)\.nanogpt-[0-9a-f]{16}\.old", re.DOTALL)
_LONGEST_NAME = 200
"""Bytes of the target's name that a hidden one repeats; most file systems allow 255 in all."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_file(
    target: Path,
    plan: FilePlan,
    *,
    check: Callable[[Path], None] = lambda _: None,
    progress: Progress = lambda _done, _total: None,
) -> None:
    """Write a file: all of it appears at `target`, or nothing.

    Args:
        target: replaced if it exists; see `targets`.
        plan: what to write.
        check: called with the finished file's hidden path, may raise; the file is then not kept.
        progress: told how far the writing is.

    Raises:
        NanoGPTError: the folder cannot be written to, or the disk is full.
    """
    with _telling(target, plan.total_bytes):
        clear_litter(target.parent)
        with _hidden_file(target) as (path, file):
            _write(file, plan, 0, plan.total_bytes, progress)
            check(path)
            if fcntl is None:
                file.close()
            path.replace(target)
        _sync_folder(target.parent)


def write_folder(
    target: Path,
    plans: Mapping[str, FilePlan],
    *,
    check: Callable[[Path], None] = lambda _: None,
    progress: Progress = lambda _done, _total: None,
) -> None:
    """Write a folder of files: all of it appears at `target`, or nothing.

    Args:
        target: replaced if it exists; see `targets`.
        plans: by file name.
        check: called with the finished folder's hidden path, may raise; it is then not kept.
        progress: told how far the writing is, over all files.

    Raises:
        NanoGPTError: the folder around it cannot be written to, or the disk is full.
    """
    total = sum(plan.total_bytes for plan in plans.values())
    with _telling(target, total):
        clear_litter(target.parent)
        with _hidden_folder(target) as path:
            done = 0
            for name, plan in plans.items():
                with contextlib.closing(_File(path / name)) as file:
                    _write(file, plan, done, total, progress)
                done += plan.total_bytes
            _sync_folder(path)
            check(path)
            _swap_folder(path, target)
        _sync_folder(target.parent)


def clear_litter(folder: Path) -> None:
    """Remove what killed runs left in a folder: only names of ours that no process has locked.

    A folder that was moved aside to be replaced, and never was, is put back.
    """
    with contextlib.suppress(OSError):
        for entry in list(folder.iterdir()):
            if _UNFINISHED.fullmatch(entry.name) and not _is_in_use(entry):
                _remove(entry)
            elif aside := _ASIDE.fullmatch(entry.name):
                _settle(entry, folder / aside[1])


def _settle(aside: Path, target: Path) -> None:
    if os.path.lexists(target):
        _remove(aside)
    else:
        with contextlib.suppress(OSError):
            aside.rename(target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _is_in_use(path: Path) -> bool:
    """Return whether the process that writes `path` lives; in doubt, that it does."""
    if fcntl is None:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lock(path: Path, descriptor: int) -> bool:
    """Lock what was just made; return whether it is still there, and no other run took it."""
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks: its litter stays
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    return os.path.lexists(path)


def _hidden_path(target: Path, end: str = "tmp") -> Path:
    name = target.name
    while len(os.fsencode(name)) > _LONGEST_NAME:
        name = name[:-1]
    return target.parent / f".{name}.nanogpt-{secrets.token_hex(8)}.{end}"


@contextlib.contextmanager
def _hidden_file(target: Path) -> Iterator[tuple[Path, _File]]:
    while True:
        path = _hidden_path(target)
        file = _File(path)
        if _lock(path, file.descriptor):
            break
        file.close()
    try:
        yield path, file
    except BaseException:
        file.close()
        _remove(path)
        raise
    finally:
        file.close()


@contextlib.contextmanager
def _hidden_folder(target: Path) -> Iterator[Path]:
    path = _hidden_path(target)
    path.mkdir()
    lock = None if fcntl is None else os.open(path, os.O_RDONLY)
    try:
        if lock is not None and not _lock(path, lock):
            path.mkdir()
        yield path
    except BaseException:
        _remove(path)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _swap_folder(path: Path, target: Path) -> None:
    """Rename a folder to its target; one that is there is moved aside and then removed."""
    if not os.path.lexists(target):
        path.rename(target)
        return
    aside = _hidden_path(target, "old")
    target.rename(aside)
    try:
        path.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    _remove(aside)


class _File:
    """A new file, unbuffered, so that what the disk refuses is known at once."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self.descriptor = os.open(path, flags, 0o666)
        self.on_write: Callable[[int], None] = lambda _: None

    def write(self, data: Bytes) -> None:
        """Append all of `data`."""
        rest = memoryview(data).cast("B")
        while rest:
            written = os.write(self.descriptor, rest)
            rest = rest[written:]
            self.on_write(written)

    def patch(self, position: int, data: bytes) -> None:
        """Overwrite bytes that were written before."""
        end = os.lseek(self.descriptor, 0, os.SEEK_CUR)
        os.lseek(self.descriptor, position, os.SEEK_SET)
        assert os.write(self.descriptor, data) == len(data), "a few bytes go in one piece"
        os.lseek(self.descriptor, end, os.SEEK_SET)

    def close(self) -> None:
        """Close the file, if it is open; its lock goes with it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _write(file: _File, plan: FilePlan, before: int, total: int, progress: Progress) -> None:
    done = before

    def count(written: int) -> None:
        nonlocal done
        done += written
        progress(done, total)

    file.on_write = count
    plan.write_to(file)
    assert done - before == plan.total_bytes, "a plan writes the bytes that it promised"
    os.fsync(file.descriptor)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder last; where that cannot be asked for, they will anyway."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _telling(target: Path, total: int) -> Iterator[None]:
    """Tell what went wrong with the output in one line; nothing of it is left."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if error.errno in _FULL:
            raise NanoGPTError(
                f"cannot write {str(target)!r} ({total:,} bytes): {reason}",
                hint="make room, or give --output on another disk; nothing was left behind",
            ) from error
        raise NanoGPTError(
            f"cannot write {str(target)!r}: {reason}",
            hint="give --output in a folder that can be written to",
        ) from error
