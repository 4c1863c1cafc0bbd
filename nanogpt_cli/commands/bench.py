"""`nanogpt bench`: how fast a checkpoint runs on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nanogpt_cli import candidates, output
from nanogpt_cli.commands.caches import cache_folder
from nanogpt_cli.commands.naming import tell_checkpoint
from nanogpt_cli.errors import count_of
from nanogpt_cli.options.checkpoint import CheckpointArg
from nanogpt_cli.options.model import CompileOpt, DeviceOpt, NHeadOpt, OfflineOpt, ThreadsOpt
from nanogpt_cli.options.output import JsonOpt
from nanogpt_cli.options.panels import MODEL
from nanogpt_cli.output.numbers import format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nanogpt_cli.generation.bench import BenchReport

MUCH = 1.5
"""How far the rounds of one row may lie apart on a machine that has nothing else to do."""

WEIGHTS = ("float32", "float16", "int8")
BATCH_SIZES = (1, 8)

WeightsOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--dtype",
        metavar="[float32|float16|bfloat16|int8]",
        envvar="NANOGPT_BENCH_DTYPE",
        rich_help_panel=MODEL,
        show_default=", ".join(WEIGHTS),
        autocompletion=candidates.named(dict.fromkeys((*WEIGHTS, "bfloat16"), "")),
        help="Number format of the weights. May be given several times: a row for each.",
    ),
]
BatchSizesOpt = Annotated[
    list[int] | None,
    typer.Option(
        "--batch-size",
        rich_help_panel=MODEL,
        show_default="1, 8",
        help="Texts decoded side by side. May be given several times: a row for each.",
    ),
]
PromptTokensOpt = Annotated[
    int | None,
    typer.Option(
        "--prompt-tokens",
        rich_help_panel=MODEL,
        show_default="128, or half of the model's positions where that is less",
        help="Length of each prompt, in tokens; they are random.",
    ),
]
NewTokensOpt = Annotated[
    int | None,
    typer.Option(
        "--new-tokens",
        rich_help_panel=MODEL,
        show_default="64, or half of the model's positions where that is less",
        help="Tokens decoded after each prompt.",
    ),
]
RoundsOpt = Annotated[
    int,
    typer.Option(
        "--rounds",
        rich_help_panel=MODEL,
        help="Runs of each row, of which the median is shown.",
    ),
]


def bench(
    checkpoint: CheckpointArg = None,
    dtype: WeightsOpt = None,
    batch_size: BatchSizesOpt = None,
    prompt_tokens: PromptTokensOpt = None,
    new_tokens: NewTokensOpt = None,
    rounds: RoundsOpt = 3,
    n_head: NHeadOpt = None,
    device: DeviceOpt = "auto",
    compile: CompileOpt = None,
    threads: ThreadsOpt = None,
    offline: OfflineOpt = False,
    json: JsonOpt = False,
) -> None:
    """Measure how fast a checkpoint runs on this machine, and how near to what its memory allows.

    Each token must read all weights once, so memory bandwidth is the limit of decoding; it is
    measured beside every round.

    Examples:

        nanogpt bench demo
        nanogpt bench gpt2 --dtype int8 --batch-size 1 --batch-size 32
    """
    from nanogpt_cli.checkpoints import open_checkpoint
    from nanogpt_cli.generation.bench_plan import BenchPlan
    from nanogpt_cli.generation.device_names import check_device, check_threads

    check_device(device)
    check_threads(threads)
    opened = open_checkpoint(checkpoint, n_head=n_head, offline=offline)
    tell_checkpoint("measuring", opened)
    opened.architecture.require_n_head()
    half = max(1, opened.config.block_size // 2)
    plan = BenchPlan(
        weights=tuple(dtype or WEIGHTS),
        batch_sizes=tuple(batch_size or BATCH_SIZES),
        prompt_tokens=min(128, half) if prompt_tokens is None else prompt_tokens,
        new_tokens=min(64, half) if new_tokens is None else new_tokens,
        rounds=rounds,
    )
    plan.require_room(opened.config.block_size)
    plan.require_known_weights()
    from nanogpt_cli.generation.bench import run_bench
    from nanogpt_cli.generation.devices import use_threads
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.steps.choose import StepChoice

    use_threads(threads)
    choice = StepChoice(None, "auto" if compile is None else compile, threads, cache_folder())
    session = Session(opened, tokenizer="ids", device=device, choice=choice, notify=output.note)
    with output.status("measuring"):
        report = run_bench(session, plan)
    output.emit(report, json, render)


def render(report: BenchReport) -> RenderableType:
    """Return a table, a row for each number format and batch size."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from nanogpt_cli.commands.tables import stack

    gigabytes = report.bandwidth_bytes_per_second / 1e9
    title = (
        f"{report.checkpoint}: {report.parameters:,} parameters on {report.device}, "
        f"{count_of(report.threads, 'thread')}, prompt {report.prompt_tokens}, "
        f"{report.new_tokens} new, memory reads {gigabytes:.1f} GB/s"
    )
    table = Table(box=box.SIMPLE, title=Text(title), title_justify="left", title_style="")
    table.add_column("weights")
    for name in ("batch", "prefill tok/s", "first token", "decode tok/s", "ms a step", "of limit"):
        table.add_column(name, justify="right")
    table.add_column("step")
    for row in report.rows:
        table.add_row(
            row.weights,
            str(row.batch_size),
            f"{row.prefill_tokens_per_second:,.0f}",
            format_seconds(row.first_token_seconds),
            f"{row.decode_tokens_per_second:,.1f}",
            f"{row.step_seconds * 1e3:.2f}",
            f"{row.share_of_limit:.2f}",
            row.step,
        )
    return stack([table, *(Text(line) for line in remarks(report))])


def remarks(report: BenchReport) -> list[str]:
    """Return what to know before the figures are believed."""
    said = []
    if any(row.share_of_limit > 1 for row in report.rows):
        said.append(
            "of limit above 1: part of what a step reads stays in the processor's caches, "
            "so memory is not its limit"
        )
    if report.spread > MUCH:
        said.append(
            f"the rounds differ by up to {report.spread:.1f} times: other programs are at work, "
            "and these figures say little"
        )
    return said
