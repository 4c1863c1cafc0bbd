"""Where `sample -i` gets its lines: a terminal with editing and history, or a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Protocol

from nanogpt_cli import output

MARK = "> "
HISTORY_LINES = 1000


class Lines(Protocol):
    """A source of lines.

    Attributes:
        on_terminal: whether somebody sits there.
    """

    on_terminal: bool

    def read(self) -> str | None:
        """Return the next line without its end, or None after the last."""


@contextlib.contextmanager
def open_lines() -> Iterator[Lines]:
    """Give standard input's lines; on a terminal the history is kept when the block ends."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield PipedLines(getattr(sys.stdin, "buffer", None))
    elif not sys.stdout.isatty():
        yield BareTerminalLines()
    else:
        with _history():
            yield TerminalLines()


class PipedLines:
    """Lines of a pipe or a file, in UTF-8; what is not becomes U+FFFD."""

    on_terminal = False

    def __init__(self, stream: BinaryIO | None) -> None:
        self._stream = stream

    def read(self) -> str | None:
        data = self._stream.readline() if self._stream is not None else b""
        if not data:
            return None
        return data.decode("utf-8", errors="replace").removeprefix("\ufeff").rstrip("\r\n")


class TerminalLines:
    """Lines typed after a mark; Ctrl-C drops the line, Ctrl-D at its start leaves."""

    on_terminal = True

    def read(self) -> str | None:
        while True:
            try:
                return _as_utf8(self._ask())
            except KeyboardInterrupt:
                output.say("")
            except EOFError:
                output.say("")
                return None

    def _ask(self) -> str:
        return input(MARK)


class BareTerminalLines(TerminalLines):
    """The same where stdout is no terminal, and must not get the mark."""

    def _ask(self) -> str:
        print(MARK, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


def _as_utf8(line: str) -> str:
    """Return a line as the UTF-8 that was typed, where the locale knew only ASCII."""
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Give `input` editing and the lines of earlier runs, as far as the machine has them.

    Whether they can be read or written never matters to the run.
    """
    try:
        import readline
    except ImportError:  # not on Windows, whose console edits lines itself
        yield
        return
    path = history_path()
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    before = readline.get_current_history_length()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _save_history(readline, path, readline.get_current_history_length() - before)


def history_path() -> Path:
    """Return where the history is kept: in the XDG state folder."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    base = state if state.is_absolute() else Path("~/.local/state").expanduser()
    return base / "nanogpt" / "history"


def _save_history(readline: ModuleType, path: Path, new_lines: int) -> None:
    """Add the new lines to a file that only its owner reads."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    path.chmod(0o600)
    readline.set_history_length(HISTORY_LINES)
    if hasattr(readline, "append_history_file"):
        readline.append_history_file(new_lines, path)
    else:
        readline.write_history_file(path)
