"""How `nanogpt inspect --prompt TEXT --view lens` shows the grid of layer and position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.text import Text

from nanogpt_cli.commands.tables import stack
from nanogpt_cli.inspection.behaviour.lens import LensReport, LensRow
from nanogpt_cli.output import visible

LONGEST_LABEL = 9
"""Columns of a token in the grid; longer ones are cut."""
GAP = "  "
SURE, UNSURE = 0.5, 0.1
"""Probabilities from which a token is bold, and below which it is dim."""


def render(report: LensReport) -> RenderableType:
    """Return the grid, and the followed token's ranks below it."""
    labels = [token.label for token in report.tokens]
    grid = Grid(
        labels,
        [row.label for row in report.rows],
        [[_predicted(row, place) for place in range(len(labels))] for row in report.rows],
    )
    told = "each layer's likeliest next token and its probability; below: the text"
    sections: list[RenderableType] = [Text(visible(report.checkpoint), style="bold"), told, grid]
    if report.tracked is not None:
        sections += [
            Text(f"the rank of `{report.tracked.label}`, of {report.vocab_size:,} ids"),
            Grid(labels, grid.names, [_ranks(row) for row in report.rows]),
        ]
    return stack(sections)


@dataclass(frozen=True)
class Cell:
    """A field of the grid: text on the left, a figure on the right."""

    text: str
    figure: str = ""
    style: str = ""

    @property
    def width(self) -> int:
        """Columns that it takes."""
        return cell_len(self.text) + (1 + len(self.figure) if self.figure else 0)

    def draw(self, width: int) -> Text:
        """Return it in so many columns."""
        room = width - len(self.figure)
        return Text(set_cell_size(self.text, room) + self.figure, self.style)


class Grid:
    """Rows of cells, a column a position, as many of the last positions as the width takes.

    Args:
        labels: the tokens of the text, a column each.
        names: of the rows.
        rows: the cells.
    """

    def __init__(
        self, labels: Sequence[str], names: Sequence[str], rows: Sequence[Sequence[Cell]]
    ) -> None:
        self.names = names
        self._lines = [
            *((name, list(row)) for name, row in zip(names, rows, strict=True)),
            ("text", [Cell(cut(label), style="bold") for label in labels]),
            ("position", [Cell(str(place), style="dim") for place in range(len(labels))]),
        ]
        self._name_width = max(cell_len(name) for name, _ in self._lines)
        columns = zip(*(cells for _, cells in self._lines), strict=True)
        self._widths = [max(cell.width for cell in column) for column in columns]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Ask for every position, and be content with one."""
        wanted = self._name_width + sum(len(GAP) + width for width in self._widths)
        least = min(wanted, self._name_width + len(GAP) + self._widths[-1])
        return Measurement(least, wanted)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the last positions that fit, and say which they are where that is not all."""
        first = self.first_that_fits(options.max_width)
        for name, cells in self._lines:
            line = Text(name.ljust(self._name_width), no_wrap=True, overflow="crop")
            for cell, width in zip(cells[first:], self._widths[first:], strict=True):
                line.append(GAP)
                line.append_text(cell.draw(width))
            line.rstrip()
            yield line
        if first:
            last = len(self._widths) - 1
            fit = f"positions {first} to {last} fit" if first < last else f"position {last} fits"
            yield Text(f"{fit}, of 0 to {last}; a wider terminal, a pipe and --json show more")

    def first_that_fits(self, width: int) -> int:
        """Return the first position from which all to the last fit so many columns."""
        room, first = width - self._name_width, len(self._widths)
        while first and room >= len(GAP) + self._widths[first - 1]:
            first -= 1
            room -= len(GAP) + self._widths[first]
        return min(first, len(self._widths) - 1)


def cut(label: str) -> str:
    """Return a token's label in at most LONGEST_LABEL columns."""
    if cell_len(label) <= LONGEST_LABEL:
        return label
    return set_cell_size(label, LONGEST_LABEL - 1) + "…"


def _predicted(row: LensRow, place: int) -> Cell:
    share = row.top_probabilities[place]
    style = "bold" if share >= SURE else "dim" if share < UNSURE else ""
    return Cell(cut(row.top_labels[place]), _percent(share), style)


def _percent(share: float) -> str:
    return f"{share:.0%}".rjust(4)


def _ranks(row: LensRow) -> list[Cell]:
    style: Callable[[int], str] = lambda rank: "bold" if rank == 1 else ""  # noqa: E731
    return [Cell("", f"{rank:,}", style(rank)) for rank in row.tracked_ranks or ()]
