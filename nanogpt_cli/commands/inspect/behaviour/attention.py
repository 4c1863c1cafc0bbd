"""How `nanogpt inspect --view attention` shows where heads look. Pure, as the other views are."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.inspect.behaviour.heat import LEGEND, SquareMap
from nanogpt_cli.commands.tables import add_row, make_table, stack
from nanogpt_cli.errors import count_of
from nanogpt_cli.inspection.behaviour.attention import AttentionReport, HeadMap, HeadReport
from nanogpt_cli.output import visible


def render(report: AttentionReport) -> RenderableType:
    """Return what each head does, or the map of one."""
    title = Text(visible(report.checkpoint), style="bold")
    if report.map is not None:
        return stack([title, *_draw_map(report, report.map), _check(report)])
    return stack([title, _draw_heads(report), _explain(report), _check(report)])


def _draw_map(report: AttentionReport, chosen: HeadMap) -> list[RenderableType]:
    which = f"head {chosen.head}" if chosen.head is not None else "mean over its heads"
    T = len(report.tokens)
    title = (
        f"block {chosen.layer} {which}, {T} x {count_of(T, 'token')}: row t is where token t looks"
    )
    labels = [token.label for token in report.tokens]
    one = [each for each in report.heads if (each.layer, each.head) == (chosen.layer, chosen.head)]
    table = [_table(one)] if one else []
    return [Text(title), SquareMap(labels, chosen.weights), Text(LEGEND), *table]


def _draw_heads(report: AttentionReport) -> Table:
    return _table(
        [each for each in report.heads if report.layer is None or each.layer == report.layer]
    )


def _table(heads: list[HeadReport]) -> Table:
    names = ("head", "previous", "first", "induction", "duplicate", "entropy")
    table = make_table("layer", *names, remark="role")
    for each in heads:
        scores = (each.previous_token, each.first_token, each.induction, each.duplicate)
        cells = [_percent(score) for score in scores]
        entropy = "" if each.entropy_bits is None else f"{each.entropy_bits:.2f}"
        role = (each.role or "").replace("_", " ")
        add_row(table, str(each.layer), str(each.head), *cells, entropy, role)
    return table


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _explain(report: AttentionReport) -> Text:
    probe = report.probe
    count = len(report.tokens)
    lines = [
        "previous, first: mean attention to the token before and to the first, on the "
        f"{count} {'token' if count == 1 else 'tokens'} of the text; entropy: its mean in bits",
    ]
    if probe.reason is not None:
        lines.append(f"induction, duplicate: not measured, {probe.reason}")
    else:
        lines.append(
            f"induction, duplicate: on {probe.period} random tokens, twice over (seed "
            f"{probe.seed}), from the second half to the token after the same one, and to the "
            "same one itself"
        )
        lines.append(
            f"loss there: {_nats(probe.first_loss_nats)} nats per token at first, "
            f"{_nats(probe.repeat_loss_nats)} when it repeats"
        )
    return Text("\n".join(lines))


def _nats(loss: float | None) -> str:
    return "none" if loss is None else f"{loss:.3f}"


def _check(report: AttentionReport) -> Text:
    return Text(
        f"rows sum to 1 within {report.max_row_error:.1g}; the last logits equal the model's own "
        f"within {report.max_logit_difference:.1g}"
    )
