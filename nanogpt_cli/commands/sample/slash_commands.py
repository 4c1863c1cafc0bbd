"""The commands of `sample -i`. To add one: a function, and its entry in SLASH_COMMANDS."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanogpt_cli import output
from nanogpt_cli.commands.sample.slash_settings import change_setting, list_settings, reset_setting
from nanogpt_cli.commands.sample.text import SEPARATOR
from nanogpt_cli.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from nanogpt_cli.commands.sample.conversation import Conversation, Exchange


@dataclass(frozen=True)
class SlashCommand:
    """A command.

    Args:
        name: what follows the slash.
        usage: what follows the name, for people.
        help: what it does.
        run: called with the conversation and the rest of the line.
    """

    name: str
    usage: str
    help: str
    run: Callable[[Conversation, str], None]


def run_command(conversation: Conversation, line: str) -> None:
    """Run the command that a line beginning with a slash is.

    Raises:
        UsageError: none of that name, or more or less after it than it takes.
        NanoGPTError: what the command meets.
    """
    name, _, rest = re.sub(r"\s+", " ", line[1:], count=1).partition(" ")
    rest = rest.strip()
    by_name = {command.name: command for command in SLASH_COMMANDS}
    command = by_name.get(name)
    if command is None:
        slashed = [f"/{known}" for known in by_name]
        hint = did_you_mean(f"/{name}", slashed, "/help lists the commands;")
        raise UsageError(
            f"no such command {'/' + name!r}", f"{hint} // begins a prompt with a slash"
        )
    if rest and not command.usage:
        raise UsageError(f"/{command.name} takes nothing after it: {rest!r}", hint="see /help")
    command.run(conversation, rest)


def _set(conversation: Conversation, rest: str) -> None:
    if not rest:
        for line in list_settings(conversation.settings):
            output.say(line)
        return
    conversation.settings = change_setting(conversation.settings, rest)


def _unset(conversation: Conversation, rest: str) -> None:
    conversation.settings = reset_setting(conversation.settings, conversation.start, rest)


def _seed(conversation: Conversation, rest: str) -> None:
    if not rest:
        output.say(f"seed {conversation.settings.seed}")
        return
    conversation.settings = change_setting(conversation.settings, f"seed {rest}")


def _again(conversation: Conversation, _rest: str) -> None:
    conversation.again()


def _more(conversation: Conversation, _rest: str) -> None:
    conversation.more()


def _undo(conversation: Conversation, _rest: str) -> None:
    conversation.last("undone")
    conversation.exchanges.pop()
    left = len(conversation.exchanges)
    output.remark(f"the last text is forgotten, {left} {'is' if left == 1 else 'are'} left")


def _save(conversation: Conversation, rest: str) -> None:
    _write_transcript(conversation, rest, replacing=False)


def _save_over(conversation: Conversation, rest: str) -> None:
    _write_transcript(conversation, rest, replacing=True)


def _write_transcript(conversation: Conversation, rest: str, *, replacing: bool) -> None:
    """Write all texts that were not undone, each under its settings.

    Raises:
        UsageError: no name, nothing to write, or a file that is there and may not be replaced.
        NanoGPTError: the file cannot be written.
    """
    from nanogpt_cli.checkpoints.plans import BytesPlan
    from nanogpt_cli.checkpoints.writing.atomic import write_file

    conversation.last("saved")
    if not rest:
        raise UsageError("/save needs the name of a file", hint="/save texts.txt")
    path = Path(rest).expanduser()
    if path.is_dir() or (path.exists() and not replacing):
        hint = "give the name of a file" if path.is_dir() else f"/save! {rest} replaces it"
        raise UsageError(f"{rest!r} exists already", hint=hint)
    text = "\n".join(_transcribe(exchange) for exchange in conversation.exchanges)
    write_file(path, BytesPlan(text.encode("utf-8", errors="replace")))
    output.remark(f"saved {len(conversation.exchanges)} to {rest!r}")


def _transcribe(exchange: Exchange) -> str:
    settings = ", ".join(list_settings(exchange.settings))
    texts = [f"{exchange.opening}{text}\n" for text in exchange.texts.values()]
    return f"# {settings}\n" + f"{SEPARATOR}\n".join(texts)


def _help(_conversation: Conversation, _rest: str) -> None:
    width = max(len(f"/{command.name} {command.usage}") for command in SLASH_COMMANDS)
    for command in SLASH_COMMANDS:
        output.say(f"{f'/{command.name} {command.usage}':{width}}  {command.help}")
    output.say("Any other line is a prompt; // begins one with a slash. Ctrl-C stops a text.")


def _quit(conversation: Conversation, _rest: str) -> None:
    conversation.over = True


SLASH_COMMANDS = (
    SlashCommand(
        "set", "[NAME VALUE]", "list the settings, or change one: /set temperature 0.5", _set
    ),
    SlashCommand("unset", "NAME", "give a setting its value of the command line", _unset),
    SlashCommand("seed", "[N]", "show the seed, or set it", _seed),
    SlashCommand(
        "again", "", "continue the last prompt anew, under the next seed, which stays", _again
    ),
    SlashCommand("more", "", "go on where the last text ended", _more),
    SlashCommand(
        "undo", "", "forget the last text: /again, /more and /save know it no more", _undo
    ),
    SlashCommand("save", "FILE", "write the texts so far to a new file", _save),
    SlashCommand("save!", "FILE", "the same, replacing a file", _save_over),
    SlashCommand("help", "", "list the commands", _help),
    SlashCommand("quit", "", "leave, as Ctrl-D does", _quit),
)
