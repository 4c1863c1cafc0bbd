"""How `nanogpt inspect` shows a file that is not opened. Pure, as the other views are."""

from __future__ import annotations

import re

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.tables import MOST_ROWS, add_row, draw_globals, make_table, stack
from nanogpt_cli.inspection.refusal import MemberSize, RefusalReport
from nanogpt_cli.output import visible
from nanogpt_cli.output.numbers import format_bytes, format_count

_RECORD = re.compile(r"(?P<folder>[^/]+/data/)\w+")
"""A storage of a torch archive."""


def render_refusal(report: RefusalReport) -> RenderableType:
    """Return what can be said of a file that was refused or is broken."""
    sections: list[RenderableType] = [_title(report)]
    if report.members:
        sections.append(_members(report))
    for pickle in report.pickles:
        title = f"{pickle.name or 'the pickle'} refers to"
        if pickle.globals:
            sections.append(draw_globals(title, pickle.globals))
        else:
            sections.append(Text(visible(f"{title} nothing")))
    if report.tensors:
        sections.append(_tensors(report))
    return stack(sections)


def _title(report: RefusalReport) -> Text:
    facts = ["not opened, nothing was run"]
    if report.container is not None:
        facts.append(report.container)
    if report.size_bytes is not None:
        facts.append(format_bytes(report.size_bytes, exact=True))
    title = Text(visible(report.path), style="bold")
    return title.append("\n" + visible(", ".join(facts)), style="not bold")


def _members(report: RefusalReport) -> Table:
    remark = "found by their headers" if report.members_by == "headers" else ""
    table = make_table("holds", "bytes", remark=remark)
    grouped = _group_records(report.members)
    for name, size in grouped[:MOST_ROWS]:
        add_row(table, name, "" if size is None else format_count(size), "")
    if len(grouped) > MOST_ROWS:
        add_row(table, f"and {len(grouped) - MOST_ROWS:,} more", "", "")
    return table


def _group_records(members: tuple[MemberSize, ...]) -> list[tuple[str, int | None]]:
    """Return names and sizes, the storages of a torch archive as one line."""
    records: dict[str, list[int]] = {}
    rows: list[tuple[str, int | None]] = []
    for member in members:
        found = _RECORD.fullmatch(member.name)
        if found:
            records.setdefault(found["folder"], []).append(member.size_bytes or 0)
        else:
            rows.append((member.name, member.size_bytes))
    for folder, sizes in records.items():
        rows.append((f"{folder}*, {len(sizes):,} records", sum(sizes)))
    return rows


def _tensors(report: RefusalReport) -> Table:
    table = make_table("tensors", "", remark="")
    for tensor in report.tensors[:MOST_ROWS]:
        add_row(table, tensor.name, str(list(tensor.shape)), tensor.dtype)
    if len(report.tensors) > MOST_ROWS:
        add_row(table, f"and {len(report.tensors) - MOST_ROWS:,} more", "", "")
    return table
