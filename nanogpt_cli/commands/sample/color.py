"""`sample --color prob`: text in the colour of the probability that the model gave it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanogpt_cli import output

if TYPE_CHECKING:
    from nanogpt_cli.generation.text import Piece

Paint = Callable[["Piece"], str | None]
"""From a piece to the codes of its style; None leaves text as the terminal's owner has it."""


@dataclass(frozen=True)
class Level:
    """A range of probabilities and how it looks.

    The likeliest keeps the terminal's own colour, and the unlikely are marked beside theirs, so
    that the eye need not tell one hue from another. Colours are as far from black as from white:
    the background may be either.

    Args:
        least: the probability from which it holds.
        label: the range in words.
        marks: codes for underlined and bold.
        colors: codes and name, by how many colours the terminal has.
    """

    least: float
    label: str
    marks: str
    colors: dict[int, tuple[str, str]]


PLAIN = ("", "plain")

LEVELS = (
    Level(0.5, "50 % or more", "", {16: PLAIN, 256: PLAIN, output.TRUE_COLOR: PLAIN}),
    Level(
        0.1,
        "10 to 50 %",
        "",
        {
            16: ("94", "blue"),
            256: ("38;5;63", "blue"),
            output.TRUE_COLOR: ("38;2;88;98;255", "blue"),
        },
    ),
    Level(
        0.01,
        "1 to 10 %",
        "4",
        {
            16: ("35", "magenta underlined"),
            256: ("38;5;130", "orange underlined"),
            output.TRUE_COLOR: ("38;2;176;98;0", "orange underlined"),
        },
    ),
    Level(
        0.0,
        "below 1 %",
        "1;4",
        {
            16: ("31", "red bold underlined"),
            256: ("38;5;160", "red bold underlined"),
            output.TRUE_COLOR: ("38;2;222;48;36", "red bold underlined"),
        },
    ),
)
"""From the likeliest down."""


def style_of(level: Level, depth: int) -> str:
    """Return the codes of a level for a terminal of so many colours."""
    return ";".join(code for code in (level.marks, level.colors[depth][0]) if code)


def level_of(logprob: float) -> Level:
    """Return the level of a token by the natural logarithm of its probability."""
    return next(level for level in LEVELS if math.exp(logprob) >= level.least)


@dataclass
class Painter:
    """Finds each piece's style; samples come one after another.

    A character that takes several tokens comes with the last of them, and has the colour of the
    unlikeliest.

    Args:
        depth: colours of the terminal.
    """

    depth: int
    _waiting: float = 0.0

    def __call__(self, piece: Piece) -> str:
        """Return the codes for the piece's text."""
        if piece.score is not None:
            self._waiting = min(self._waiting, piece.score.logprob)
        style = style_of(level_of(self._waiting), self.depth) if piece.text else ""
        if piece.text or piece.finish_reason is not None:
            self._waiting = 0.0
        return style


def no_paint(_piece: Piece) -> None:
    """Leave text as it is."""


def choose_paint(color: str) -> Paint:
    """Return the painter that `--color` asks for and print its legend, or say why there is none."""
    if color == "off":
        return no_paint
    depth, reason = output.color_depth("stdout")
    if depth == 0:
        output.note(f"--color {color}: {reason}, so the text is plain")
        return no_paint
    output.note_styled([("note: probability by the model: ", ""), *_legend(depth)])
    return Painter(depth)


def _legend(depth: int) -> Iterator[tuple[str, str]]:
    for place, level in enumerate(LEVELS):
        yield (", " if place else ""), ""
        yield f"{level.colors[depth][1]} {level.label}", style_of(level, depth)
