"""How tokens are drawn, and when a text ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from nanogpt_cli.options.insertion import insert_options
from nanogpt_cli.options.panels import SAMPLING
from nanogpt_cli.sampling import PIPELINE, Filter

Rng = Literal["per-sample", "nanogpt"]
NumSamplesOpt = Annotated[
    int,
    typer.Option(
        "--num-samples", "-n", rich_help_panel=SAMPLING, help="Texts to draw for each prompt."
    ),
]
MaxNewTokensOpt = Annotated[
    int,
    typer.Option(
        "--max-new-tokens",
        "-m",
        rich_help_panel=SAMPLING,
        help="Tokens to add to the prompt, at most; 0 adds none. It may be more than the model's "
        "context.",
    ),
]
SeedOpt = Annotated[
    int,
    typer.Option(
        "--seed",
        "-s",
        rich_help_panel=SAMPLING,
        help="A whole number that fixes the draws: with the same prompt and settings it gives the "
        "same text.",
    ),
]
RngOpt = Annotated[
    Rng,
    typer.Option(
        "--rng",
        rich_help_panel=SAMPLING,
        help="How the seed is used. per-sample: each text depends on the seed, its prompt and its "
        "number alone. nanogpt: sample.py's texts, token for token; slow, without a cache.",
    ),
]
StopOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="TEXT",
        rich_help_panel=SAMPLING,
        show_default=False,
        help="End a sample just before this text would appear in its new part. May be given "
        "several times.",
    ),
]
IgnoreEosOpt = Annotated[
    bool,
    typer.Option(
        "--ignore-eos",
        rich_help_panel=SAMPLING,
        help="Go on after an end-of-text token instead of ending the sample there.",
    ),
]


def with_filter_options(before: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command with `**filters` an option for each of PIPELINE.

    Their names, in order, stand in the command's help where it has `{filters}`.

    Args:
        before: the parameter that they stand before in the help.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = {cls.option: (_filter_option(cls), cls.default) for cls in PIPELINE}
        insert_options(command, before, options)
        order = ", ".join(_flag(cls) for cls in PIPELINE)
        command.__doc__ = (command.__doc__ or "").replace("{filters}", order)
        return command

    return decorate


def _filter_option(cls: type[Filter]) -> Any:
    flags = [_flag(cls), *(["-" + cls.short] if cls.short else [])]
    option = typer.Option(*flags, rich_help_panel=SAMPLING, help=cls.help)
    return Annotated[type(cls.default), option]


def _flag(cls: type[Filter]) -> str:
    return "--" + cls.option.replace("_", "-")
