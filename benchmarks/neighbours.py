"""Whether something else kept the processors busy while a sample was taken."""

from __future__ import annotations

import os
import time
from pathlib import Path

BUSY = (0, 1, 2, 5, 6, 7)
"""Of /proc/stat's columns: user, nice, system, irq, softirq, steal."""

LOOK_SECONDS = 0.5


class Watch:
    """Processor time from now on, a worker's own and everybody's.

    Args:
        pid: of the worker.
        proc: where Linux tells; without it nothing is known.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._pid, self._proc = pid, proc
        self._start = time.perf_counter()
        self._ticks = self._others()

    def share(self) -> float | None:
        """Return the part of all processors that others took since, or None where it is unknown."""
        ticks = self._others()
        if ticks is None or self._ticks is None:
            return None
        seconds = (ticks - self._ticks) / os.sysconf("SC_CLK_TCK")
        capacity = (time.perf_counter() - self._start) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, seconds / capacity))

    def _others(self) -> int | None:
        try:
            everybody = (self._proc / "stat").read_text().splitlines()[0].split()[1:]
            worker = (self._proc / str(self._pid) / "stat").read_text()
        except OSError:
            return None
        # The name before ") " may hold spaces; utime and stime are fields 14 and 15 of all.
        own = worker.rpartition(")")[2].split()
        return sum(int(everybody[at]) for at in BUSY) - int(own[11]) - int(own[12])


def wait_for_quiet(patience: float, share: float) -> bool:
    """Wait until others take less than `share` of the processors, `patience` seconds at most.

    Returns:
        Whether it came to that; True at once where the system does not tell.
    """
    end = time.monotonic() + patience
    while True:
        watch = Watch(os.getpid())
        time.sleep(LOOK_SECONDS)
        others = watch.share()
        if others is None or others < share:
            return True
        if time.monotonic() > end:
            return False
