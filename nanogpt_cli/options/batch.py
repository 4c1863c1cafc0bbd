"""Files of prompts: their rows, shards and workers."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from nanogpt_cli import candidates
from nanogpt_cli.options.panels import BATCH

Engine = Literal["local", "ray"]
PromptsOpt = Annotated[
    str | None,
    typer.Option(
        "--prompts",
        metavar="FILE",
        autocompletion=candidates.files,
        rich_help_panel=BATCH,
        show_default=False,
        help="Continue every prompt of a file, - for standard input: a plain line each, or, where "
        'the first line is a JSON object with a prompt, JSON Lines: {"prompt": "...", "id": "...", '
        '"seed": 1}, of which id and seed may be left out. Blank lines are skipped. The samples '
        "come as JSON, a line each, in the order of the prompts.",
    ),
]
RowsOpt = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        autocompletion=candidates.files,
        rich_help_panel=BATCH,
        show_default="standard output",
        help="Where the samples of --prompts go; a line is written when it is whole. With --engine "
        "ray a folder of parts, or a URI of one.",
    ),
]
BatchSizeOpt = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        rich_help_panel=BATCH,
        show_default="what memory allows",
        help="Samples to make side by side, at most. More is faster and takes more memory; the "
        "texts stay the same.",
    ),
]
ResumeOpt = Annotated[
    bool,
    typer.Option(
        "--resume",
        rich_help_panel=BATCH,
        help="Go on with the output of an interrupted run: keep its rows and make the others.",
    ),
]
ReplaceOpt = Annotated[
    bool,
    typer.Option("--force", rich_help_panel=BATCH, help="Replace an output that exists already."),
]
ShardOpt = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        rich_help_panel=BATCH,
        show_default="RANK and WORLD_SIZE, else all",
        help="Take only the prompts I, I+N, I+2N and so on, counted from 0: the work of one of N "
        "machines.",
    ),
]
EngineOpt = Annotated[
    Engine,
    typer.Option(
        "--engine",
        rich_help_panel=BATCH,
        help="Who makes the samples of --prompts: this process, or the workers of a Ray cluster "
        "(the one that RAY_ADDRESS names, else one started on this machine). The rows are the "
        "same.",
    ),
]
NumWorkersOpt = Annotated[
    int | None,
    typer.Option(
        "--num-workers",
        rich_help_panel=BATCH,
        show_default="one a GPU, else one a machine",
        help="With --engine ray: workers, each with a model of its own. --threads is for each.",
    ),
]
GpusPerWorkerOpt = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-worker",
        rich_help_panel=BATCH,
        show_default="1 where there are GPUs, else 0",
        help="With --engine ray: 0 computes on CPUs, 0.5 lets two workers share a GPU.",
    ),
]
