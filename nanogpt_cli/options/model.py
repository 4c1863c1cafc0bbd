"""Where and in which numbers a model is computed."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from nanogpt_cli import candidates
from nanogpt_cli.options.panels import MODEL

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
DEVICE_NAMES = {
    "auto": "the first of CUDA, MPS and the CPU that is there",
    "cpu": "the processor",
    "cuda": "the first NVIDIA or AMD GPU",
    "mps": "an Apple GPU",
}
"""What the shell completes, with what it is."""

DeviceOpt = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        rich_help_panel=MODEL,
        autocompletion=candidates.named(DEVICE_NAMES),
        help="Where to compute: auto, cpu, cuda, cuda:1 or mps; auto takes CUDA, else MPS, else "
        "the CPU.",
    ),
]
DtypeOpt = Annotated[
    Dtype,
    typer.Option(
        "--dtype",
        rich_help_panel=MODEL,
        help="Number format of the computation; auto is bfloat16 on CUDA where supported, float16 "
        "on older cards, float32 on CPU and MPS.",
    ),
]
CompileOpt = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile",
        rich_help_panel=MODEL,
        show_default="auto",
        help="Use a decode step compiled for this CPU, kept for later runs: faster, and each text "
        "is the same bit for bit whatever shares its batch, which torch's own products and CUDA "
        "cannot promise (about one token in 100,000 differs). auto compiles (some seconds, once) "
        "for runs long enough to earn it and for batches; where it cannot be, torch computes. "
        "On CUDA: whether to capture the step as a graph.",
    ),
]
QuantizeOpt = Annotated[
    Literal["int8"] | None,
    typer.Option(
        "--quantize",
        rich_help_panel=MODEL,
        show_default=False,
        help="Keep the weights in 8 bits with a scale a row, and compute in the dtype: about four "
        "times as fast a token as float32 with the compiled step; the loss of the models measured "
        "here changed by less than 0.01 %.",
    ),
]
WindowStrideOpt = Annotated[
    int,
    typer.Option(
        "--window-stride",
        metavar="N",
        rich_help_panel=MODEL,
        help="Past block_size: 1 runs the last block_size ids afresh for every token, as nanoGPT "
        "does; N drops the oldest N at once and goes on cached, much faster, with other texts.",
    ),
]
ThreadsOpt = Annotated[
    int | None,
    typer.Option(
        "--threads",
        rich_help_panel=MODEL,
        show_default="physical cores",
        help="CPU threads to compute with; more than there are cores is slower.",
    ),
]
NHeadOpt = Annotated[
    int | None,
    typer.Option(
        "--n-head",
        rich_help_panel=MODEL,
        show_default=False,
        help="Number of attention heads, for a file that holds weights alone and does not say it.",
    ),
]
OfflineOpt = Annotated[
    bool,
    typer.Option(
        "--offline",
        envvar=["NANOGPT_OFFLINE", "HF_HUB_OFFLINE"],
        rich_help_panel=MODEL,
        help="Fetch nothing from the hub: use local files and what was downloaded before.",
    ),
]
