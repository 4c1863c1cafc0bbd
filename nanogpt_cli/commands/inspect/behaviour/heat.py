"""Heat maps in characters: they fit the terminal, and read the same without colour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from nanogpt_cli.output import visible

LONGEST_LABEL = 20
MARGIN = len("layer")
TICKS_EVERY = 10
"""Characters from one number to the next above a map."""

SHADES = (("█", 0.7, "red"), ("▓", 0.4, "magenta"), ("▒", 0.2, "cyan"), ("░", 0.05, "blue"))
"""Glyph, the share from which it stands, and its colour, one of the sixteen."""

QUIET = "dim"

FAINT = ("·", QUIET)
"""Less than that."""

LEGEND = "· below 5 %   ░ from 5 %   ▒ from 20 %   ▓ from 40 %   █ from 70 %"


FAINT_BELOW, STRONG_FROM = 0.05, 0.5
"""Shares of the largest number at which the colour of one changes."""


def shade(share: float) -> tuple[str, str]:
    """Return the glyph and the colour of a share, 0 to 1."""
    for glyph, least, colour in SHADES:
        if share >= least:
            return glyph, colour
    return FAINT


@dataclass(frozen=True)
class SquareMap:
    """A map of T rows by T columns, with nothing above its diagonal.

    Where T is more than fits, each cell is the largest of a square of k by k.

    Args:
        labels: one a row, shown as they are, cut where they are long.
        weights: (T, T), 0 to 1.
    """

    labels: Sequence[str]
    weights: Sequence[Sequence[float]]

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        whole = self._margin(options.max_width) + 2 * len(self.weights)
        return Measurement(min(40, whole), whole)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        T, margin = len(self.weights), self._margin(options.max_width)
        room = max(1, options.max_width - margin)
        pool = -(-T // room)
        width = 2 if room >= 2 * T else 1
        if pool > 1:
            yield Text(f"each cell is the largest of {pool} x {pool} weights", style="bold")
        yield Text(" " * margin + _ticks(-(-T // pool), pool, width), style=QUIET)
        for start in range(0, T, pool):
            line = Text(no_wrap=True, overflow="crop")
            line.append(set_cell_size(self._label(start, pool), margin - 1) + " ")
            for column in range(0, start + pool, pool):
                if column < T:
                    glyph, colour = shade(self._largest(start, column, pool))
                    line.append(glyph * width if glyph != FAINT[0] else f"{glyph:<{width}}", colour)
            line.rstrip()
            yield line

    def _margin(self, max_width: int) -> int:
        longest = max(cell_len(self._label(row, 1)) for row in range(len(self.labels)))
        return min(longest, LONGEST_LABEL, max(4, max_width // 4)) + 1

    def _label(self, row: int, pool: int) -> str:
        last = min(row + pool, len(self.labels)) - 1
        digits = len(str(len(self.labels) - 1))
        number = f"{row:>{digits}}"
        return f"{number} {visible(self.labels[row])}" if pool == 1 else f"{number}-{last}"

    def _largest(self, row: int, column: int, pool: int) -> float:
        rows = self.weights[row : row + pool]
        return max(max(weights[column : column + pool]) for weights in rows)


def _ticks(cells: int, pool: int, width: int) -> str:
    """Return the column numbers, one every few cells."""
    step = TICKS_EVERY // width
    numbers = (f"{cell * pool:<{TICKS_EVERY}}" for cell in range(0, cells, step))
    return "".join(numbers)[: max(cells * width, len(str(0)))].rstrip()


@dataclass(frozen=True)
class LayerMap:
    """Signed numbers by layer and part: as numbers where they fit, else as shades.

    Shades, and colours, are shares of the largest: of the heads, and of the rest. A shade is two
    characters, a sign and one of `·░▒▓█`.

    Args:
        columns: what stands above those after the heads, in full and in one character.
        rows: a layer's values, the heads first; None is a blank.
    """

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[float | None]]

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        least = MARGIN + 2 * len(self._names())
        return Measurement(least, max(least, MARGIN + sum(self._widths())))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        room, count = options.max_width - MARGIN, len(self._names())
        if sum(self._widths()) <= room:
            yield from self._draw(self._names(), self._widths(), _number)
            return
        width = 3 if 3 * count <= room else 2
        shorts = [head[1 - width :] for head in self._heads()]  # of 10, 0 where no more fits
        shorts += [short for _, short in self.columns]
        yield from self._draw(shorts, [width] * count, _glyphs)
        heads, rest = self._largest()
        named = ", ".join(f"{short} {name}" for name, short in self.columns)
        yield Text(f"{named}; 100 % is {heads:.3g} for heads, {rest:.3g} for these", style=QUIET)
        yield Text(LEGEND, style=QUIET)

    def _heads(self) -> list[str]:
        return [str(head) for head in range(len(self.rows[0]) - len(self.columns))]

    def _names(self) -> list[str]:
        return [*self._heads(), *(name for name, _ in self.columns)]

    def _widths(self) -> list[int]:
        columns = zip(*self.rows, strict=True)
        return [
            max(len(name), *(len(_number(value, 1.0)) for value in column)) + 1
            for name, column in zip(self._names(), columns, strict=True)
        ]

    def _largest(self) -> tuple[float, float]:
        """Return the largest size among the heads, and among the rest."""
        split = len(self._heads())
        parts = [row[:split] for row in self.rows], [row[split:] for row in self.rows]
        heads, rest = (
            max((abs(value) for row in rows for value in row if value is not None), default=0.0)
            for rows in parts
        )
        return heads, rest

    def _draw(
        self,
        names: Sequence[str],
        widths: Sequence[int],
        cell: Callable[[float | None, float], str],
    ) -> Iterator[Text]:
        heads, rest = self._largest()
        scales = [heads or 1.0] * len(self._heads()) + [rest or 1.0] * len(self.columns)
        titles = (f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
        yield Text("layer" + "".join(titles), style="bold", no_wrap=True, overflow="crop")
        for layer, row in enumerate(self.rows):
            line = Text(f"{layer:>{MARGIN}}", no_wrap=True, overflow="crop")
            for value, width, scale in zip(row, widths, scales, strict=True):
                share = 0.0 if value is None else value / scale
                line.append(f"{cell(value, scale):>{width}}", _colour(share))
            yield line


def _number(value: float | None, _scale: float) -> str:
    return "" if value is None else f"{value:+.3f}"


def _glyphs(value: float | None, scale: float) -> str:
    if value is None:
        return ""
    return ("-" if value < 0 else "+") + shade(abs(value) / scale)[0]


def _colour(share: float) -> str:
    if abs(share) < FAINT_BELOW:
        return QUIET
    strong = "bold " if abs(share) >= STRONG_FROM else ""
    return strong + ("blue" if share < 0 else "red")
