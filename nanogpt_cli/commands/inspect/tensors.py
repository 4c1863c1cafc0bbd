"""How `nanogpt inspect --tensors` shows a checkpoint's tensors. Pure, as the other views are."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from nanogpt_cli.commands.tables import add_row, make_table, stack
from nanogpt_cli.inspection.listing import TensorRow, TensorsReport
from nanogpt_cli.output import visible
from nanogpt_cli.output.numbers import format_bytes, format_count

MOST_DEPTH = 12
REMARKS = {"masks": "mask", "adam_m": "Adam m", "adam_v": "Adam v"}


def render_flat(report: TensorsReport) -> RenderableType:
    """Return a row a tensor."""
    table = make_table("tensor", "shape", "elements", "bytes", "dtype")
    for row in report.tensors:
        cells = (format_count(row.elements), format_count(row.stored_bytes), row.dtype)
        add_row(table, row.name, _shape(row), *cells, _remark(row))
    return stack([Text(visible(report.path), style="bold"), table, _closing(report)])


def render_tree(report: TensorsReport) -> RenderableType:
    """Return the tensors under the modules that their names spell, with each module's sum."""
    tree = Tree(Text(visible(report.path), style="bold"))
    branches: dict[str, Tree] = {"": tree}
    sums: dict[str, list[int]] = {}
    for row in report.tensors:
        parts = row.name.split(".", MOST_DEPTH)
        for depth in range(1, len(parts)):
            entry = sums.setdefault(".".join(parts[:depth]), [0, 0])
            entry[0] += row.elements
            entry[1] += row.stored_bytes
    for row in report.tensors:
        parts = row.name.split(".", MOST_DEPTH)
        for depth in range(1, len(parts)):
            path, above = ".".join(parts[:depth]), ".".join(parts[: depth - 1])
            if path not in branches:
                elements, size = sums[path]
                label = f"{parts[depth - 1]}  {elements:,} in {format_bytes(size)}"
                branches[path] = branches[above].add(Text(visible(label)))
        remark = _remark(row)
        label = f"{parts[-1]}  {_shape(row)} {row.dtype}" + (f"  {remark}" if remark else "")
        branches[".".join(parts[:-1])].add(Text(visible(label)))
    return stack([tree, _closing(report)])


def _shape(row: TensorRow) -> str:
    return " x ".join(map(str, row.shape)) or "scalar"


def _remark(row: TensorRow) -> str:
    remarks = [REMARKS[row.section]] if row.section in REMARKS else []
    if row.shares_with is not None:
        remarks.append(f"the bytes of {row.shares_with}")
    elif row.section == "head":
        remarks.append("a copy of wte")
    if row.transposed:
        remarks.append("Conv1D: [in, out]")
    if row.canonical and row.canonical.removeprefix("transformer.") not in row.name:
        remarks.append(f"{'of' if row.is_optimizers else 'is'} {row.canonical}")
    return ", ".join(remarks)


def _closing(report: TensorsReport) -> Text:
    elements = sum(row.elements for row in report.tensors)
    size = sum(row.stored_bytes for row in report.tensors if row.shares_with is None)
    text = f"{len(report.tensors):,} of {report.tensors_in_file:,} tensors, "
    text += f"{elements:,} elements, {size:,} bytes, shared ones once"
    if report.optimizer_tensors_left_out:
        left_out = report.optimizer_tensors_left_out
        text += f"; --optimizer shows the optimizer's {left_out:,}, too"
    return Text(text)
