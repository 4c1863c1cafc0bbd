"""Folders and files by path or URI, local or not: through pyarrow's file systems and fsspec's."""

from __future__ import annotations

import io
import os
import re
import secrets
from pathlib import Path
from typing import Any, cast

from nanogpt_cli.errors import NanoGPTError, UsageError

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")

WHOLE_OR_NOTHING = frozenset(
    ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "hf", "memory")
)
"""Where a file appears when it is closed; a rename would be a copy. Elsewhere one is renamed."""


def is_uri(place: str) -> bool:
    """Return whether a place is named by a URI, and not by a path of this machine."""
    return SCHEME.match(place) is not None


UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}\.nanogpt", re.DOTALL)
"""Names of what is being written, or was when its writer was killed."""


class Store:
    """A file, or a folder of files, at a place.

    Args:
        place: a path, or a URI that pyarrow or an installed fsspec file system knows.

    Raises:
        UsageError: no such kind of URI.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        scheme = SCHEME.match(place)
        self._local: Path | None = None
        self._files: Any
        if scheme is None:
            from pyarrow.fs import LocalFileSystem

            self._files, self._root = LocalFileSystem(), str(Path(place).absolute())
        else:
            self._files, self._root = _resolve(place)
        if self._files.type_name == "local":
            self._local = Path(self._root)
        self._renames = scheme is None or scheme[1].lower() not in WHOLE_OR_NOTHING

    def open(self) -> io.BufferedReader:
        """Open the file at the place itself.

        Raises:
            UsageError: none there.
            NanoGPTError: it cannot be read.
        """
        try:
            if self._is_folder():
                raise UsageError(f"{self.place!r} is a folder", hint="name the file in it")
            stream = self._files.open_input_file(self._root)
        except FileNotFoundError as error:
            shown = str(self._local) if self._local else self.place
            raise UsageError(
                f"no file of prompts at {shown!r}", hint="--prompt takes the text itself"
            ) from error
        except (OSError, ValueError) as error:
            raise NanoGPTError(f"cannot read {self.place!r}: {_reason(error)}") from error
        return io.BufferedReader(cast("io.RawIOBase", stream), 1 << 20)

    def _is_folder(self) -> bool:
        from pyarrow.fs import FileType

        found: bool = self._files.get_file_info(self._root).type == FileType.Directory
        return found

    def list(self) -> list[str]:
        """Return the names of the files in the folder, none where it is not there.

        Raises:
            UsageError: a file is at the place.
            NanoGPTError: it cannot be read.
        """
        from pyarrow.fs import FileSelector, FileType

        try:
            if self._files.get_file_info(self._root).type == FileType.File:
                raise UsageError(
                    f"the output {self.place!r} is a file, and --engine ray writes a folder",
                    hint="name a folder: it is made where there is none",
                )
            entries = self._files.get_file_info(FileSelector(self._root, allow_not_found=True))
        except (OSError, ValueError) as error:
            raise NanoGPTError(f"cannot read {self.place!r}: {_reason(error)}") from error
        return sorted(entry.base_name for entry in entries if entry.type == FileType.File)

    def make(self) -> None:
        """Make the folder where it is not there.

        Raises:
            NanoGPTError: it cannot be made.
        """
        try:
            self._files.create_dir(self._root, recursive=True)
        except (OSError, ValueError) as error:
            raise NanoGPTError(
                f"cannot make the folder {self.place!r}: {_reason(error)}",
                hint="give --output in a folder that can be written to",
            ) from error

    def read(self, name: str) -> bytes:
        """Return what is in a file of the folder.

        Raises:
            NanoGPTError: it cannot be read.
        """
        try:
            with self._files.open_input_file(f"{self._root}/{name}") as stream:
                return cast("bytes", stream.read())
        except (OSError, ValueError) as error:
            raise NanoGPTError(f"cannot read {self.within(name)!r}: {_reason(error)}") from error

    def read_range(self, start: int, size: int) -> bytes:
        """Return some bytes of the file at the place itself.

        Raises:
            UsageError: no file there.
            NanoGPTError: it cannot be read.
        """
        with self.open() as stream:
            try:
                stream.seek(start)
                return stream.read(size)
            except (OSError, ValueError) as error:
                raise NanoGPTError(f"cannot read {self.place!r}: {_reason(error)}") from error

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the folder: all of it appears, or nothing; one that is there is replaced.

        Raises:
            NanoGPTError: the disk is full, or the like.
        """
        hidden = f".{name}.{secrets.token_hex(8)}.nanogpt"
        try:
            if self._local is not None:
                _write_local(self._local / name, self._local / hidden, data)
                return
            target = f"{self._root}/{name}"
            written = f"{self._root}/{hidden}" if self._renames else target
            with self._files.open_output_stream(written) as stream:
                stream.write(data)
            if self._renames:
                self._files.move(written, target)
        except (OSError, ValueError) as error:
            raise NanoGPTError(
                f"cannot write {self.within(name)!r}: {_reason(error)}",
                hint="the parts in the folder are whole: --resume makes the rest",
            ) from error

    def remove(self, name: str) -> None:
        """Remove a file of the folder.

        Raises:
            NanoGPTError: it cannot be removed.
        """
        try:
            self._files.delete_file(f"{self._root}/{name}")
        except (OSError, ValueError) as error:
            raise NanoGPTError(f"cannot remove {self.within(name)!r}: {_reason(error)}") from error

    def within(self, name: str) -> str:
        """Return the place of a file of the folder."""
        return f"{self.place.rstrip('/')}/{name}"


def _write_local(target: Path, hidden: Path, data: bytes) -> None:
    try:
        with hidden.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(target)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


def _resolve(place: str) -> tuple[Any, str]:
    """Return a file system and a path on it."""
    import pyarrow
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    try:
        found: tuple[Any, str] = FileSystem.from_uri(place)
        return found
    except pyarrow.ArrowInvalid:  # not one of pyarrow's own
        pass
    except (OSError, ValueError) as error:
        raise NanoGPTError(
            f"cannot reach {place!r}: {_reason(error)}", hint="see that every machine can reach it"
        ) from error
    import fsspec

    try:
        files, path = fsspec.core.url_to_fs(place)
    except ImportError as error:
        raise NanoGPTError(
            f"cannot reach {place!r}: {error}", hint="install it on every machine"
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot reach {place!r}: {_reason(error)}",
            hint="give a path, or a URI such as s3://bucket/folder",
        ) from error
    return PyFileSystem(FSSpecHandler(files)), path


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    first = text.splitlines()[0]
    return first[:1].lower() + first[1:]
