"""The command line. `main` is the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import typer
from typer.main import get_command

from nanogpt_cli import __version__, output
from nanogpt_cli.cli import completion
from nanogpt_cli.cli.app import build_app
from nanogpt_cli.cli.complaints import explain

__all__ = ["build_app", "main"]

SPINS = "1000"


def main(argv: list[str] | None = None, *, app: typer.Typer | None = None) -> int:
    """Run `nanogpt` and return its exit code; nothing is raised.

    Args:
        argv: the arguments without the program's name; None takes the process's own.
        app: another app than the one with all commands.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    output.begin()
    _wait_politely()
    try:
        code = _run(get_command(app or build_app()), args)
        output.finish()
    except output.StdoutClosedError:
        output.discard_stdout()
        return 0
    except SystemExit as stop:
        return _code_of(stop)
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except Exception as error:
        return _failed(error, debug=output.is_debug() or "--debug" in args)
    return code


def _wait_politely() -> None:
    """Let threads that wait for each other spin for microseconds only, then sleep.

    OpenMP's own habit is to spin for milliseconds. Where other programs want the cores, too, a
    thread then spins while the one that it waits for is kept from running: decoding was seen to
    fall to a fifteenth, and with this to a half. On an idle machine it costs 3 %. It is read when
    torch is loaded, so it is set before.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def _run(command: Any, args: list[str]) -> int:
    if completion.is_asked():
        output.write_text(completion.answer(command, args))
        return 0
    try:
        with command.make_context("nanogpt", args or ["--help"]) as ctx:
            command.invoke(ctx)
    except typer.Exit as stop:
        return stop.exit_code
    except BrokenPipeError as error:  # of help; what commands write goes through `output`
        raise output.StdoutClosedError(*error.args) from error
    return 0


def _code_of(stop: SystemExit) -> int:
    if isinstance(stop.__context__, BrokenPipeError):  # how rich ends when its help is cut off
        return 0
    return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def _interrupted() -> int:
    _flush_what_there_is()
    newline = "\n" if sys.stdout.isatty() and sys.stderr.isatty() else ""
    output.say(f"{newline}interrupted")
    return 130


def _failed(error: Exception, *, debug: bool) -> int:
    _flush_what_there_is()
    told = explain(error)
    if told is None or debug:
        output.say("".join(traceback.format_exception(error)).rstrip("\n"))
    if told is None:
        output.say(f"error: this is a bug in nanogpt {__version__}: please report the lines above")
        output.say("hint: add what nanogpt doctor prints")
        return 1
    output.say(f"error: {told.message}")
    if told.hint:
        output.say(f"hint: {told.hint}")
    return told.exit_code


def _flush_what_there_is() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        output.discard_stdout()
