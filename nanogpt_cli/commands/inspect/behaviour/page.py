"""`nanogpt inspect --prompt TEXT --html FILE`: the page is written, and what it is is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nanogpt_cli import output
from nanogpt_cli.commands.progress import show_progress
from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.inspection.behaviour.page import PageReport, make_page
from nanogpt_cli.output.numbers import format_bytes

if TYPE_CHECKING:
    from nanogpt_cli.checkpoints import Checkpoint
    from nanogpt_cli.inspection.behaviour import Progress, View
    from nanogpt_cli.inspection.behaviour.subject import Subject


class Wish(Protocol):
    """What is wanted of the page: `behaviour.Request`, as far as it matters here."""

    @property
    def chosen(self) -> View:
        """The view that the page opens with."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What is given of the views' options."""


def check_page(target: Path, checkpoint: Checkpoint, *, force: bool) -> None:
    """Refuse, before anything is computed, a file that cannot be meant.

    Raises:
        UsageError: its folder is not there, the file is and `force` is not given, or it is the
            checkpoint.
    """
    from nanogpt_cli.checkpoints.writing.targets import check_target

    if target.is_dir():
        example = str(target / "page.html")
        raise UsageError(f"--html {str(target)!r} is a folder", hint=f"name the file: {example!r}")
    with _naming_the_flag():
        check_target(target, [checkpoint.located.path], force=force)


def show_page(subject: Subject, target: Path, wish: Wish, *, as_json: bool) -> None:
    """Run every view, write the page, and say where it is and what it lacks."""
    from nanogpt_cli.checkpoints.plans import BytesPlan
    from nanogpt_cli.checkpoints.writing.atomic import write_file

    for message in subject.notes:
        output.note(message)
    first = wish.chosen.name
    page = make_page(subject, first_view=first, options=wish.settings, tell=_tell)
    for message in page.left_out:
        output.note(message)
    with _naming_the_flag():
        write_file(target, BytesPlan(page.data))
    report = PageReport(
        file=str(target),
        file_bytes=len(page.data),
        checkpoint=subject.name,
        prompt=subject.text,
        prompt_tokens=len(subject.ids),
        first_view=first,
        views=page.views,
        left_out=page.left_out,
    )
    output.emit(report, as_json, render)


def render(report: PageReport) -> str:
    """Return one line: where the page is and its size."""
    size = format_bytes(report.file_bytes, exact=True)
    return f"wrote {output.visible(report.file)}, {size}: open it in a browser"


def _tell(view: str) -> AbstractContextManager[Progress]:
    return show_progress(f"measuring {view}")


@contextmanager
def _naming_the_flag() -> Iterator[None]:
    """Let what goes wrong with the output be told with the flag that named it."""
    try:
        yield
    except NanoGPTError as error:
        error.hint = (error.hint or "").replace("--output", "--html") or None
        raise
