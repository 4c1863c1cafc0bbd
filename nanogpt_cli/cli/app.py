"""The Typer app over COMMANDS: what every command has, and how it is written and helped."""

from __future__ import annotations

import copy
import functools
import inspect
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from nanogpt_cli import __version__, output
from nanogpt_cli.cli.complaints import TYPED, no_such_command
from nanogpt_cli.cli.completion import SCRIPTS, Shell
from nanogpt_cli.commands import COMMANDS
from nanogpt_cli.errors import UsageError
from nanogpt_cli.options.general import ConfigOpt, DebugOpt, InitFromOpt, OutDirOpt, QuietOpt
from nanogpt_cli.options.panels import GENERAL

if TYPE_CHECKING:
    from nanogpt_cli.config_files import Key

Function = Callable[..., None]

_HELP = """One command over nanoGPT and GPT-2 checkpoints.

`nanogpt COMMAND --help` lists the options of a command, with examples.

Examples:

    nanogpt sample --prompt "To be"
    nanogpt params gpt2-xl
    nanogpt inspect out/ckpt.pt
"""
_NARROW = 70
"""Columns below which panels would cut off the names of options."""
_SKIPPED = "nanogpt.skipped"
_SOURCES = ("DEFAULT", "DEFAULT_MAP", "ENVIRONMENT", "COMMANDLINE")


def build_app(commands: Iterable[Function] = COMMANDS) -> typer.Typer:
    """Return the Typer app with these commands, in their order in --help."""
    app = typer.Typer(
        name="nanogpt",
        cls=_Group,
        help=_HELP,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "token_normalize_func": lambda name: name.replace("_", "-"),
        },
    )
    app.callback()(_root)
    for command in commands:
        app.command(cls=_Command)(_with_shared_options(command))
    return app


def _show_version(value: bool) -> None:
    if value:
        output.write_text(f"nanogpt {__version__}\n")
        raise typer.Exit


def _show_completion(shell: Shell | None) -> None:
    if shell is not None:
        output.write_text(SCRIPTS[shell].lstrip())
        raise typer.Exit


def _root(
    quiet: QuietOpt = False,
    debug: DebugOpt = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            is_eager=True,
            callback=_show_version,
            rich_help_panel=GENERAL,
            help="Print the version; nanogpt doctor prints more.",
        ),
    ] = False,
    show_completion: Annotated[
        Shell | None,
        typer.Option(
            "--show-completion",
            is_eager=True,
            callback=_show_completion,
            rich_help_panel=GENERAL,
            show_default=False,
            help="Print a script that lets the shell complete commands, options and values; it "
            "says at its top where to put it.",
        ),
    ] = None,
) -> None:
    del version, show_completion
    output.configure(quiet=quiet, debug=debug)


def _general(config: ConfigOpt = None, quiet: QuietOpt = False, debug: DebugOpt = False) -> None:
    """Options of every command; a command that names one of them is passed it."""


def _nanogpts(init_from: InitFromOpt = None, out_dir: OutDirOpt = None) -> None:
    """nanoGPT's way to name the checkpoint, for commands where it may be left out."""


def _with_shared_options(command: Function) -> Function:
    """Return `command` under a signature with the shared options, which it is not passed."""
    own = inspect.signature(command, eval_str=True).parameters
    shared = dict(inspect.signature(_general, eval_str=True).parameters)
    if "checkpoint" in own and own["checkpoint"].default is None:
        shared.update(inspect.signature(_nanogpts, eval_str=True).parameters)

    @functools.wraps(command)
    def run(**values: Any) -> None:
        command(**{name: values[name] for name in own})

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in {**own, **{k: v for k, v in shared.items() if k not in own}}.values()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


class _PlainHelp:
    """Help whose square brackets are brackets, whose paragraphs flow, and which narrows well."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        command: Any = self
        if shutil.get_terminal_size().columns < _NARROW:
            command.rich_markup_mode = None
            command.help = _kept(command.help or "")
            super().format_help(ctx, formatter)  # type: ignore[misc]
            return
        from rich.markup import escape

        for param in command.get_params(ctx):
            if param.name == "help":
                param.rich_help_panel = GENERAL
        for part in (command, *command.params, *getattr(command, "commands", {}).values()):
            if getattr(part, "help", None):
                part.help = escape(_flowing(part.help))
        super().format_help(ctx, formatter)  # type: ignore[misc]


def _flowing(text: str) -> str:
    """Return `text` with the lines of each paragraph joined, but for indented ones: examples."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        paragraph if paragraph.startswith(" ") else paragraph.replace("\n", " ")
        for paragraph in paragraphs
    )


def _kept(text: str) -> str:
    """Return `text` with indented paragraphs marked: their lines are not to be joined."""
    return re.sub(r"(?m)(?<=\n\n)(?= )", "\b\n", text)


class _Group(_PlainHelp, TyperGroup):
    """`nanogpt` itself."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0].replace("_", "-")) is None:
            raise no_such_command(args[0], list(self.commands))
        return super().resolve_command(ctx, args)


class _Command(_PlainHelp, TyperCommand):
    """A subcommand: NANOGPT_* variables, --config, -q, --debug and nanoGPT's ways of writing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        params: list[Any] = self.params
        for param in params:
            if param.param_type_name == "option":
                param.envvar = param.envvar or "NANOGPT_" + _spellings(param)[0].upper()
                param.show_envvar = False
                param.type = copy.copy(param.type)
                param.type.envvar_list_splitter = "\0"  # which no variable holds: `a b` is one text
            if param.name == "config":
                param.callback = self._read_config

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = self._without_dashes(args)
        return super().parse_args(ctx, list(ctx.meta[TYPED]))

    def _without_dashes(self, args: list[str]) -> list[str]:
        """Return `args` with `--prompt -- -x` as `--prompt -x`."""
        kept: list[str] = []
        rest = list(args)
        while rest and kept[-1:] != ["--"]:
            kept.append(rest.pop(0))
            if self._awaits_value(kept[-1]):
                if rest[:1] == ["--"] and len(rest) > 1:
                    del rest[0]
                kept += rest[:1]
                del rest[:1]
        return kept + rest

    def _awaits_value(self, word: str) -> bool:
        """Return whether the word after `word` is its value: `--prompt`, `-p`, `-qp`."""
        options: list[Any] = [p for p in self.params if p.param_type_name == "option"]
        flags = {name for option in options if option.is_flag for name in option.opts}
        names = {name for option in options for name in option.opts} - flags
        if word.startswith("--"):
            return word.replace("_", "-") in names
        *before, last = (f"-{letter}" for letter in word[1:] or "-")
        return word.startswith("-") and flags.issuperset(before) and last in names

    def _read_config(self, ctx: Any, _param: Any, value: Any) -> Any:
        if value is not None:
            from nanogpt_cli import config_files

            settings = config_files.load(Path(value), self.config_keys())
            ctx.default_map = settings.values
            ctx.meta[_SKIPPED] = settings.skipped
        return value

    def config_keys(self) -> dict[str, Key]:
        """Return what an option file may set, by every spelling."""
        from nanogpt_cli.config_files import Key

        assert self.callback is not None, "a command has a function"
        hints = inspect.signature(self.callback, eval_str=True).parameters
        return {
            spelling: Key(param.name, *_plain_type(hints[param.name].annotation))
            for param in self.params
            if param.name is not None and param.name != "config"
            for spelling in _spellings(param)
        }

    def invoke(self, ctx: Any) -> Any:
        output.configure(quiet=ctx.params["quiet"], debug=ctx.params["debug"])
        skipped = ctx.meta.get(_SKIPPED, 0)
        if skipped:
            keys = "key of nanoGPT's that has" if skipped == 1 else "keys of nanoGPT's that have"
            output.note(f"{ctx.params['config']}: passed over {skipped} {keys} no meaning here")
        if "init_from" in ctx.params:
            _take_nanogpts_checkpoint(ctx)
        return super().invoke(ctx)


def _spellings(param: Any) -> list[str]:
    """Return the long names of an option with underscores; of an argument, its name."""
    long = [name[2:].replace("-", "_") for name in param.opts if name.startswith("--")]
    return long or [param.name]


def _plain_type(annotation: Any) -> tuple[type, bool]:
    """Return what a file's value for this annotation is: int, float, bool or str; and if many."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain_type(inner[0])
    if origin is Literal:
        return type(inner[0]), False
    if origin is list:
        return _plain_type(inner[0])[0], True
    if type(None) in inner:
        return _plain_type(next(part for part in inner if part is not type(None)))
    return (annotation if annotation in (int, float, bool) else str), False


def _take_nanogpts_checkpoint(ctx: Any) -> None:
    """Let --init-from and --out-dir name the checkpoint, unless an argument outranks them.

    As in sample.py: `resume`, the default, is ckpt.pt in out_dir; anything else is a name.
    """
    ranks = {
        name: _SOURCES.index(ctx.get_parameter_source(name).name)
        for name in ("checkpoint", "init_from", "out_dir")
    }
    rank = max(ranks["init_from"], ranks["out_dir"])
    if rank == 0 or ranks["checkpoint"] > rank:
        return
    if ranks["checkpoint"] == rank:
        raise UsageError(
            "the checkpoint is named twice: as an argument, and by init_from or out_dir",
            "leave one of them out",
        )
    init_from = ctx.params["init_from"] or "resume"
    resumed = str(Path(ctx.params["out_dir"] or "out") / "ckpt.pt")
    ctx.params["checkpoint"] = resumed if init_from == "resume" else init_from
