"""How `nanogpt inspect --view ablation` shows what parts are worth. Pure, as the other views."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.inspect.behaviour.heat import LayerMap
from nanogpt_cli.commands.tables import add_row, make_table, stack
from nanogpt_cli.inspection.behaviour.ablation import AblationReport
from nanogpt_cli.output import visible

MOST_ROWS = 8


def render(report: AblationReport) -> RenderableType:
    """Return the heat table, then the parts that matter most."""
    columns = [("attention", "A"), ("mlp", "M"), ("both", "B")]
    rows = [(*each.heads, each.attention, each.mlp, each.both) for each in report.layers]
    return stack(
        [
            Text(visible(report.checkpoint), style="bold"),
            Text(_baseline(report)),
            Text("change of the loss without each head and each layer, nats per token"),
            LayerMap(columns, rows),
            _strongest(report),
            Text(report.definition),
        ]
    )


def _baseline(report: AblationReport) -> str:
    count = report.predicted_tokens
    tokens = "1 predicted token" if count == 1 else f"{count:,} predicted tokens"
    windows = ""
    if report.windows > 1:
        windows = f", {report.windows:,} windows side by side of up to {report.block_size:,}"
    return f"loss {report.loss_nats:.4f} nats per token over {tokens}{windows}"


def _strongest(report: AblationReport) -> Table:
    parts = sorted(_parts(report), key=lambda part: -abs(part[1]))
    table = make_table("largest", "change", "loss", remark=None)
    for name, change in parts[:MOST_ROWS]:
        add_row(table, name, f"{change:+.4f}", f"{report.loss_nats + change:.4f}")
    return table


def _parts(report: AblationReport) -> Iterator[tuple[str, float]]:
    for each in report.layers:
        named = [(f"head {head}", change) for head, change in enumerate(each.heads)]
        named += [("attention", each.attention), ("mlp", each.mlp)]
        for name, change in named:
            if change is not None:
                yield f"block {each.layer} {name}", change
