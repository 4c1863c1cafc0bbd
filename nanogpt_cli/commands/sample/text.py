"""`sample` in text mode: the samples as they grow, and what is said after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nanogpt_cli import output
from nanogpt_cli.commands.sample.color import Paint, no_paint
from nanogpt_cli.output.numbers import format_seconds

if TYPE_CHECKING:
    from nanogpt_cli.generation.prompt import Prompt
    from nanogpt_cli.generation.report import Timing
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.settings import SampleSettings
    from nanogpt_cli.generation.text import Piece

SEPARATOR = "-" * 15


@dataclass(frozen=True)
class Manner:
    """How samples are printed.

    Args:
        echo: the prompt before each.
        stream: as they grow, or each when it is done.
        paint: the style of each piece.
    """

    echo: bool = True
    stream: bool = True
    paint: Paint = no_paint

    def scored(self, settings: SampleSettings) -> SampleSettings:
        """Return the settings with what the paint needs to know of each token."""
        return settings if self.paint is no_paint else replace(settings, logprobs=0)


def print_samples(
    session: Session,
    prompt: Prompt,
    settings: SampleSettings,
    manner: Manner,
    keep: Callable[[Piece], None] = lambda _: None,
) -> None:
    """Sample, print the texts, then say how it went.

    Args:
        keep: told of every piece before it is printed.
    """
    from nanogpt_cli.generation.loops import LoopWatch
    from nanogpt_cli.generation.report import Timing

    timing, loops = Timing(), LoopWatch()
    pieces = loops.watch(session.sample(prompt, settings, timing))
    write_samples(_kept(pieces, keep), session.opening(prompt) if manner.echo else "", manner)
    for message in loops.advise(settings):
        output.note(message)
    output.remark(summarise(session, settings, timing))


def _kept(pieces: Iterator[Piece], keep: Callable[[Piece], None]) -> Iterator[Piece]:
    for piece in pieces:
        keep(piece)
        yield piece


def write_samples(pieces: Iterator[Piece], opening: str, manner: Manner) -> None:
    """Print samples with a line of hyphens between."""
    painted = None if manner.paint is no_paint else ""
    page = _Page(manner.stream)
    started = False
    try:
        for piece in pieces:
            if not started:
                page.write((f"{SEPARATOR}\n" if piece.index else "") + opening, painted)
                started = True
            style = manner.paint(piece)
            if piece.text:
                page.write(piece.text, style)
            if piece.finish_reason is not None:
                page.write("\n", painted)
                page.turn()
                started = False
    except KeyboardInterrupt:
        page.turn()
        raise


@dataclass
class _Page:
    """Written through, or held until it is turned."""

    stream: bool
    _held: list[tuple[str, str | None]] = field(default_factory=list)

    def write(self, text: str, style: str | None) -> None:
        if self.stream:
            output.write_text(text, style)
        else:
            self._held.append((text, style))

    def turn(self) -> None:
        for text, style in self._held:
            output.write_text(text, style)
        self._held.clear()


def summarise(session: Session, settings: SampleSettings, timing: Timing) -> str:
    """Return the closing line of a run in text mode."""
    facts = [f"{timing.new_tokens} tokens" if timing.new_tokens != 1 else "1 token"]
    if timing.tokens_per_second is not None and timing.first_token_seconds is not None:
        facts.append(f"{timing.tokens_per_second:.1f} tokens/s")
        facts.append(f"first token after {format_seconds(timing.first_token_seconds)}")
    facts += [str(session.device), session.dtype_name, f"seed {settings.seed}"]
    facts.append(f"finished by {' and '.join(timing.finish_reasons)}")
    return ", ".join(facts)
