"""How `nanogpt crop` shows what it did. Pure: a report in, something for rich to draw out."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.tables import draw_table
from nanogpt_cli.errors import count_of
from nanogpt_cli.output import visible
from nanogpt_cli.output.numbers import format_count
from nanogpt_cli.surgery.report import CropReport, Cut


def render_crop(report: CropReport) -> RenderableType:
    """Return what was cut, the bytes of each part before and after, and whether it was checked."""
    return Group(_title(report), "", _bytes(report), "", *_facts(report))


def _title(report: CropReport) -> Text:
    verb = "would write" if report.dry_run else "wrote"
    title = Text(f"{verb} {visible(report.output)}", style="bold")
    change = f"block_size {report.block_size_before:,} to {report.block_size_after:,}"
    return title.append(f", {'a copy' if report.is_copy else change}", style="not bold")


def _bytes(report: CropReport) -> Table:
    table = draw_table(has_footer=True)
    table.add_column("bytes", "in all", no_wrap=True)
    columns = (
        ("before", report.before_bytes),
        ("after", report.after_bytes),
        ("less", report.before_bytes - report.after_bytes),
    )
    for name, total in columns:
        table.add_column(name, format_count(total), justify="right", no_wrap=True)
    for part in report.parts:
        sizes = (part.before_bytes, part.after_bytes, part.before_bytes - part.after_bytes)
        table.add_row(part.name, *map(format_count, sizes))
    return table


def _facts(report: CropReport) -> Iterator[Text]:
    if report.cuts:
        yield Text(f"cut: {visible(_cuts(report.cuts))}")
    if report.dropped:
        yield Text(f"left out: {visible(', '.join(report.dropped))}")
    cast = report.cast
    if cast is not None and cast.changed is None:
        yield Text(f"cast to {cast.dtype}")
    elif cast is not None and cast.largest_difference is not None:
        yield Text(
            f"cast to {cast.dtype}: {count_of(cast.changed or 0, 'weight')} changed, "
            f"by {cast.largest_difference:.3g} at most; {cast.vanished:,} became zero"
        )
    yield Text(f"verified: {_verified(report)}")


def _cuts(cuts: tuple[Cut, ...], limit: int = 6) -> str:
    shown = [f"{cut.name} {_size(cut.before)} to {_size(cut.after)}" for cut in cuts[:limit]]
    rest = len(cuts) - limit
    return ", ".join(shown) + (f", and {rest} more" if rest > 0 else "")


def _size(size: tuple[int, ...] | int) -> str:
    return str(size) if isinstance(size, int) else "x".join(map(str, size))


def _verified(report: CropReport) -> str:
    found = report.verification
    if found is None:
        return "no, nothing was written" if report.dry_run else "no, by --no-verify"
    where = f"over {count_of(found.positions, 'position')}"
    if found.largest_difference == 0:
        return f"logits {where} are the same to the last bit"
    share = 100 * found.top_1_agreement
    return (
        f"logits {where} differ by up to {found.largest_difference:.3g}; "
        f"the likeliest token is the same at {share:.4g} %"
    )
