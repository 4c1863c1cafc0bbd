"""How `nanogpt inspect` shows a checkpoint as a whole.

Pure: a report in, something for rich to draw out. What comes from a file is text, never markup.
"""

from __future__ import annotations

import shlex

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.tables import add_row, draw_globals, make_table, stack
from nanogpt_cli.errors import count_of
from nanogpt_cli.inspection.overview import ConfigValue, OverviewReport
from nanogpt_cli.inspection.tokenizer import TokenizerReport
from nanogpt_cli.inspection.training import LossReport, ScheduleReport, TrainingReport
from nanogpt_cli.output import visible
from nanogpt_cli.output.numbers import format_bytes, format_count

SECTION_NAMES = {
    "weights": ("weights", ""),
    "head": ("head", ""),
    "masks": ("causal masks", "no parameters"),
    "adam_m": ("Adam m", "exp_avg"),
    "adam_v": ("Adam v", "exp_avg_sq"),
    "other": ("other", "Adam's step counts, and the like"),
}
TYINGS = {
    "storage": "tied: head and wte are one storage",
    "value": "tied by value: head and wte are equal copies",
    "absent": "tied: no head is stored, wte serves",
    "untied": "untied: head and wte differ",
}


def render_overview(report: OverviewReport) -> RenderableType:
    """Return the default view."""
    sections: list[RenderableType] = [
        _config(report),
        _model(report),
        *_training(report.training),
        _bytes(report),
        *_globals(report),
        Text(f"next: {suggest(report)}"),
    ]
    return stack([_title(report), *sections])


def suggest(report: OverviewReport) -> str:
    """Return what to type next."""
    ref = report.given or ("demo" if report.kind == "demo" else report.path)
    ref = visible(shlex.quote(ref))
    if report.config["n_head"].value is None:
        ids = ' --tokenizer ids --prompt "0"' if report.tokenizer.status == "missing" else ""
        return f"nanogpt sample {ref} --n-head N{ids}, since nothing in the file says it"
    if report.training.loss.is_untrained or report.training.loss.is_worse_than_guessing:
        return f"nanogpt inspect {ref} --stats, to see which weights moved"
    if report.tokenizer.status in ("missing", "misfit", "damaged"):
        return f"nanogpt sample {ref} --meta FILE, with the table that it was trained on"
    if report.tokenizer.status == "refused":
        return f"nanogpt sample {ref} --tokenizer ids, or --meta with a table that you trust"
    return f'nanogpt sample {ref} --prompt "..."'


def _title(report: OverviewReport) -> Text:
    size = format_bytes(report.stored.file_bytes, exact=True)
    facts = [report.container, *([report.age] if report.age else []), size]
    if len(report.files) > 1:
        facts.append(f"{len(report.files)} files")
    if report.revision:
        facts.append(f"commit {report.revision}")
    return Text(visible(report.path), style="bold").append(
        "\n" + visible(", ".join(facts)), style="not bold"
    )


def _config(report: OverviewReport) -> Table:
    table = make_table("config", "", remark="from")
    for name, field in report.config.items():
        add_row(table, name, _value(field), _source(field))
    return table


def _value(field: ConfigValue) -> str:
    if field.value is None:
        return "unknown"
    if isinstance(field.value, bool):
        return str(field.value)
    return format_count(field.value) if isinstance(field.value, int) else str(field.value)


def _source(field: ConfigValue) -> str:
    sources = {
        "file": "the file",
        "shapes": "the tensors' shapes",
        "flag": "a flag",
        "assumed": "assumed: the file does not say",
        "unknown": "give --n-head N",
    }
    return sources.get(field.source, field.source)


def _model(report: OverviewReport) -> Table:
    table = make_table("model", "")
    counts = report.parameters
    add_row(table, "parameters", format_count(counts.nanogpt), "by nanoGPT's rule, without wpe")
    add_row(table, "", format_count(counts.total), "in all, a tied head once")
    for row in report.dtypes:
        add_row(
            table, row.dtype, format_count(row.parameters), f"in {count_of(row.tensors, 'tensor')}"
        )
    add_row(table, "head", report.tying.kind, _tying(report))
    if report.prefixes:
        removed = " ".join(report.prefixes)
        add_row(table, "prefixes", removed, "removed from the stored names")
    add_row(table, "tokenizer", report.tokenizer.name or "none", _tokenizer(report.tokenizer))
    return table


def _tying(report: OverviewReport) -> str:
    text = TYINGS[report.tying.kind]
    if report.tying.kind != "untied":
        return text
    if report.tying.max_abs_difference is None:
        return f"{text}; --stats measures by how much"
    return f"{text} by at most {report.tying.max_abs_difference:.6g}"


def _tokenizer(found: TokenizerReport) -> str:
    if found.status != "fits":
        return f"{found.status}: {found.message}"
    ids = "" if found.n_vocab is None else f"{format_count(found.n_vocab)} ids, fits"
    if found.padding_rows:
        ids += f" with {count_of(found.padding_rows, 'row')} of padding"
    return ": ".join(part for part in (ids, found.path or "by the vocabulary's size") if part)


def _training(training: TrainingReport) -> list[Table]:
    loss = training.loss
    if training.iter_num is None and loss.nats_per_token is None:
        return []
    table = make_table("training", "")
    if training.iter_num is not None:
        planned = f"of {training.max_iters:,}" if training.max_iters is not None else ""
        add_row(table, "iter_num", format_count(training.iter_num), planned)
    if training.tokens_per_step is not None and training.step_factors is not None:
        factors = " x ".join(map(format_count, training.step_factors))
        count = format_count(training.tokens_per_step)
        add_row(table, "tokens a step", count, f"{factors}: {_STEP}")
    if training.tokens_seen is not None:
        add_row(table, "tokens seen", format_count(training.tokens_seen), training.assumed)
    if training.schedule is not None:
        rate = f"{training.schedule.learning_rate:.6g}"
        add_row(table, "learning rate", rate, _schedule(training.schedule))
    if loss.nats_per_token is not None:
        add_row(table, "best_val_loss", f"{loss.nats_per_token:.4f}", _loss(loss))
    add_row(table, "ln(vocab_size)", f"{loss.uniform_nats_per_token:.4f}", "what guessing gives")
    if training.dataset is not None:
        add_row(table, "dataset", training.dataset)
    if training.init_from is not None:
        add_row(table, "init_from", training.init_from)
    return [table]


_STEP = "batch_size x gradient_accumulation_steps x block_size"


def _schedule(schedule: ScheduleReport) -> str:
    if schedule.phase == "constant":
        return "constant: decay_lr was off"
    place = schedule.phase
    if schedule.progress is not None:
        place += f", {100 * schedule.progress:.1f} % through"
    curve = (
        f"{schedule.peak:g} after {schedule.warmup_iters:,} iterations, "
        f"{schedule.min_lr:g} from {schedule.lr_decay_iters:,} on"
    )
    stored = schedule.optimizer_learning_rate
    if stored is not None and abs(stored - schedule.learning_rate) > 0.01 * abs(stored):
        curve += f"; the optimizer itself says {stored:.6g}"
    return f"{place}: {curve}"


def _loss(loss: LossReport) -> str:
    kinds = {"best": "the best", "last": "the last, maybe not the best", "unknown": "best or last"}
    remark = f"{kinds[loss.kind]}: {loss.why}"
    if loss.is_untrained:
        return f"UNTRAINED, within 5 % of ln(vocab_size); {remark}"
    if loss.is_worse_than_guessing:
        return f"WORSE THAN GUESSING; {remark}"
    return remark


def _bytes(report: OverviewReport) -> Table:
    stored = report.stored
    table = make_table("bytes", "tensors", "bytes", "share")

    def add(label: str, tensors: int | None, size: int, remark: str = "") -> None:
        share = f"{100 * size / stored.file_bytes:.2f} %" if stored.file_bytes else ""
        count = "" if tensors is None else format_count(tensors)
        add_row(table, label, count, format_count(size), share, remark)

    for section in stored.sections:
        label, remark = SECTION_NAMES[section.name]
        if section.name == "head":
            remark = "a copy of wte" if section.stored_bytes else "shares wte's bytes"
        if section.tensors:
            add(label, section.tensors, section.stored_bytes, remark)
    if stored.unused_bytes:
        add("unused", None, stored.unused_bytes, "in storages beyond their tensors: saved slices")
    table.add_section()
    tensors = sum(section.tensors for section in stored.sections)
    add("all tensors", tensors, stored.tensor_bytes, "shared bytes once")
    remark = "names, settings, padding" if stored.rest_bytes >= 0 else "saved by compression"
    add("the rest", None, stored.rest_bytes, remark)
    add("the file" if len(report.files) == 1 else "the files", None, stored.file_bytes)
    return table


def _globals(report: OverviewReport) -> list[Table]:
    tables = []
    if report.globals:
        tables.append(draw_globals("the pickle refers to", report.globals))
    if report.tokenizer.refused:
        tables.append(draw_globals(f"{report.tokenizer.path} refers to", report.tokenizer.refused))
    return tables
