"""`nanogpt inspect --prompt TEXT --html FILE`: the page is written, and what it is is told."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nanogpt_cli import output
from nanogpt_cli.commands.inspect.behaviour.outputs import naming_the_flag
from nanogpt_cli.commands.progress import show_progress
from nanogpt_cli.inspection.behaviour.page import PageReport, make_page
from nanogpt_cli.output.numbers import format_bytes

if TYPE_CHECKING:
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
    with naming_the_flag("--html"):
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
