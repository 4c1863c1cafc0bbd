"""How `nanogpt inspect --view contributions` shows who speaks for an answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.inspect.behaviour.heat import LayerMap
from nanogpt_cli.commands.tables import add_row, make_table, stack
from nanogpt_cli.inspection.behaviour.contributions import (
    Answer,
    Contribution,
    ContributionsReport,
)
from nanogpt_cli.output import visible

MOST_ROWS = 12

GROUPS = {
    "token embedding": "embeddings",
    "position embedding": "embeddings",
    "head": "heads",
    "attention bias": "biases",
    "ln_f bias": "biases",
    "mlp": "MLPs",
}


def render(report: ContributionsReport) -> RenderableType:
    """Return the sums, the shares by layer, and the strongest parts."""
    return stack(
        [
            Text(visible(report.checkpoint), style="bold"),
            Text(_question(report)),
            _sums(report),
            Text(f"shares of the logit {_compared(report)}, by layer and head"),
            _map(report),
            _strongest(report),
            Text(report.definition),
        ]
    )


def _question(report: ContributionsReport) -> str:
    after = report.tokens[-1].label
    against = f", against {_told(report.against)}" if report.against else ""
    return visible(f"after token {report.position} {after}: {_told(report.answer)}{against}")


def _told(answer: Answer) -> str:
    share = f"{100 * answer.probability:.1f} %"
    return f"{answer.label} (id {answer.id}, logit {answer.logit:.3f}, {share}, rank {answer.rank})"


def _compared(report: ContributionsReport) -> str:
    return "less the mean" if report.against is None else "less the other"


def _sums(report: ContributionsReport) -> Table:
    table = make_table("part", "logit", _compared(report), remark=None)
    for group in dict.fromkeys(GROUPS.values()):
        inside = [part for part in report.parts if GROUPS[part.kind] == group]
        if inside:
            add_row(table, group, *_cells(inside))
    add_row(table, "sum", *map(_number, (report.sum_logit, report.sum_relative)))
    own = report.answer.logit
    add_row(table, "the model's", *map(_number, (own, own - report.reference_logit)))
    errors = (report.error_logit, report.error_relative)
    add_row(table, "left over", *(f"{error:+.1e}" for error in errors))
    return table


def _cells(parts: Iterable[Contribution]) -> tuple[str, str]:
    logits, relative = zip(*((part.logit, part.relative) for part in parts), strict=True)
    return _number(sum(logits)), _number(sum(relative))


def _number(value: float) -> str:
    return f"{value:+.3f}"


def _map(report: ContributionsReport) -> LayerMap:
    rows = [[0.0] * (report.n_head + 1) for _ in range(report.n_layer)]
    for part in report.parts:
        if part.layer is not None and part.kind in ("head", "mlp"):
            rows[part.layer][-1 if part.head is None else part.head] = part.relative
    return LayerMap([("mlp", "M")], rows)


def _strongest(report: ContributionsReport) -> Table:
    table = make_table("strongest", "logit", _compared(report), remark=None)
    ranked = sorted(report.parts, key=lambda part: -abs(part.relative))
    for part in ranked[:MOST_ROWS]:
        add_row(table, part.part, *_cells([part]))
    if rest := ranked[MOST_ROWS:]:
        add_row(table, f"and {len(rest):,} more", *_cells(rest))
    return table
