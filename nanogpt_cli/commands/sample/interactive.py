"""`nanogpt sample -i`: prompts and commands, a line each, while the model stays loaded.

What is remembered is in `conversation`, the commands are in `slash_commands`, and where lines come
from is in `interactive_lines`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from nanogpt_cli import output
from nanogpt_cli.commands.sample.conversation import Conversation
from nanogpt_cli.commands.sample.interactive_lines import Lines, open_lines
from nanogpt_cli.commands.sample.slash_commands import run_command
from nanogpt_cli.commands.sample.text import Manner
from nanogpt_cli.errors import NanoGPTError

if TYPE_CHECKING:
    from nanogpt_cli.generation.engine import Engine
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.settings import SampleSettings

SOME_FAILED = 3


def converse(
    session: Session, settings: SampleSettings, manner: Manner, prompt: str | None = None
) -> int:
    """Take prompts and commands until there are no more; return the exit code.

    On a terminal Ctrl-C stops a text and not the program, and the code is 0; elsewhere it is
    SOME_FAILED where a line could not be obeyed.

    Args:
        prompt: what `--prompt` gave, continued first.
    """
    from nanogpt_cli.generation.prompt import read_prompt

    first = None if prompt is None else read_prompt(prompt, None)
    if settings.rng == "per-sample":
        _load(session)
    conversation = Conversation(session, settings, settings, manner)
    with open_lines() as lines:
        if lines.on_terminal:
            output.note("a prompt a line; /help lists the commands, Ctrl-D leaves")
        if first is not None:
            _try(conversation, partial(conversation.answer, first), lines)
        while not conversation.over and (line := lines.read()) is not None:
            _try(conversation, partial(take, conversation, line), lines)
    return SOME_FAILED if conversation.failures and not lines.on_terminal else 0


def take(conversation: Conversation, line: str) -> None:
    """Obey one line: a command, or a prompt where it begins with no slash or with two."""
    from nanogpt_cli.generation.prompt import PromptText
    from nanogpt_cli.tokenizers.base import replace_surrogates

    if line.startswith("/") and not line.startswith("//"):
        run_command(conversation, line)
    elif line.strip():
        text, _ = replace_surrogates(line.removeprefix("/") if line[0] == "/" else line)
        conversation.answer(PromptText(text))


def _load(session: Session) -> Engine:
    """Have the model in memory before the first prompt, not after it."""
    with output.status("loading the model"):
        return session.engine


def _try(conversation: Conversation, action: Callable[[], None], lines: Lines) -> None:
    """Do what a line asks; what goes wrong with it is told, and the next one is read."""
    try:
        action()
    except NanoGPTError as error:
        conversation.failures += 1
        output.say(f"error: {error.message}")
        if error.hint:
            output.say(f"hint: {error.hint}")
    except KeyboardInterrupt:
        if not lines.on_terminal:
            raise
        output.write_text("\n")
        output.say("interrupted: /more goes on with the text, /again starts another")
