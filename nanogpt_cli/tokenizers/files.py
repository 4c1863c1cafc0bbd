"""Reading the files that tables are kept in: regular ones, of sane size, errors with the path."""

from __future__ import annotations

import json
from pathlib import Path

from nanogpt_cli.errors import TokenizerError

MOST_BYTES = 256 * 1024 * 1024
"""More than any table takes; a larger file is something else under a table's name."""

_LFS = b"version https://git-lfs.github.com/spec/"


def is_file(path: Path) -> bool:
    """Return whether `path` is a regular file; what cannot be asked is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Return whether `path` is a folder; what cannot be asked is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a table's file.

    Raises:
        TokenizerError: it is no regular file, too large, or cannot be read.
    """
    if not is_file(path):
        raise TokenizerError(f"{path} is no regular file")
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise TokenizerError(
                f"{path} has {size} bytes: a token table has at most {MOST_BYTES} bytes"
            )
        data = path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"cannot read {path}: {error.strerror}") from error
    if data.startswith(_LFS):
        raise TokenizerError(
            f"{path}: it is a Git LFS pointer, not the table itself",
            "fetch it in its repository: git lfs install, then git lfs pull",
        )
    return data


def read_head(path: Path, count: int = 256) -> bytes:
    """Return the first bytes of a file.

    Raises:
        TokenizerError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise TokenizerError(f"cannot read {path}: {error.strerror}") from error


def read_json(path: Path) -> object:
    """Return what a JSON file holds.

    Raises:
        TokenizerError: it cannot be read or is no JSON.
    """
    data = read_bytes(path)
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is no JSON: {error}") from error


def read_json_object(path: Path) -> dict[str, object]:
    """Return the JSON object that a file holds.

    Raises:
        TokenizerError: it cannot be read, is no JSON, or is no object.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} holds a JSON {type(value).__name__}: it must be an object")
    return value
