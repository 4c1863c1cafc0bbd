"""How `nanogpt inspect --prompt TEXT --view activations` shows the sizes inside. Pure."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.tables import add_row, make_table, stack
from nanogpt_cli.errors import count_of
from nanogpt_cli.inspection.behaviour.activations import (
    FLAT,
    OUTLIER_TIMES_MEDIAN,
    ActivationsReport,
    ActivationsRow,
    Norms,
    Outlier,
)
from nanogpt_cli.output import visible

MOST_OUTLIERS = 3


def render(report: ActivationsReport) -> RenderableType:
    """Return a row a layer, the two embeddings, and what the words mean."""
    columns = ("residual", "largest", "at", "attention", "mlp", "dead", "saturated")
    table = make_table("norm of", *columns, remark="outlier dimensions")
    for row in report.rows:
        _add(table, report, row)
    return stack(
        [
            Text(visible(report.checkpoint), style="bold"),
            table,
            _draw_embeddings(report),
            Text(_explain(report)),
        ]
    )


def _add(table: Table, report: ActivationsReport, row: ActivationsRow) -> None:
    largest = row.residual
    units = ("", "")
    if row.units is not None:
        units = (f"{row.units.dead_share:.1%}", f"{row.units.saturated_share:.1%}")
    add_row(
        table,
        row.label,
        _number(largest.mean),
        _number(largest.max),
        f"{largest.max_position} {report.tokens[largest.max_position].label}",
        _mean(row.attention),
        _mean(row.mlp),
        *units,
        _name_outliers(row.outliers),
    )


def _draw_embeddings(report: ActivationsReport) -> Table:
    table = make_table("norm of", "mean", "largest", remark=None)
    for name, norms in (("wte", report.token_embedding), ("wpe", report.position_embedding)):
        add_row(table, name, _number(norms.mean), _number(norms.max))
    return table


def _name_outliers(outliers: tuple[Outlier, ...]) -> str:
    named = ", ".join(
        f"{each.dimension} ({_times(each.times_median)})" for each in outliers[:MOST_OUTLIERS]
    )
    rest = len(outliers) - MOST_OUTLIERS
    return f"{named} and {rest} more" if rest > 0 else named


def _times(ratio: float | None) -> str:
    return "the rest is 0" if ratio is None else f"x {ratio:.3g}"


def _explain(report: ActivationsReport) -> str:
    return (
        f"Means over {count_of(len(report.tokens), 'position')}; "
        "attention and mlp are what the block adds. "
        f"Dead: GELU units whose input is below -{FLAT:g} at every position, so that they pass "
        f"nothing; saturated: above {FLAT:g} at every position, so that they pass it as it is. "
        f"Outliers: of {report.n_embd:,} dimensions of the residual stream, those whose root mean "
        f"square is at least {OUTLIER_TIMES_MEDIAN:g} times the median dimension's."
    )


def _mean(norms: Norms | None) -> str:
    return "" if norms is None else _number(norms.mean)


def _number(value: float) -> str:
    return f"{value:.4g}"
