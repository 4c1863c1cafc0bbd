"""Noticing texts that end in the same stretch over and over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.text import Piece

LEAST_REPEATS = 4
LEAST_TOKENS = 48
"""What the repeats must hold together: `never, never, never, never` is verse."""

LEAST_RUN = 128
"""The same for one token over and over: a line of hyphens or of blanks is no loop."""

WINDOW = 4096
"""Tokens at a text's end that are looked at; no longer stretch would be seen to come back."""


@dataclass(frozen=True)
class Loop:
    """The end of a text that repeats itself.

    Args:
        period: tokens in the stretch.
        repeats: how many whole times it stands there.
    """

    period: int
    repeats: int


def find_loop(ids: Sequence[int]) -> Loop | None:
    """Return the loop that a text ends in, or None.

    That is its longest end in which every token equals the one `period` before it, where that end
    holds at least LEAST_REPEATS periods and LEAST_TOKENS tokens, LEAST_RUN where the period is 1.
    Takes time linear in the tokens.

    Source: the failure function of Knuth, Morris and Pratt, doi:10.1137/0206024.
    """
    backwards = ids[-WINDOW:][::-1]
    borders = [0] * len(backwards)  # of each beginning: its longest border, so its period
    found = None
    for place in range(1, len(backwards)):
        border = borders[place - 1]
        while border and backwards[place] != backwards[border]:
            border = borders[border - 1]
        borders[place] = border + (backwards[place] == backwards[border])
        length = place + 1
        period = length - borders[place]
        least = LEAST_RUN if period == 1 else LEAST_TOKENS
        if length >= max(least, LEAST_REPEATS * period):
            found = Loop(period, length // period)
    return found


@dataclass
class LoopWatch:
    """Counts the texts that end in a loop, as they pass.

    Args:
        texts: how many have ended.
        loops: of those that end in one.
    """

    texts: int = 0
    loops: list[Loop] = field(default_factory=list)

    def watch(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Pass on the pieces of texts that come one after another."""
        recent: deque[int] = deque(maxlen=WINDOW)
        for piece in pieces:
            if piece.id is not None:
                recent.append(piece.id)
            if piece.finish_reason is not None:
                self.texts += 1
                found = find_loop(list(recent))
                self.loops += [found] if found else []
                recent.clear()
            yield piece

    def advise(self, settings: SampleSettings) -> Iterator[str]:
        """Say that texts loop, and what to try."""
        if not self.loops:
            return
        cures = ["a higher --temperature"]
        if settings.rng == "per-sample":
            cures.insert(0, "--repetition-penalty 1.2")
        which = "the text ends"
        if self.texts > 1:
            which = f"{len(self.loops)} of {self.texts} texts end"
        first = self.loops[0]
        where = f"in {first.period} tokens that stand there {first.repeats} times over"
        if first.period == 1:
            where = f"in one token, {first.repeats} times over"
        yield f"{which} in a loop, {where}: try {' or '.join(cures)}"
