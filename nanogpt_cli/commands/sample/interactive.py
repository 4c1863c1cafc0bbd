"""`nanogpt sample -i`: prompts and commands, a line each, while the model stays loaded.

The commands themselves are in `slash_commands`, where lines come from in `interactive_lines`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from nanogpt_cli import output
from nanogpt_cli.commands.sample.interactive_lines import Lines, open_lines
from nanogpt_cli.commands.sample.slash_commands import run_command
from nanogpt_cli.commands.sample.text import Manner, print_samples
from nanogpt_cli.errors import NanoGPTError, UsageError

if TYPE_CHECKING:
    from nanogpt_cli.generation.engine import Engine
    from nanogpt_cli.generation.prompt import Prompt, PromptText
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.settings import SampleSettings
    from nanogpt_cli.generation.text import Piece

SOME_FAILED = 3


@dataclass
class Exchange:
    """A prompt and what was made of it.

    Args:
        prompt: its ids, and the text that stands before the samples.
        opening: that text as it is printed.
        settings: under which it was continued.
        echo: whether the opening was printed.
        texts: the new text of each sample, as far as it came.
        ids: its tokens.
    """

    prompt: Prompt
    opening: str
    settings: SampleSettings
    echo: bool
    texts: dict[int, str] = field(default_factory=dict)
    ids: dict[int, list[int]] = field(default_factory=dict)

    def keep(self, piece: Piece) -> None:
        """Add a piece to its sample."""
        self.texts[piece.index] = self.texts.get(piece.index, "") + piece.text
        self.ids.setdefault(piece.index, []).extend([] if piece.id is None else [piece.id])


@dataclass
class Conversation:
    """What a line may look at and change.

    Args:
        session: the model.
        start: the settings of the command line, to which `/unset` returns.
        settings: those in force.
        manner: how texts are printed.
        exchanges: so far, without what was undone.
        failures: lines that could not be obeyed.
        over: whether the next line is not asked for.
    """

    session: Session
    start: SampleSettings
    settings: SampleSettings
    manner: Manner
    exchanges: list[Exchange] = field(default_factory=list)
    failures: int = 0
    over: bool = False

    def take(self, line: str) -> None:
        """Obey one line: a command, or a prompt where it begins with no slash or with two.

        Raises:
            NanoGPTError: what is wrong with it.
        """
        from nanogpt_cli.generation.prompt import PromptText
        from nanogpt_cli.tokenizers.base import replace_surrogates

        if line.startswith("/") and not line.startswith("//"):
            run_command(self, line)
        elif line.strip():
            text, _ = replace_surrogates(line.removeprefix("/") if line[0] == "/" else line)
            self.answer(PromptText(text))

    def answer(self, text: PromptText) -> None:
        """Continue a prompt."""
        prompt = self.session.encode(text, special=self.settings.special)
        for message in prompt.notes:
            output.note(message)
        opening = self.session.opening(prompt)
        self.sample(Exchange(prompt, opening, self.settings, self.manner.echo))

    def again(self) -> None:
        """Continue the last prompt under the next seed, which stays."""
        last = self.last("continued again")
        self.settings = replace(self.settings, seed=self.settings.seed + 1)
        self.sample(Exchange(last.prompt, last.opening, self.settings, last.echo))

    def more(self) -> None:
        """Go on where the last text ended; only what is new is printed.

        By its tokens, as if it had never ended; by its text where that was cut inside a token.
        """
        from nanogpt_cli.generation.prompt import Prompt, PromptText

        last = self.last("gone on with")
        if not last.ids:
            raise UsageError("the last text has not begun yet", hint="/again begins another")
        number = max(last.ids)
        ids, new = last.ids[number], last.texts[number]
        prompt = Prompt(last.opening + new, (*last.prompt.ids, *ids))
        if self.session.tokenizer.decode(ids) != new:
            special = self.settings.special
            prompt = self.session.encode(PromptText(last.opening + new), special=special)
        self.sample(Exchange(prompt, self.session.opening(prompt), self.settings, echo=False))

    def sample(self, exchange: Exchange) -> None:
        """Print an exchange's samples, and keep it, with what there is of it when interrupted."""
        for message in self.session.advise(exchange.settings):
            output.note(message)
        manner = replace(self.manner, echo=exchange.echo)
        settings = manner.scored(exchange.settings)
        self.exchanges.append(exchange)
        print_samples(self.session, exchange.prompt, settings, manner, exchange.keep)

    def last(self, done: str) -> Exchange:
        """Return the last exchange.

        Raises:
            UsageError: there is none to be `done` anything to.
        """
        if not self.exchanges:
            raise UsageError(f"there is no text yet that could be {done}", hint="type a prompt")
        return self.exchanges[-1]


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
            _try(conversation, partial(conversation.take, line), lines)
    return SOME_FAILED if conversation.failures and not lines.on_terminal else 0


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
