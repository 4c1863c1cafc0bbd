"""What every command has, and nanoGPT's own two names for a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nanogpt_cli.options.panels import GENERAL

ConfigOpt = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        readable=False,
        is_eager=True,
        rich_help_panel=GENERAL,
        show_default=False,
        help="Read options from a TOML file or a nanoGPT config/*.py (read, never executed). "
        "Flags win over NANOGPT_* variables such as NANOGPT_TOP_K, those over the file.",
    ),
]
QuietOpt = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", rich_help_panel=GENERAL, help="Print no notes on stderr; errors stay."
    ),
]
DebugOpt = Annotated[
    bool,
    typer.Option("--debug", rich_help_panel=GENERAL, help="Show a traceback with an error."),
]
InitFromOpt = Annotated[
    str | None,
    typer.Option("--init-from", hidden=True, help="nanoGPT's: resume, or a GPT-2 name."),
]
OutDirOpt = Annotated[
    Path | None,
    typer.Option(
        "--out-dir",
        readable=False,
        hidden=True,
        help="nanoGPT's: the folder that holds ckpt.pt.",
    ),
]
