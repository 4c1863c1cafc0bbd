"""How `nanogpt convert` shows what it did. Pure: a report in, something for rich to draw out."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nanogpt_cli.commands.naming import NOT_EVALUATED
from nanogpt_cli.conversion.report import ConversionReport, LogitFigures, Verification
from nanogpt_cli.errors import count_of
from nanogpt_cli.output import visible
from nanogpt_cli.output.numbers import format_bytes

FORMATS = {
    "nanogpt": "nanoGPT checkpoint",
    "hf": "Hugging Face folder",
    "safetensors": "safetensors file",
}
ACTIVATIONS = {"gelu": "exact GELU", "gelu_tanh": "tanh GELU"}
NAMES = {"transformers": "transformers", "nanogpt": "nanogpt's GPT"}


def render_conversion(report: ConversionReport) -> RenderableType:
    """Return the account of a conversion, a fact a line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for label, text in _rows(report):
        table.add_row(label, Text(visible(text)))
    return table


def _rows(report: ConversionReport) -> Iterator[tuple[str, str]]:
    source = report.source
    commit = "" if source.revision is None else f", commit {source.revision[:7]}"
    yield (
        "source",
        f"{source.path}: {source.container}, {format_bytes(source.size_bytes)}{commit}",
    )
    verb = "would be" if report.dry_run else "output"
    size = format_bytes(report.output_bytes)
    yield verb, f"{report.output}: {FORMATS[report.to]}, {size}"
    yield "model", _model(report)
    yield "weights", _weights(report)
    if report.to == "nanogpt":
        yield "training", _training(report)
    yield "tokenizer", _tokenizer(report)
    if report.left_out:
        yield "left out", "; ".join(report.left_out)
    if report.cast is not None:
        cast = report.cast
        yield (
            "cast",
            f"{cast.changed:,} of {cast.elements:,} numbers changed, by {cast.largest_change:.3g} "
            f"at most; {cast.vanished:,} became zero",
        )
    if report.verification is not None:
        yield from _verification(report.verification)
    elif not report.dry_run:
        yield "verified", "no, by --no-verify"


def _model(report: ConversionReport) -> str:
    model = report.model
    return (
        f"{count_of(model.n_layer, 'layer')}, {count_of(model.n_head, 'head')}, "
        f"{model.n_embd:,} wide, block {model.block_size:,}, vocab {model.vocab_size:,}, "
        f"{'biases' if model.bias else 'no biases'}, "
        f"{'tied' if model.tied_head else 'untied'} head, {ACTIVATIONS[model.activation]}"
    )


def _weights(report: ConversionReport) -> str:
    rows = report.tensors
    transposed = sum(row.transposed for row in rows)
    zeros = sum(row.source is None for row in rows)
    facts = [f"{count_of(len(rows), 'tensor')} in {' and '.join(report.model.dtypes)}"]
    if transposed:
        facts.append(f"{transposed:,} of them transposed")
    if zeros:
        facts.append(f"{count_of(zeros, 'zero bias', 'zero biases')} that the format wants")
    return ", ".join(facts)


def _training(report: ConversionReport) -> str:
    measured = report.best_val_loss is not None and report.best_val_loss < NOT_EVALUATED
    loss = f"best_val_loss {report.best_val_loss:.6g}" if measured else "no loss measured"
    optimizer = {"kept": "optimizer kept", "fresh": "fresh optimizer"}
    return f"iter_num {report.iter_num}, {loss}, " + optimizer.get(
        report.optimizer or "", "no optimizer"
    )


def _tokenizer(report: ConversionReport) -> str:
    weights = ("model.safetensors", "config.json", "generation_config.json")
    beside = [file.name for file in report.files if file.name not in weights]
    where = ""
    if report.to != "hf":
        beside, where = beside[1:], ", beside the output, where sample looks for it"
    known = report.tokenizer or "none known"
    return known + (f"{where}: {', '.join(beside)}" if beside else "")


def _verification(found: Verification) -> Iterator[tuple[str, str]]:
    others = f" and {found.other_tensors:,} others" if found.other_tensors else ""
    yield "verified", f"{count_of(found.weights, 'weight')}{others} read back bit for bit"
    models = f"{NAMES[found.output_model]} on the output, {NAMES[found.source_model]} on the source"
    yield "logits", f"{models}: {_figures(found.logits)}, {found.logits.tolerance:.2g} allowed"
    if found.rounding is not None:
        yield "rounding", f"against the source before the cast: {_figures(found.rounding)}"


def _figures(figures: LogitFigures) -> str:
    return (
        f"largest difference {figures.largest_difference:.2g} "
        f"(largest logit {figures.largest_logit:.3g}), likeliest id the same at "
        f"{100 * figures.top1_agreement:.3g} % of {count_of(figures.positions, 'position')}"
    )
