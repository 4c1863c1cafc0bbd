"""How `nanogpt inspect --diff` shows two checkpoints. Pure, as the other views are."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.tables import add_row, make_table, stack
from nanogpt_cli.inspection.differences import DiffReport, FieldDifference, TensorDifference
from nanogpt_cli.output import visible


def render_diff(report: DiffReport) -> RenderableType:
    """Return what differs, then the verdict."""
    title = Text(f"{visible(report.first)}\n{visible(report.second)}", style="bold")
    sections: list[RenderableType] = [title]
    if report.config:
        sections.append(_fields("config", report.config))
    if report.run:
        sections.append(_fields("training, not part of the model", report.run))
    differing = [each for each in report.tensors if each.status != "equal"]
    if differing:
        sections.append(_tensors(differing))
    sections.append(Text(_closing(report)))
    return stack(sections)


def _fields(title: str, fields: tuple[FieldDifference, ...]) -> Table:
    table = make_table(title, "first", "second")
    for field in fields:
        values = ("" if value is None else str(value) for value in (field.first, field.second))
        remark = f"does not decide: {field.why}" if title == "config" and field.why else ""
        add_row(table, field.name, *values, remark)
    return table


def _tensors(differing: list[TensorDifference]) -> Table:
    table = make_table("weight", "|a - b| / |a|", "cosine", "largest")
    for each in differing:
        figures = (each.relative_norm, each.cosine, each.max_abs_difference)
        cells = ("" if figure is None else f"{figure:.6g}" for figure in figures)
        add_row(table, each.name, *cells, " ".join(filter(None, (each.status, each.detail))))
    return table


def _closing(report: DiffReport) -> str:
    verdict = "same model" if report.same else "different models"
    text = f"{verdict}: {report.equal_tensors:,} of {len(report.tensors):,} weights are equal"
    first, second = report.first_fingerprint, report.second_fingerprint
    if first == second:
        return f"{text}\nfingerprint {first}, of both"
    return f"{text}\nfingerprints {first}\n             {second}"
