"""`nanogpt params`: count a model's parameters, bytes and FLOPs, without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from nanogpt_cli import candidates, output
from nanogpt_cli.accounting import PEAKS, RULES, ModelReport, Workload, name_hardware
from nanogpt_cli.errors import count_of
from nanogpt_cli.options.model import OfflineOpt
from nanogpt_cli.options.output import JsonOpt
from nanogpt_cli.options.panels import MODEL, OUTPUT

if TYPE_CHECKING:
    from rich.console import RenderableType

TRAINING = "Training"

Rule = Literal["total", "nanogpt", "non-embedding", "state-dict"]

ModelsArg = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CKPT | NAME]...",
        show_default=False,
        autocompletion=candidates.checkpoints,
        help="A checkpoint of any kind, or gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2, "
        "whose sizes are known without a file. Several are shown side by side.",
    ),
]


def _size_option(flag: str, help: str) -> Any:
    return typer.Option(
        flag, rich_help_panel=MODEL, show_default="the model's, else nanoGPT's", help=help
    )


def _training_option(flag: str, help: str, **more: Any) -> Any:
    return typer.Option(flag, rich_help_panel=TRAINING, help=help, **more)


NLayerOpt = Annotated[int | None, _size_option("--n-layer", "Number of blocks.")]
NHeadOpt = Annotated[
    int | None, _size_option("--n-head", "Number of attention heads; no figure depends on it.")
]
NEmbdOpt = Annotated[
    int | None, _size_option("--n-embd", "Width of the residual stream, in numbers a token.")
]
BlockSizeOpt = Annotated[int | None, _size_option("--block-size", "Context, in tokens.")]
VocabSizeOpt = Annotated[
    int | None, _size_option("--vocab-size", "Rows of the embedding: token ids.")
]
BiasOpt = Annotated[
    bool | None,
    _size_option("--bias/--no-bias", "With or without biases in linear layers and norms."),
]
RuleOpt = Annotated[
    Rule | None,
    typer.Option(
        "--rule",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="Print one count of parameters alone, a model a line. total: a tied head once. "
        "nanogpt: without wpe. non-embedding: without wte and wpe. state-dict: a tied head twice.",
    ),
]
BatchSizeOpt = Annotated[
    int, _training_option("--batch-size", "Texts side by side, for the size of the KV cache.")
]
GpuOpt = Annotated[
    str | None,
    _training_option(
        "--gpu",
        f"The GPU that trains, for MFU and days: {', '.join(PEAKS)}.",
        metavar="NAME",
        show_default=False,
        autocompletion=candidates.named(dict.fromkeys(PEAKS, "")),
    ),
]
GpusOpt = Annotated[int, _training_option("--gpus", "Number of GPUs that train together.")]
PeakOpt = Annotated[
    float | None,
    _training_option(
        "--peak-tflops",
        "Peak of one GPU in TFLOP/s, dense bfloat16, where --gpu does not know it.",
        show_default=False,
    ),
]
StepTimeOpt = Annotated[
    float | None,
    _training_option(
        "--step-time",
        "Seconds that one training step took; with a GPU it gives the MFU.",
        metavar="SECONDS",
        show_default=False,
    ),
]
SequencesOpt = Annotated[
    int | None,
    _training_option(
        "--sequences",
        "Sequences in that step over all GPUs: batch_size times gradient_accumulation_steps of "
        "nanoGPT.",
        show_default="the batch size",
    ),
]
TokensOpt = Annotated[
    str | None,
    _training_option(
        "--tokens",
        "Tokens to train on, such as 300B or 9e9; with a GPU it gives the days that takes.",
        metavar="COUNT",
        show_default=False,
    ),
]
MfuOpt = Annotated[
    float | None,
    _training_option(
        "--mfu",
        "Share of the peak to expect in training, 0 to 1, such as 0.3; for --tokens.",
        metavar="SHARE",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class ParamsReport:
    """The account of each model asked for, and the rule by which one count was wanted."""

    models: tuple[ModelReport, ...]
    rule: str | None = None
    schema: ClassVar[str] = "nanogpt.params/1"


def params(
    models: ModelsArg = None,
    n_layer: NLayerOpt = None,
    n_head: NHeadOpt = None,
    n_embd: NEmbdOpt = None,
    block_size: BlockSizeOpt = None,
    vocab_size: VocabSizeOpt = None,
    bias: BiasOpt = None,
    batch_size: BatchSizeOpt = 1,
    gpu: GpuOpt = None,
    gpus: GpusOpt = 1,
    peak_tflops: PeakOpt = None,
    step_time: StepTimeOpt = None,
    sequences: SequencesOpt = None,
    tokens: TokensOpt = None,
    mfu: MfuOpt = None,
    rule: RuleOpt = None,
    offline: OfflineOpt = False,
    json: JsonOpt = False,
) -> None:
    """Count a model's parameters, bytes and FLOPs, without loading it.

    The sizes come from a name, a checkpoint, or flags; flags beside a name override it.

    Examples:

        nanogpt params gpt2-xl --vocab-size 50304
        nanogpt params gpt2 gpt2-medium gpt2-large gpt2-xl
        nanogpt params gpt2 --gpu A100 --gpus 8 --tokens 300B --mfu 0.4
    """
    from nanogpt_cli.commands.params.models import parse_count, resolve

    sizes = {
        "n_layer": n_layer,
        "n_head": n_head,
        "n_embd": n_embd,
        "block_size": block_size,
        "vocab_size": vocab_size,
        "bias": bias,
    }
    given = {name: value for name, value in sizes.items() if value is not None}
    peak = None if peak_tflops is None else peak_tflops * 1e12
    work = Workload(
        batch_size=batch_size,
        step_seconds=step_time,
        sequences=sequences,
        tokens=None if tokens is None else parse_count(tokens),
        mfu=mfu,
        hardware=name_hardware(gpu, gpus, peak),
    )
    names: list[str | None] = [*models] if models else [None]
    subjects = [resolve(name, given, offline=offline) for name in names]
    report = ParamsReport(
        tuple(subject.account(work) for subject in subjects),
        rule.replace("-", "_") if rule else None,
    )
    _tell(report, work)
    output.emit(report, json, render)


def render(report: ParamsReport) -> RenderableType | str:
    """Return the one count asked for, one model's account, or several side by side."""
    from nanogpt_cli.commands.params.columns import render_models
    from nanogpt_cli.commands.params.tables import render_model

    if report.rule is not None:
        return "\n".join(str(getattr(model.parameters, report.rule)) for model in report.models)
    if len(report.models) == 1:
        return render_model(report.models[0])
    return render_models(report.models)


def _tell(report: ParamsReport, work: Workload) -> None:
    """Say on stderr what the figures rest on, and what had no effect."""
    if report.rule is not None:
        output.note(f"counted: {RULES[report.rule]}")
    hardware = work.hardware
    if hardware.gpu is not None and hardware.peak_flops_per_second is None:
        output.note(
            f"unknown GPU {hardware.gpu!r}, so there is no MFU: known are {', '.join(PEAKS)}; "
            "--peak-tflops gives the peak of another"
        )
    for message in _without_effect(work):
        output.note(message)
    for model in report.models:
        if model.step is not None and model.step.mfu is not None and model.step.mfu > 1:
            output.warn(
                f"{model.name}: an MFU of {100 * model.step.mfu:.1f} % is above 100 %: look at "
                "--step-time, --sequences and --gpus again"
            )
        if report.rule is not None and model.padding_rows:
            verb = "is" if model.padding_rows == 1 else "are"
            rows = count_of(model.padding_rows, "row")
            output.note(f"{model.name}: {rows} of wte {verb} padding")


def _without_effect(work: Workload) -> list[str]:
    known = work.hardware.gpu is not None or work.hardware.peak_flops_per_second is not None
    notes = []
    if work.step_seconds is None and work.tokens is None and (known or work.hardware.gpus > 1):
        notes.append("the GPU has no effect yet: --step-time gives MFU, --tokens gives days")
    if work.step_seconds is None and work.sequences is not None:
        notes.append("--sequences has no effect without --step-time")
    if work.step_seconds is not None and work.sequences is None:
        notes.append(f"--sequences was not given: a step is taken as {work.batch_size}")
    if work.step_seconds is not None and not known:
        notes.append("the MFU needs --gpu")
    if work.tokens is None and work.mfu is not None:
        notes.append("--mfu has no effect without --tokens")
    if work.tokens is not None and work.step_seconds is None and not (known and work.mfu):
        notes.append("the days need --gpu and --mfu, or --step-time")
    return notes
