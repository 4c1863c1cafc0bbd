"""Where --save and --html may write, checked before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nanogpt_cli.errors import NanoGPTError, UsageError

SUFFIXES = (".npz", ".safetensors")
"""How the name of a file of arrays ends."""


def check_save(target: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse a file of arrays that cannot be meant.

    Raises:
        UsageError: the name ends in neither .npz nor .safetensors, its folder is not there, the
            file is and `force` is not given, or it is an input.
    """
    if target.suffix not in SUFFIXES:
        raise UsageError(
            f"--save {str(target)!r}: the name must end in {' or '.join(SUFFIXES)}",
            hint=f"give --save {str(target.with_suffix('.npz'))!r}",
        )
    _check("--save", target, inputs, force=force)


def check_page(target: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse a page that cannot be meant.

    Raises:
        UsageError: its folder is not there, the file is and `force` is not given, or it is an
            input.
    """
    if target.is_dir():
        example = str(target / "page.html")
        raise UsageError(f"--html {str(target)!r} is a folder", hint=f"name the file: {example!r}")
    _check("--html", target, inputs, force=force)


def _check(flag: str, target: Path, inputs: Iterable[Path], *, force: bool) -> None:
    from nanogpt_cli.checkpoints.writing.targets import check_target

    with naming_the_flag(flag):
        check_target(target, inputs, force=force)


@contextmanager
def naming_the_flag(flag: str) -> Iterator[None]:
    """Let what goes wrong with an output be told with the flag that named it."""
    try:
        yield
    except NanoGPTError as error:
        error.hint = (error.hint or "").replace("--output", flag) or None
        raise
