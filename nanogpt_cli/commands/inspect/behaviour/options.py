"""The options of `nanogpt inspect` that belong to its views of a model at work.

An addition is an entry in OPTIONS, and its name in the `options` of its views. All default to
None, so that what is given can be told from what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from nanogpt_cli import candidates
from nanogpt_cli.inspection.behaviour import VIEWS
from nanogpt_cli.options.insertion import insert_options

PANEL = "With a prompt"


def option(*flags: str, help: str, **more: Any) -> Any:
    """Return a Typer option in this panel, without a default to show."""
    settings = {"show_default": False, "rich_help_panel": PANEL, **more}
    return typer.Option(*flags, help=help, **settings)


PromptOpt = Annotated[
    str | None,
    option(
        "--prompt",
        "-p",
        "--start",
        metavar="TEXT",
        help="Run the model on a text and look inside; FILE:path reads it from a file, - from "
        "standard input. FILE:x.bin is uint16 token ids such as nanoGPT's val.bin, and an empty "
        "text is the start token alone.",
    ),
]
ViewOpt = Annotated[
    str | None,
    option(
        "--view",
        metavar="NAME",
        show_default="next",
        autocompletion=candidates.named({view.name: view.help for view in VIEWS}),
        help="; ".join(f"{view.name}: {view.help}" for view in VIEWS) + ".",
    ),
]
SaveOpt = Annotated[
    Path | None,
    option(
        "--save",
        metavar="FILE",
        readable=False,
        help="Write the view's arrays to a .npz or .safetensors file.",
    ),
]

HtmlOpt = Annotated[
    Path | None,
    option(
        "--html",
        metavar="FILE",
        readable=False,
        help="Write all views to one page for a browser, which fetches nothing; it opens with "
        "--view, and takes the options of every view.",
    ),
]

OPTIONS: Mapping[str, Any] = {
    "top": Annotated[
        int | None,
        option(
            "--top",
            metavar="N",
            show_default="10",
            help="next: how many of the likeliest tokens to list.",
        ),
    ],
    "track": Annotated[
        str | None,
        option(
            "--track",
            metavar="TEXT",
            help="next, lens: show the rank and probability of this token, too.",
        ),
    ],
    "stride": Annotated[
        int | None,
        option(
            "--stride",
            metavar="N",
            show_default="half of block_size",
            help="surprisal: how far the window moves over a text longer than block_size, in "
            "tokens. Smaller is slower and gives each token more context; 1 gives it all there is; "
            "block_size scores whole windows side by side, as training does.",
        ),
    ],
    "layer": Annotated[
        int | None,
        option(
            "--layer", metavar="L", help="attention: only the heads of this layer, counted from 0."
        ),
    ],
    "head": Annotated[
        int | None,
        option(
            "--head",
            metavar="H",
            help="attention, with --layer: draw where this head looks, counted from 0.",
        ),
    ],
    "average": Annotated[
        bool | None,
        option("--average", help="attention, with --layer: draw the mean over its heads."),
    ],
    "answer": Annotated[
        str | None,
        option(
            "--answer",
            metavar="TEXT",
            show_default="the likeliest",
            help="contributions: the token whose logit is taken apart.",
        ),
    ],
    "against": Annotated[
        str | None,
        option(
            "--against",
            metavar="TEXT",
            show_default="the mean of all",
            help="contributions: the token that the answer's logit is compared with.",
        ),
    ],
    "position": Annotated[
        int | None,
        option(
            "--position",
            metavar="N",
            show_default="the last",
            help="contributions: the token after which the answer would come, counted from 0; -1 "
            "is the last.",
        ),
    ],
}
"""By name, the type of each option that some view takes."""


def with_view_options(before: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command with `**of_view` the OPTIONS.

    Args:
        before: the parameter that they stand before in the help.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        insert_options(command, before, {name: (each, None) for name, each in OPTIONS.items()})
        return command

    return decorate
