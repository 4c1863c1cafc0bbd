"""What reaches the user: results on stdout, everything else on stderr.

Text from models and files never passes through markup. rich is imported where it draws, so that
a command that prints a line stays quick.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from nanogpt_cli.errors import NanoGPTError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Report(Protocol):
    """A frozen dataclass of plain values; `schema` (a field or a ClassVar) is "nanogpt.NAME/1"."""

    @property
    def schema(self) -> str:
        """The name under which scripts know the fields."""


R = TypeVar("R", bound=Report)


TRUE_COLOR = 1 << 24
_FORCED_DEPTHS = {"2": 256, "3": TRUE_COLOR}


class StdoutClosedError(BrokenPipeError):
    """Whoever read our stdout has gone, as `head` does: nothing is left to say."""


@dataclasses.dataclass
class _Session:
    """What holds for one call of `main`."""

    quiet: bool = False
    debug: bool = False
    said: set[str] = dataclasses.field(default_factory=set)


_session = _Session()


def begin() -> None:
    """Forget the last call's settings and notes; make both streams UTF-8 and unable to raise.

    PYTHONIOENCODING keeps its say over the encoding; what that cannot spell is escaped.
    """
    _session.quiet = _session.debug = False
    _session.said.clear()
    encoding = None if os.environ.get("PYTHONIOENCODING") else "utf-8"
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def configure(*, quiet: bool, debug: bool) -> None:
    """Heed -q and --debug, for the rest of this call of `main`."""
    _session.quiet |= quiet
    _session.debug |= debug


def is_debug() -> bool:
    """Return whether errors show their traceback."""
    return _session.debug


def emit(report: R, as_json: bool, render: Callable[[R], RenderableType | str]) -> None:
    """Print a report: one line of JSON, or what `render` makes of it.

    Text that `render` returns is printed as it is, plus a newline.
    """
    if as_json:
        write_text(to_json(report) + "\n")
        return
    drawn = render(report)
    if isinstance(drawn, str):
        write_text(drawn + "\n")
        return
    console = _console_for(drawn)
    with _writing(), console.capture() as capture:
        console.print(drawn)
    text = capture.get()
    _write(text if sys.stdout.isatty() else re.sub(" +$", "", text, flags=re.MULTILINE))


def to_json(report: Report) -> str:
    """Return the report as one JSON object on one line, `schema` first, NaN and infinity null."""
    fields = {"schema": report.schema, **_plain(report)}
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return `value` as JSON knows it: dataclasses as objects, paths as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        names = [field.name for field in fields if field.metadata.get("json", True)]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    raise TypeError(f"a report holds a {type(value).__name__}, which JSON has no word for")


def _console_for(drawn: RenderableType) -> Console:
    """Return a console for stdout: a terminal's own width, else as wide as the content."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    if not sys.stdout.isatty():
        roomy = console.options.update(width=100_000)
        console.width = max(80, Measurement.get(console, roomy, drawn).maximum)
    return console


def write_text(text: str, style: str | None = None) -> None:
    """Write `text` to stdout as it is, in UTF-8, and flush; lone surrogates become U+FFFD.

    On a terminal, control characters are shown instead of obeyed: a model may emit any. So they
    are in a style, which only a terminal is in the end to see.

    Args:
        style: codes such as `1;31`, "" for none among text that has them; see `color_depth`.
    """
    if style is not None or sys.stdout.isatty():
        text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: visible(found[0]), text)
    _write(_styled(text, style) if style else text)


def _styled(text: str, style: str) -> str:
    """Return `text` in a style that ends with every line, so that none is left open."""
    return re.sub("[^\n]+", lambda found: f"\x1b[{style}m{found[0]}\x1b[0m", text)


def color_depth(name: str) -> tuple[int, str]:
    """Return how many colours "stdout" or "stderr" takes, 0, 16, 256 or TRUE_COLOR; and why none.

    FORCE_COLOR may say it: 0 none, 2 for 256, 3 for all; else COLORTERM and TERM do.
    """
    forced = os.environ.get("FORCE_COLOR", "")
    term, stream = os.environ.get("TERM", ""), getattr(sys, name)
    if os.environ.get("NO_COLOR"):
        return 0, "NO_COLOR is set"
    if forced in ("0", "false"):
        return 0, f"FORCE_COLOR is {forced}"
    if not forced and not stream.isatty():
        return 0, f"{name} is no terminal (FORCE_COLOR=1 colours it nevertheless)"
    if not forced and term in ("dumb", "unknown"):
        return 0, f"the terminal is {term}"
    if forced in _FORCED_DEPTHS:
        return _FORCED_DEPTHS[forced], ""
    if os.environ.get("COLORTERM") in ("truecolor", "24bit") or term.endswith("-direct"):
        return TRUE_COLOR, ""
    return (256 if "256color" in term else 16), ""


def _write(text: str) -> None:
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    stream = sys.stdout
    with _writing():
        buffer = getattr(stream, "buffer", None)
        if buffer is None or (stream.encoding or "").lower().replace("-", "") != "utf8":
            stream.write(text)
            stream.flush()
            return
        stream.flush()
        rest = memoryview(text.encode("utf-8"))
        while rest:  # python -u writes to the pipe itself, which may take less than it is given
            rest = rest[buffer.write(rest) :]
        buffer.flush()


def finish() -> None:
    """Flush stdout, so that what goes wrong there is told and not lost at exit."""
    with _writing():
        sys.stdout.flush()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Tell a closed pipe and a full disk under stdout from the same on any other file."""
    try:
        yield
    except BrokenPipeError as error:
        raise StdoutClosedError(*error.args) from error
    except OSError as error:
        raise NanoGPTError(f"cannot write to standard output: {error.strerror}") from error


def discard_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def note(message: str) -> None:
    """Print `note: message` to stderr, once a call of `main`; -q silences it."""
    if not _session.quiet:
        _say_once(f"note: {message}")


def note_styled(spans: Iterable[tuple[str, str]]) -> None:
    """Print a line of texts and their styles to stderr, plain where it takes none; -q silences."""
    has_color = color_depth("stderr")[0] > 0
    line = "".join(_styled(text, style) if style and has_color else text for text, style in spans)
    if not _session.quiet:
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)


def remark(line: str) -> None:
    """Print a line to stderr as it is, however often it comes; -q silences it."""
    if not _session.quiet:
        say(line)


def warn(message: str) -> None:
    """Print `warning: message` to stderr, once a call of `main`, whatever -q says."""
    _say_once(f"warning: {message}")


def _say_once(line: str) -> None:
    if line not in _session.said:
        _session.said.add(line)
        say(line)


def say(line: str) -> None:
    """Print a line to stderr; a stderr that is gone is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        print(visible(line, keep="\n\t"), file=sys.stderr, flush=True)


def draws_on_stderr() -> bool:
    """Return whether bars and spinners are wanted, and can be drawn."""
    return not _session.quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextlib.contextmanager
def status(message: str) -> Iterator[None]:
    """Show `message` with a spinner on stderr while the block runs, if that is a terminal."""
    if not draws_on_stderr():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(message))):
        yield


def visible(text: str, keep: str = "") -> str:
    """Return `text` with what a terminal would obey or hide spelled out, as `\\x1b`.

    Control and format characters, bidirectional overrides among them, separators of lines, and
    lone surrogates; those in `keep` stay.
    """
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in keep
        else char
        for char in text
    )
