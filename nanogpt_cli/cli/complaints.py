"""Errors in the words a user reads: ours, those of Typer's parser, and the machine's."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

import typer

from nanogpt_cli.checkpoints.finding.refs import DEMO, STOCK
from nanogpt_cli.errors import NanoGPTError, UsageError, did_you_mean, nearest

_TYPER_ERROR = [
    base
    for base in typer.BadParameter.__mro__
    if issubclass(base, Exception) and base is not Exception
][-1]
"""The root of the parser's errors. It moves between versions of Typer, BadParameter does not; the
contexts and commands that Typer hands over are of classes it keeps to itself, hence `Any`."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_SYSTEM: dict[int | None, str] = {
    errno.ENOENT: "check the spelling of the path",
    errno.EACCES: "you may not do that there: see ls -l, or use a copy",
    errno.EPERM: "you may not do that there: see ls -l, or use a copy",
    errno.EISDIR: "name a file in the folder",
    errno.ENOTDIR: "a part of the path is a file: check its spelling",
    errno.ENOSPC: "make room on the disk, or write to another",
    errno.EDQUOT: "make room on the disk, or write to another",
    errno.EIO: "the disk does not answer as it should: copy the file to another",
    errno.EMFILE: "too many files are open: raise the limit with ulimit -n",
}
"""What to do about a failure of the system that says no more than what it is."""

_NO_MEMORY = re.compile(
    r"out of memory|can't allocate memory|not enough memory|^MemoryError", re.IGNORECASE
)
"""How torch says it, of a GPU, of Linux and of Windows; and how Python does."""

_NUMBERS = {
    "int": "is not a whole number",
    "integer": "is not a whole number",
    "float": "is not a number",
}
_NUMBER = re.compile(r"is not a valid (int|integer|float)\b")
"""The parser's words for it -> a user's."""

TYPED = "nanogpt.typed"
"""Where a context's `meta` keeps the words that were typed after the command."""


def explain(error: Exception) -> NanoGPTError | None:
    """Return what a user should read about `error`, or None where only a bug can explain it."""
    if isinstance(error, NanoGPTError):
        if error.hint is None and isinstance(error.__cause__, OSError):
            error.hint = _SYSTEM.get(error.__cause__.errno)
        return error
    if isinstance(error, _TYPER_ERROR):
        return _from_parser(error)
    # torch has a type of its own for a GPU's memory alone.
    if isinstance(error, MemoryError | RuntimeError) and _NO_MEMORY.search(repr(error)):
        return _from_memory(error)
    if isinstance(error, OSError):
        return _from_system(error)
    return None


def _from_memory(error: Exception) -> NanoGPTError:
    wanted = re.search(r"tried to allocate ([\d.]+ \w+)", str(error), re.IGNORECASE)
    return NanoGPTError(
        "not enough memory" + (f" for another {wanted[1]}" if wanted else ""),
        "use a smaller model, fewer at once, or a --device that has more",
    )


def _from_system(error: OSError) -> NanoGPTError:
    reason = error.strerror or str(error)
    if error.filename is not None:
        return NanoGPTError(f"{str(error.filename)!r}: {reason}", _SYSTEM.get(error.errno))
    told = f"cannot write: {reason}" if error.errno in _FULL else reason
    return NanoGPTError(told, _SYSTEM.get(error.errno))


def _from_parser(error: Any) -> NanoGPTError:
    ctx: Any = getattr(error, "ctx", None)
    message = error.format_message().strip().rstrip(".")
    message = _NUMBER.sub(lambda found: _NUMBERS[found[1]], message[:1].lower() + message[1:])
    hint = f"see {ctx.command_path} --help" if ctx else None
    if hasattr(error, "possibilities"):
        message = f"no such option {error.option_name!r}"
        hint = _nearest_option(error.option_name, ctx.command) or hint
    elif message.startswith("missing"):
        hint = f"add it: {_how_to_give(ctx, getattr(error, 'param', None))}; {hint}"
    elif "extra argument" in message:
        prompted = ctx is not None and any(p.name == "prompt" for p in ctx.command.params)
        text = 'for a prompt: --prompt "TEXT"' if prompted else "quote a text that has spaces"
        hint = f"{text}; {hint}"
    elif ctx and getattr(error, "param", None):
        typed = _typed(ctx, error.param)
        hints = (_origin(ctx, error.param), _nearest_value(message, error.param))
        hint = "; ".join(filter(None, hints)) or hint
        if typed is not None and repr(typed) not in message:
            message = f"{message}: {typed!r}"
    return NanoGPTError(message, hint, exit_code=error.exit_code)


def _typed(ctx: Any, param: Any) -> Any:
    """Return what the command line says for `param`; newer parsers do not repeat it."""
    parsed, *_ = ctx.command.make_parser(ctx).parse_args(list(ctx.meta.get(TYPED, ())))
    return parsed.get(param.name)


def _origin(ctx: Any, param: Any) -> str | None:
    """Return where a bad value came from, if not from the command line."""
    source = ctx.get_parameter_source(param.name)
    if source is None or source.name not in ("ENVIRONMENT", "DEFAULT_MAP"):
        return None
    if source.name == "DEFAULT_MAP":
        return f"the value comes from the config file {str(ctx.params.get('config'))!r}"
    names = [param.envvar] if isinstance(param.envvar, str) else param.envvar
    return f"the value comes from the environment variable {' or '.join(names)}"


def _how_to_give(ctx: Any, param: Any) -> str:
    if param is None:
        return f"{ctx.command_path} COMMAND"
    if param.param_type_name == "argument":
        return f"{ctx.command_path} {param.metavar or param.name.upper()}"
    return f"{param.opts[0]} {param.metavar or param.type.name.upper()}"


def _nearest_value(message: str, param: Any) -> str | None:
    """Return a hint with the value that is meant, where the parser quotes one of too many."""
    quoted = re.search(r"'([^']*)' is not one of", message)
    close = nearest(quoted[1], param.type.choices) if quoted else None
    return None if close is None else f"did you mean {close}?"


def _nearest_option(name: str, command: Any) -> str | None:
    """Return a hint with the option of this command, or of a subcommand, that `name` may mean."""
    close = nearest(name, _option_names(command))
    if close is not None:
        return f"did you mean {close}?"
    for subcommand in getattr(command, "commands", {}).values():
        if name in _option_names(subcommand):
            return f"it follows the command: nanogpt {subcommand.name} {name}"
    return None


def _option_names(command: Any) -> list[str]:
    params = [param for param in command.params if param.param_type_name == "option"]
    return [name for param in params for name in (*param.opts, *param.secondary_opts)]


def no_such_command(name: str, known: list[str]) -> UsageError:
    """Return the error for a first word that is none of the commands."""
    if not known:
        return UsageError(f"no such command {name!r}")
    hint = did_you_mean(name, known, f"the commands are {', '.join(known)}")
    if os.path.lexists(name) or name in (*STOCK, DEMO):
        hint = f"a command comes first: nanogpt {known[0]} {name}"
    return UsageError(f"no such command {name!r}", hint)
