"""How `nanogpt inspect --prompt TEXT` shows the next tokens. Pure: a report in, a table out."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.tables import add_row, draw_table, stack
from nanogpt_cli.inspection.behaviour.next_token import NextReport, NextToken
from nanogpt_cli.output import visible


def render(report: NextReport) -> RenderableType:
    """Return the table, the token that is followed last."""
    table = _draw_columns()
    for token in report.tokens:
        _add(table, token)
    shown = {token.id for token in report.tokens}
    if report.tracked is not None and report.tracked.id not in shown:
        _add(table, report.tracked)
    seen = "1 token" if report.prompt_tokens == 1 else f"{report.prompt_tokens:,} tokens"
    uncertainty = f"{report.entropy_bits:.2f} bits over {report.vocab_size:,} ids"
    return stack(
        [
            Text(visible(report.checkpoint), style="bold"),
            table,
            Text(f"after {seen}; entropy {uncertainty}"),
        ]
    )


def format_percent(share: float) -> str:
    """Return 0.0123 as `1.23%`: three digits, however small it is."""
    return f"{share * 100:.3g}%" if share < 0.9995 else f"{share:.2%}"


def _draw_columns() -> Table:
    table = draw_table()
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("token", overflow="fold")
    for name in ("id", "logit", "probability", "cumulative"):
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _add(table: Table, token: NextToken) -> None:
    shares = (format_percent(token.probability), format_percent(token.cumulative))
    add_row(table, f"{token.rank:,}", token.label, str(token.id), f"{token.logit:.3f}", *shares)
