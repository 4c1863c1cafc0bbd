"""How `nanogpt inspect --stats` shows a checkpoint's figures. Pure, as the other views are."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.tables import add_row, make_table, stack
from nanogpt_cli.inspection.statistics import StatsReport, TensorFigures
from nanogpt_cli.inspection.untrained import UntrainedRows
from nanogpt_cli.output import visible
from nanogpt_cli.output.numbers import format_count

EVIDENCE = {
    "Adam": "Adam never saw a gradient there",
    "noise": "about as many: they look as initialised",
    "zero": "they are all zero",
}
MOST_RANGES = 5


def render_stats(report: StatsReport) -> RenderableType:
    """Return a row a tensor, then what stands out."""
    table = make_table("tensor", "mean", "std", "x init", "min", "max", "norm", "zeros")
    for each in report.tensors:
        measures = each.measures
        ratio = "" if each.std_over_init is None else f"{each.std_over_init:.3f}"
        mean = "" if measures.mean is None else f"{measures.mean:.2g}"
        figures = (measures.std, measures.min, measures.max, measures.norm)
        std, low, high, norm = map(_number, figures)
        cells = (mean, std, ratio, low, high, norm, format_count(measures.zeros))
        add_row(table, each.name.removeprefix("transformer."), *cells, _remark(each))
    return stack([Text(visible(report.path), style="bold"), table, _closing(report)])


def _closing(report: StatsReport) -> Table:
    table = make_table("also", "")
    weights = [each for each in report.tensors if each.section in ("weights", "head")]
    still = [each for each in weights if each.state == "as initialised"]
    add_row(
        table,
        "as initialised",
        f"{len(still):,}",
        f"of {len(weights):,} weights are as nanoGPT draws them",
    )
    for state in ("all zero", "constant"):
        names = [each.name for each in weights if each.state == state]
        if names:
            add_row(table, state, f"{len(names):,}", ", ".join(names[:MOST_RANGES]))
    if report.nan or report.inf:
        add_row(table, "NaN, Inf", f"{report.nan:,}, {report.inf:,}", "not a usable model")
    for rows in report.untrained:
        name = rows.name.removeprefix("transformer.").removesuffix(".weight")
        add_row(table, f"{name} never trained", f"{rows.count:,}", _rows(rows))
    if report.max_head_difference is not None:
        add_row(table, "head - wte", f"{report.max_head_difference:.6g}", "largest difference")
    add_row(table, "fingerprint", "", report.fingerprint)
    return table


def _rows(rows: UntrainedRows) -> str:
    if not rows.count:
        return f"of {rows.rows:,} rows"
    shown = ", ".join(
        f"{first:,}" if first == last else f"{first:,} to {last:,}"
        for first, last in rows.untrained[:MOST_RANGES]
    )
    rest = len(rows.untrained) - MOST_RANGES
    more = f" and {rest:,} more ranges" if rest > 0 else ""
    return f"of {rows.rows:,} rows, {shown}{more}: {EVIDENCE[rows.evidence]}"


def _remark(each: TensorFigures) -> str:
    remarks = [each.state] if each.state else []
    if each.measures.nan or each.measures.inf:
        remarks.append(f"{each.measures.nan:,} NaN, {each.measures.inf:,} Inf")
    return ", ".join(remarks)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
