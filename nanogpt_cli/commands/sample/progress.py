"""How far a batch is, on a terminal, while it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nanogpt_cli import output
from nanogpt_cli.errors import count_of

if TYPE_CHECKING:
    from nanogpt_cli.generation.batch.samples import Tally


@contextmanager
def show_progress(
    tally: Tally,
    there: Callable[[], int],
    total: int | None,
    *,
    beside_rows: bool,
) -> Iterator[Callable[[], None]]:
    """Yield a function to be called after every row; it draws on a terminal's stderr only.

    Args:
        tally: how the batch goes.
        there: rows that were there already, of those passed so far.
        total: rows in all, or None where nobody can tell.
        beside_rows: whether the rows themselves go to stdout, which may be the same terminal.
    """
    hidden = beside_rows and sys.stdout.isatty()
    if hidden or not output.draws_on_stderr():
        yield lambda: None
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.BarColumn(),
        bars.TextColumn("{task.fields[rates]}", markup=False),
        bars.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with bars.Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=total, rates=describe(tally, 0, total))

        def step() -> None:
            done = tally.rows + there()
            bar.update(task, completed=done, rates=describe(tally, done, total))

        yield step


def describe(tally: Tally, done: int, total: int | None) -> str:
    """Return how many rows are done, and how fast they come."""
    text = count_of(done, "row") if total is None else f"{done:,} of {count_of(total, 'row')}"
    if tally.seconds > 0:
        text += f", {tally.rows / tally.seconds:,.1f} rows/s"
        text += f", {tally.new_tokens / tally.seconds:,.1f} tokens/s"
    return text
