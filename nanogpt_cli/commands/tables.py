"""The style of tables, and what fills them: text from files in, never markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.output import visible
from nanogpt_cli.output.numbers import format_count
from nanogpt_cli.pickles import GlobalUse

LONGEST = 1000
MOST_ROWS = 20
"""Rows of a list that is not what was asked for; the rest are counted."""


def draw_table(*, has_footer: bool = False) -> Table:
    """Return an empty table in the style of all commands."""
    return Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        show_footer=has_footer,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        header_style="bold",
        footer_style="bold",
    )


def make_table(title: str, *columns: str, remark: str | None = "") -> Table:
    """Return a table of a label, right-aligned numbers, and a column of remarks unless None."""
    table = draw_table()
    table.add_column(title, overflow="fold")  # names give way before numbers do
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    if remark is not None:
        table.add_column(remark, overflow="fold")
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row of text, whatever the text is and however long."""
    table.add_row(*(Text(visible(_cut(cell))) for cell in cells))


def _cut(cell: str) -> str:
    return cell if len(cell) <= LONGEST else f"{cell[:LONGEST]}... ({len(cell):,} characters)"


def stack(sections: Iterable[RenderableType]) -> RenderableType:
    """Return sections one below the other, with a blank line between."""
    spaced: list[RenderableType] = []
    for section in sections:
        spaced += ["", section] if spaced else [section]
    return Group(*spaced)


def draw_globals(title: str, uses: Sequence[GlobalUse]) -> Table:
    """Return what a pickle refers to, the refused first."""
    order = {"refused": 0, "inert": 1, "known": 2}
    table = draw_table()
    table.add_column(Text(visible(title)), overflow="fold")
    table.add_column("", no_wrap=True)
    table.add_column("at byte", justify="right", no_wrap=True)
    ranked = sorted(uses, key=lambda use: order.get(use.verdict, 3))
    for use in ranked[:MOST_ROWS]:
        add_row(table, use.name, use.verdict, format_count(use.offset))
    if len(ranked) > MOST_ROWS:
        add_row(table, f"and {len(ranked) - MOST_ROWS:,} more", "", "")
    return table
