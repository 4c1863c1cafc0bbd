"""The views of `nanogpt inspect`: each is one library call and one report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

import typer

from nanogpt_cli import output
from nanogpt_cli.checkpoints import Checkpoint, describe
from nanogpt_cli.checkpoints.fitting import MisfitError
from nanogpt_cli.errors import CheckpointError, NanoGPTError
from nanogpt_cli.inspection.overview import OverviewReport, survey

ANSWER_IS_NO = 3


class Listing(TypedDict):
    """Which tensors are shown, in which order."""

    pattern: str | None
    sort: str
    optimizer: bool


def show_overview(
    checkpoint: Checkpoint, *, tokenizer: str | None, meta: Path | None, as_json: bool
) -> OverviewReport:
    """Show the default view."""
    from nanogpt_cli.commands.inspect.overview import render_overview

    report = survey(checkpoint, tokenizer=tokenizer, meta=meta)
    output.emit(report, as_json, render_overview)
    return report


def show_tensors(checkpoint: Checkpoint, listing: Listing, *, tree: bool, as_json: bool) -> None:
    """Show --tensors."""
    from nanogpt_cli.commands.inspect.tensors import render_flat, render_tree
    from nanogpt_cli.inspection.listing import list_tensors

    output.emit(list_tensors(checkpoint, **listing), as_json, render_tree if tree else render_flat)


def show_stats(checkpoint: Checkpoint, listing: Listing, *, as_json: bool) -> None:
    """Show --stats."""
    from nanogpt_cli.inspection.listing import select

    select(checkpoint, **listing)  # refuses a pattern that no name matches, before torch is there
    from nanogpt_cli.commands.inspect.stats import render_stats
    from nanogpt_cli.inspection.statistics import gather_statistics

    with _reading("reading the weights"):
        report = gather_statistics(checkpoint, **listing)
    output.emit(report, as_json, render_stats)


def show_check(
    checkpoint: Checkpoint, *, tokenizer: str | None, meta: Path | None, as_json: bool
) -> None:
    """Show --check; exit 3 on a fault."""
    from nanogpt_cli.commands.inspect.check import render_check
    from nanogpt_cli.inspection.checks import check_checkpoint
    from nanogpt_cli.inspection.tokenizer import report_tokenizer

    report_tokenizer(checkpoint, tokenizer=tokenizer, meta=meta)  # refuses one that is not there
    with _reading("reading the weights"):
        report = check_checkpoint(checkpoint, tokenizer=tokenizer, meta=meta)
    output.emit(report, as_json, render_check)
    if report.faults:
        raise typer.Exit(ANSWER_IS_NO)


def show_faults(path: Path, error: CheckpointError, *, as_json: bool) -> None:
    """Show --check for a file that can be read and is not opened: exit 3; else do nothing."""
    from nanogpt_cli.commands.inspect.check import render_check
    from nanogpt_cli.inspection.checks import check_misfit, check_refused

    if isinstance(error, MisfitError):
        report = check_misfit(path, error)
    else:
        try:
            describe(path)
        except NanoGPTError:
            return
        report = check_refused(path, error.message)
    output.emit(report, as_json, render_check)
    raise typer.Exit(ANSWER_IS_NO)


def show_diff(first: Checkpoint, second: Checkpoint, *, as_json: bool) -> None:
    """Show --diff; exit 3 when the models differ."""
    from nanogpt_cli.commands.inspect.diff import render_diff
    from nanogpt_cli.inspection.differences import compare

    with _reading("comparing the weights"):
        report = compare(first, second)
    output.emit(report, as_json, render_diff)
    if not report.same:
        raise typer.Exit(ANSWER_IS_NO)


@contextmanager
def _reading(message: str) -> Iterator[None]:
    """Show that weights are read; one thread does it, since more of them only wait for memory."""
    from nanogpt_cli.generation.devices import use_threads

    use_threads(1)
    with output.status(message):
        yield


def show_refusal(path: Path, error: CheckpointError, *, as_json: bool) -> None:
    """Show what can be said of a file that is not opened."""
    from nanogpt_cli.commands.inspect.refusal import render_refusal
    from nanogpt_cli.inspection.refusal import examine

    output.emit(examine(path, error), as_json, render_refusal)
