"""Where output may go: what exists is kept unless told otherwise, what is read always."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from nanogpt_cli.checkpoints.hugging_face.config import CONFIG_NAME
from nanogpt_cli.errors import UsageError


def check_target(
    target: Path, inputs: Iterable[Path], *, as_folder: bool = False, force: bool = False
) -> None:
    """Refuse an output that would lose something; nothing is touched.

    Args:
        target: what is to be written.
        inputs: what is read, files and folders.
        as_folder: whether the output is a folder.
        force: whether an output that exists may be replaced.

    Raises:
        UsageError: the output is an input, by any path or link; lies nowhere; exists and `force`
            is not given; or is something that is never replaced.
    """
    shown = repr(str(target))
    if not target.parent.is_dir():
        raise UsageError(
            f"cannot write {shown}: there is no folder {str(target.parent)!r}",
            hint="make it first, or give another --output",
        )
    for path in inputs:
        if _is_same(target, path):
            raise UsageError(
                f"the output {shown} is the input, which would be lost",
                hint="give --output another name",
            )
        if Path(os.path.realpath(target)) in Path(os.path.realpath(path)).parents and as_folder:
            raise UsageError(
                f"the output {shown} holds the input, which would be lost",
                hint="give --output another name",
            )
    if not os.path.lexists(target):
        return
    _check_replaceable(target, as_folder=as_folder)
    if not force:
        raise UsageError(
            f"{shown} exists already", hint="give --force to replace it, or another --output"
        )


def _is_same(target: Path, path: Path) -> bool:
    try:
        return target.samefile(path)
    except OSError:  # one of them is not there
        return os.path.realpath(target) == os.path.realpath(path)


def _check_replaceable(target: Path, *, as_folder: bool) -> None:
    """Refuse to replace a file by a folder, a folder by a file, a folder with folders in it."""
    shown = repr(str(target))
    if target.is_dir():
        if not as_folder:
            raise UsageError(
                f"the output {shown} is a folder, and a file is to be written",
                hint=f"name the file: {target / 'ckpt.pt'}",
            )
        if target.is_symlink() or not _is_model_folder(target):
            raise UsageError(
                f"the folder {shown} holds more than a model, and is not replaced",
                hint="give another --output",
            )
    elif as_folder or not (target.is_file() or target.is_symlink()):
        kind = "a file, and a folder is to be written" if as_folder else "no regular file"
        raise UsageError(f"the output {shown} is {kind}", hint="give another --output")


def _is_model_folder(folder: Path) -> bool:
    """Return whether a folder is empty, or has a config.json and files alone."""
    entries = list(folder.iterdir())
    if any(not entry.is_file() for entry in entries):
        return False
    return not entries or any(entry.name == CONFIG_NAME for entry in entries)
