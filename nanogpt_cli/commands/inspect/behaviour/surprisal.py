"""How `nanogpt inspect --prompt TEXT --view surprisal` shows a text. Pure, but for its colours."""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.tables import add_row, draw_table, make_table, stack
from nanogpt_cli.inspection.behaviour.surprisal import (
    MOST_LISTED,
    SurprisalReport,
    SurprisingToken,
)
from nanogpt_cli.output import visible

BOUNDS = (1.0, 4.0, 8.0)
"""Bits from which a token is of the next level: less likely than 1/2, 1/16, 1/256."""

COLOURS = ("", "black on cyan", "black on yellow", "bold white on red")
"""Each with its own ground, so that a light and a dark terminal show the same. The lighter the
ground the less the surprise, so that hue is not needed to tell them apart."""

MARKS = ("", "underline", "bold", "bold reverse")
"""The levels where colours are not wanted."""

UNSCORED = "dim"
MOST_ROWS = 64
WORST_ROWS = 20


def render(report: SurprisalReport) -> RenderableType:
    """Return the text in colours with their legend, a row a token, and the sums."""
    sections: list[RenderableType] = [Text(visible(report.checkpoint), style="bold")]
    if report.tokens is not None:
        sections += [ColouredText(report.tokens, report.separator), *_list_tokens(report.tokens)]
    else:
        sections.append(f"more than {MOST_LISTED:,} tokens: --save FILE.npz has each")
    return stack([*sections, _sum_up(report)])


class ColouredText:
    """Tokens as the text they are, coloured by surprisal, and a legend; nothing where no colour
    or mark can be shown."""

    def __init__(self, tokens: Sequence[SurprisingToken], separator: str) -> None:
        self.tokens = tokens
        self.separator = separator

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the text as wide as the terminal is."""
        if console.color_system is None:
            yield Text("the text is coloured on a terminal")
            return
        styles = MARKS if console.no_color else COLOURS
        text = Text(overflow="fold")
        for place, (part, bits) in enumerate(_decode(self.tokens)):
            text.append(self.separator if place else "")
            text.append(part, UNSCORED if bits is None else styles[level_of(bits)])
        yield Group(text, "", _draw_legend(styles))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Ask for no width beyond what there is."""
        return Measurement(1, min(options.max_width, 80))


def level_of(bits: float) -> int:
    """Return how surprising so many bits are: 0 for little to 3 for very much."""
    return bisect_right(BOUNDS, bits)


def _decode(tokens: Sequence[SurprisingToken]) -> list[tuple[str, float | None]]:
    """Return the text piece by piece; a character cut in two goes with its last token."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = [
        (visible(decoder.decode(bytes(token.bytes)), keep="\n\t"), token.bits) for token in tokens
    ]
    rest = decoder.decode(b"", final=True)
    return [*pieces, (rest, tokens[-1].bits)] if rest else pieces


def _draw_legend(styles: Sequence[str]) -> Text:
    legend = Text("surprisal: ")
    low, middle, high = (f"{bound:g}" for bound in BOUNDS)
    names = (f"below {low} bit", f"{low} to {middle}", f"{middle} to {high}", f"{high} and more")
    for name, style in zip(names, styles, strict=True):
        legend.append(f" {name} ", style)
        legend.append(" ")
    legend.append(" not predicted ", UNSCORED)
    return legend


def _list_tokens(tokens: Sequence[SurprisingToken]) -> list[RenderableType]:
    """Return a row a token, or the most surprising of many."""
    places = list(range(len(tokens)))
    if len(tokens) <= MOST_ROWS:
        return [_draw_rows(tokens, places)]
    scored = [place for place in places if tokens[place].bits is not None]
    worst = sorted(scored, key=lambda place: -(tokens[place].bits or 0.0))[:WORST_ROWS]
    told = f"the {len(worst)} most surprising of {len(tokens):,} tokens; --json lists each"
    return [Group(told, "", _draw_rows(tokens, worst))]


def _draw_rows(tokens: Sequence[SurprisingToken], places: Sequence[int]) -> Table:
    table = draw_table()
    table.add_column("position", justify="right", no_wrap=True)
    table.add_column("token", overflow="fold")
    for name in ("id", "bits", "rank", "entropy"):
        table.add_column(name, justify="right", no_wrap=True)
    for place in places:
        token = tokens[place]
        rank = "" if token.rank is None else f"{token.rank:,}"
        figures = (_bits(token.bits), rank, _bits(token.entropy_bits))
        add_row(table, f"{place:,}", token.label, str(token.id), *figures)
    return table


def _bits(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _sum_up(report: SurprisalReport) -> Table:
    table = make_table("over the text", "")
    left_out = report.prompt_tokens - report.scored_tokens
    windows = "1 window" if report.windows == 1 else f"{report.windows:,} windows"
    shown = f"{windows} of at most {report.block_size:,} tokens"
    add_row(table, "protocol", "", f"{report.protocol}: {shown}")
    add_row(table, "predicted", f"{report.scored_tokens:,}", _explain(report, left_out))
    add_row(table, "total", f"{report.total_nats:.3f}", "nats")
    add_row(table, "loss", f"{report.loss:.5f}", "nats a token")
    add_row(table, "surprisal", f"{report.bits_per_token:.5f}", "bits a token")
    expected = f"{report.mean_entropy_bits:.5f}"
    add_row(table, "entropy", expected, "bits a token: what the model expected that to be")
    perplexity = "beyond 1e308" if report.perplexity is None else f"{report.perplexity:.4f}"
    add_row(table, "perplexity", perplexity, "e to the loss")
    if report.bits_per_byte is not None:
        of_bytes = f"over {report.scored_bytes:,} bytes"
        add_row(table, "bits per byte", f"{report.bits_per_byte:.5f}", of_bytes)
    return table


def _explain(report: SurprisalReport, left_out: int) -> str:
    tokens = f"of {report.prompt_tokens:,} tokens"
    if left_out == 1:
        return f"{tokens}: nothing precedes the first"
    return f"{tokens}: not the first, nor the {left_out - 1:,} after the last whole window"
