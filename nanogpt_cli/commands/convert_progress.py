"""A bar on a terminal while a file is written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]


@contextmanager
def show_progress(message: str) -> Iterator[Progress]:
    """Yield a function to be told bytes done and bytes in all; it draws on a terminal only.

    The bar appears with the first byte, and goes when the block ends.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _done, _total: None
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TimeRemainingColumn(),
    )
    bar = bars.Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(message, total=None)

    def tell(done: int, total: int) -> None:
        if not bar.live.is_started:
            bar.start()
        bar.update(task, completed=done, total=total)
        if done >= total:
            bar.update(task, description="verifying")

    try:
        yield tell
    finally:
        bar.stop()
