"""What is printed or written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from nanogpt_cli.options.panels import OUTPUT

Color = Literal["off", "prob"]
EchoOpt = Annotated[
    bool,
    typer.Option(
        "--echo/--no-echo",
        rich_help_panel=OUTPUT,
        help="Print the prompt before its text, or the new part alone.",
    ),
]
StreamOpt = Annotated[
    bool,
    typer.Option(
        "--stream/--no-stream",
        rich_help_panel=OUTPUT,
        help="Print each character when it is complete, or each text when it is done. The bytes "
        "are the same.",
    ),
]
JsonOpt = Annotated[
    bool,
    typer.Option(
        "--json",
        rich_help_panel=OUTPUT,
        help="Print JSON with raw numbers instead of text; where there are several results, a line "
        "each.",
    ),
]
ColorOpt = Annotated[
    Color,
    typer.Option(
        "--color",
        rich_help_panel=OUTPUT,
        help="prob: colour each token by the probability that the model gave it before any filter; "
        "the legend is on stderr. In a pipe text stays plain, unless FORCE_COLOR is set.",
    ),
]
LogprobsOpt = Annotated[
    int | None,
    typer.Option(
        "--logprobs",
        metavar="N",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="Add to the JSON each token's log-probability before any filter, in nats, and the N "
        "likeliest tokens in its place; 0 adds no others.",
    ),
]
OutputOpt = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        rich_help_panel=OUTPUT,
        show_default="beside the input, named after it",
        help="Where to write the result.",
    ),
]
ForceOpt = Annotated[
    bool,
    typer.Option("--force", rich_help_panel=OUTPUT, help="Replace an output that exists already."),
]
DryRunOpt = Annotated[
    bool,
    typer.Option("--dry-run", rich_help_panel=OUTPUT, help="Show what would be written, and stop."),
]
