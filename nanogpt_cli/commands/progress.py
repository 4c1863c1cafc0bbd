"""A bar on a terminal while something takes its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nanogpt_cli import output

Progress = Callable[[int, int], None]

PATIENCE_SECONDS = 0.5
"""What is done sooner shows no bar."""


@contextmanager
def show_progress(
    message: str, *, in_bytes: bool = False, finally_: str | None = None
) -> Iterator[Progress]:
    """Yield a function to be told what is done, and of how much; it draws on a terminal only.

    Args:
        message: stands before the bar.
        in_bytes: whether bytes are counted, or steps.
        finally_: stands there once all is done, until the block ends.
    """
    if not output.draws_on_stderr():
        yield lambda _done, _total: None
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.DownloadColumn() if in_bytes else bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
    )
    bar = bars.Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(message, total=None)
    start = time.monotonic()

    def tell(done: int, total: int) -> None:
        if not bar.live.is_started and time.monotonic() - start > PATIENCE_SECONDS:
            bar.start()
        bar.update(task, completed=done, total=total)
        if finally_ is not None and done >= total:
            bar.update(task, description=finally_)

    try:
        yield tell
    finally:
        bar.stop()
