"""How `nanogpt params` shows one model: a table for each thing that can be said of it.

Pure: a report in, something for rich to draw out.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.accounting import Hardware, ModelReport, Sizes
from nanogpt_cli.commands.tables import draw_table
from nanogpt_cli.errors import count_of
from nanogpt_cli.output import visible
from nanogpt_cli.output.numbers import format_bytes, format_count

FORMULA = "6N + 12·L·H·Q·T"


def render_model(model: ModelReport) -> RenderableType:
    """Return one model's account."""
    sections = (
        _counts(model),
        _breakdown(model),
        _decay(model),
        _memory(model),
        _flops(model),
        *_step(model),
        *_training(model),
        _rest(model),
    )
    spaced = (line for section in sections for line in ("", section))
    return Group(_title(model), *spaced)


def _table(title: str, *columns: str) -> Table:
    """Return a table of a label, right-aligned numbers, and a column of remarks."""
    table = draw_table()
    table.add_column(title, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", style="dim")
    return table


def _title(model: ModelReport) -> Text:
    changed = f" (by flags: {', '.join(model.changed)})" if model.changed else ""
    title = Text(visible(model.name), style="bold")
    return title.append(f"{changed}\n{describe_sizes(model.config)}", style="not bold")


def describe_sizes(sizes: Sizes) -> str:
    """Return a model's sizes in words."""
    heads = "heads unknown" if sizes.n_head is None else count_of(sizes.n_head, "head")
    bias = "biases" if sizes.bias else "no biases"
    head = "tied head" if sizes.tied_head else "untied head"
    return (
        f"{count_of(sizes.n_layer, 'layer')}, {heads}, {sizes.n_embd:,} wide, "
        f"block {sizes.block_size:,}, vocab {sizes.vocab_size:,}, {bias}, {head}"
    )


def _counts(model: ModelReport) -> Table:
    tied = model.config.tied_head
    table = _table("parameters", "count", "--rule")
    counts = model.parameters
    rows = (
        ("all, a tied head once", counts.total, "total", _label(model)),
        ("without wpe", counts.nanogpt, "nanogpt", f"nanoGPT prints {counts.nanogpt / 1e6:.2f}M"),
        ("without wte and wpe", counts.non_embedding, "non-embedding", "N of the scaling laws"),
        (
            "summed over a state dict",
            counts.state_dict,
            "state-dict",
            count_of(model.state_dict_tensors, "tensor") + (", head twice" if tied else ""),
        ),
    )
    for label, count, rule, remark in rows:
        table.add_row(label, format_count(count), rule, remark)
    return table


def _label(model: ModelReport) -> str:
    if model.published_as is None:
        return "as Hugging Face counts"
    today, *first = model.published_labels
    return f"{model.published_as}: {today}" + "".join(f", first {old}" for old in first)


def _breakdown(model: ModelReport) -> Table:
    table = _table("where they are", "each", "in all", "share")
    parts = model.breakdown
    for row in parts.rows:
        tied = f"tied to {row.tied_to} ({row.tied_parameters:,})" if row.tied_to else ""
        table.add_row(
            row.name, f"{row.parameters_each:,}", f"{row.parameters:,}", _percent(row.share), tied
        )
    table.add_section()
    share = _percent(parts.blocks / parts.total)
    label = f"h: {count_of(model.config.n_layer, 'block')}"
    table.add_row(label, f"{parts.block:,}", f"{parts.blocks:,}", share, "the h rows together")
    table.add_row("total", "", f"{parts.total:,}", _percent(1.0))
    return table


def _decay(model: ModelReport) -> Table:
    split = model.decay
    table = _table("weight decay", "parameters", "tensors")
    decayed, others = split.decayed_parameters, split.non_decayed_parameters
    table.add_row("decayed", f"{decayed:,}", f"{split.decayed_tensors:,}", "two axes or more")
    table.add_row("not decayed", f"{others:,}", f"{split.non_decayed_tensors:,}", "biases, norms")
    return table


def _memory(model: ModelReport) -> Table:
    table = _table("bytes", "float32", "bf16, fp16", "int8")
    for label, sizes in _memory_rows(model):
        table.add_row(label, *(format_count(size) if size else "" for size in sizes))
    return table


def _memory_rows(model: ModelReport) -> Iterable[tuple[str, tuple[int, int, int]]]:
    memory, cache = model.memory, model.kv_cache
    weights = memory.weights_bytes
    yield "weights", (weights["float32"], weights["bfloat16"], weights["int8"])
    yield "Adam moments", (memory.adam_moments_bytes, 0, 0)
    yield "weights + Adam (checkpoint)", (memory.weights_and_adam_bytes, 0, 0)
    yield "+ gradients (training)", (memory.training_bytes, 0, 0)
    if model.stored is None or not model.stored.masks_bytes:
        yield "causal masks if stored", (memory.masks_bytes, 0, 0)
    per_token, full, batch = cache.per_token_bytes, cache.full_context_bytes, cache.batch_bytes
    context = count_of(model.config.block_size, "token")
    yield "KV cache, a token", (per_token["float32"], per_token["bfloat16"], 0)
    yield f"KV cache, {context}", (full["float32"], full["bfloat16"], 0)
    if cache.batch_size > 1:
        label = f"KV cache, {cache.batch_size:,} x {context}"
        yield label, (batch["float32"], batch["bfloat16"], 0)


def _flops(model: ModelReport) -> Table:
    flops = model.flops
    table = _table(f"FLOPs, {count_of(flops.sequence_tokens, 'token')}", "count", "share")
    layer = (
        ("q, k, v", flops.qkv_flops),
        ("attention scores", flops.scores_flops),
        ("weighted sum", flops.weighted_sum_flops),
        ("output projection", flops.out_proj_flops),
        ("MLP", flops.mlp_flops),
        ("one block", flops.block_flops),
    )
    whole = (
        (count_of(model.config.n_layer, "block"), flops.blocks_flops),
        ("head", flops.head_flops),
        ("forward", flops.forward_flops),
    )
    for label, count in (*layer, *whole):
        remark = "in each block, as the next four" if label == "q, k, v" else ""
        table.add_row(label, format_count(count), _percent(count / flops.forward_flops), remark)
    table.add_row("forward + backward", format_count(flops.forward_backward_flops), "", "times 3")
    table.add_section()
    for formula, n in ((flops.formula, "without wpe"), (flops.formula_total, "all")):
        ratio = f"N {n}; {formula.ratio_to_itemised:.4f} x itemised"
        table.add_row(FORMULA, format_count(formula.flops_per_sequence), "", ratio)
        table.add_row("  a token", format_count(formula.flops_per_token))
    return table


def _step(model: ModelReport) -> list[Table]:
    step = model.step
    if step is None:
        return []
    table = _table("training step", "")
    sequences = "1 sequence" if step.sequences == 1 else f"{step.sequences:,} sequences"
    table.add_row("time", f"{step.step_seconds:g} s", f"{sequences} on {_on(step.hardware)}")
    table.add_row("tokens a second", f"{step.tokens_per_second:,.0f}")
    table.add_row("FLOPs a second", f"{step.flops_per_second:.4g}", FORMULA)
    table.add_row("MFU", format_utilisation(step.mfu), f"{FORMULA}, {_peak(step.hardware)}")
    table.add_row(
        "MFU, itemised", format_utilisation(step.mfu_itemised), "forward + backward above"
    )
    return [table]


def _training(model: ModelReport) -> list[Table]:
    training = model.training
    if training is None:
        return []
    table = _table("training", "")
    table.add_row("tokens", format_count(training.tokens))
    table.add_row("FLOPs", f"{training.training_flops:.4g}", "6·N·D, N all parameters")
    if training.days is None:
        basis = "needs a known GPU and --mfu, or --step-time"
    elif training.mfu is None:
        basis = "at the measured step's pace"
    else:
        basis = f"{_on(training.hardware)} at {100 * training.mfu:g} %, {_peak(training.hardware)}"
    table.add_row("days", format_days(training.days), basis)
    return [table]


def _rest(model: ModelReport) -> Table:
    table = _table("also", "")
    loss = f"{model.untrained_loss_nats_per_token:.4f}"
    table.add_row("untrained loss", loss, "ln of the vocabulary, nats a token")
    if model.padding_rows:
        remark = "of wte: GPT-2's vocabulary is 50,257"
        table.add_row("padding rows", format_count(model.padding_rows), remark)
    if model.stored is not None:
        for dtype, size in model.stored.weights_bytes.items():
            table.add_row("weights in the file", format_bytes(size), f"{size:,} bytes, {dtype}")
        for label, size in (
            ("masks in the file", model.stored.masks_bytes),
            ("optimizer in the file", model.stored.optimizer_bytes),
        ):
            if size:
                table.add_row(label, format_bytes(size), f"{size:,} bytes")
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def format_utilisation(share: float | None) -> str:
    """Return a fraction of the peak in percent."""
    return "unknown" if share is None else _percent(share)


def format_days(days: float | None) -> str:
    """Return days to the thousandth."""
    return "unknown" if days is None else f"{days:,.3f}"


def _on(hardware: Hardware) -> str:
    return f"{hardware.gpus:,} x {visible(hardware.gpu or 'GPU')}"


def _peak(hardware: Hardware) -> str:
    if hardware.peak_flops_per_second is None:
        return "peak unknown"
    return f"peak {hardware.peak_flops_per_second / 1e12:g} TFLOPS"
