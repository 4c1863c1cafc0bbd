"""A terminal for a child process: what a person types, and what they see."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence

PATIENCE_SECONDS = 120.0
"""For a machine that has much else to do: nothing here is a measurement."""

NANOGPT = (sys.executable, "-m", "nanogpt_cli")

LAUNCH = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal the one that Ctrl-C comes from."""


class Terminal:
    """A program on a terminal of its own, stdin, stdout and stderr alike.

    Args:
        words: the arguments.
        program: what is run, with its first arguments; None is `nanogpt`.
        environment: changes to the variables; TERM is `xterm` unless it is among them.
    """

    def __init__(
        self, *words: object, program: Sequence[str] | None = None, **environment: str
    ) -> None:
        self._mine, theirs = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *(program or NANOGPT), *map(str, words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", **environment},
        )
        os.close(theirs)
        self.screen = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._mine)

    def type(self, keys: str) -> None:
        """Send keys, Enter being `\\r` and Ctrl-C `\\x03`."""
        os.write(self._mine, keys.encode())

    def wait_for(self, text: str) -> str:
        """Return what came on the screen up to and with `text`, since the last wait."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self.screen:
            if not self._read(deadline):
                raise AssertionError(f"no {text!r} came; there was {self.screen!r}")
        before, _, self.screen = self.screen.partition(text)
        return before + text

    def close(self) -> tuple[int, str]:
        """Return the exit code and the rest of the screen, when the process has ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._read(deadline):
            pass
        return self.process.wait(timeout=PATIENCE_SECONDS), self.screen

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._mine], [], [], max(0.0, deadline - time.monotonic()))
        try:
            data = os.read(self._mine, 65536) if ready else b""
        except OSError:  # how Linux says that nobody is at the other end
            return False
        self.screen += data.decode("utf-8", errors="replace")
        return bool(data)
