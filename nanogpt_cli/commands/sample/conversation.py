"""What `nanogpt sample -i` remembers: the settings in force, and what was said so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nanogpt_cli import output
from nanogpt_cli.commands.sample.text import Manner, print_samples
from nanogpt_cli.errors import UsageError

if TYPE_CHECKING:
    from nanogpt_cli.generation.prompt import Prompt, PromptText
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.settings import SampleSettings
    from nanogpt_cli.generation.text import Piece


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
