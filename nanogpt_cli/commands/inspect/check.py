"""How `nanogpt inspect --check` shows its answers. Pure, as the other views are."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from nanogpt_cli.commands.tables import add_row, make_table, stack
from nanogpt_cli.inspection.checks import CheckReport
from nanogpt_cli.output import visible

MOST_FINDINGS = 5


def render_check(report: CheckReport) -> RenderableType:
    """Return an answer a line, and under it what was found."""
    table = make_table("check", "")
    for check in report.checks:
        add_row(table, check.name, check.status, check.detail)
        for finding in check.findings[:MOST_FINDINGS]:
            add_row(table, "", "", f"  {finding}")
        rest = len(check.findings) - MOST_FINDINGS
        if rest > 0:
            add_row(table, "", "", f"  and {rest:,} more; --json lists all")
    title = Text(visible(report.path), style="bold")
    return stack([title, table, Text(_closing(report))])


def _closing(report: CheckReport) -> str:
    faults = "1 fault" if report.faults == 1 else f"{report.faults} faults"
    warnings = "1 warning" if report.warnings == 1 else f"{report.warnings} warnings"
    return f"{report.status}: {faults}, {warnings} in {len(report.checks)} checks"
