"""Which checkpoint."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nanogpt_cli import candidates


def checkpoint_argument(metavar: str = "CKPT", *, default: str = "") -> Any:
    """Return the argument that names a checkpoint, the same for every command."""
    return typer.Argument(
        metavar=metavar,
        show_default=default or False,
        autocompletion=candidates.checkpoints,
        help="A ckpt.pt, a folder with one, a Hugging Face folder, a .safetensors file, a hub name "
        "such as gpt2 or owner/name, or demo (the small model in the package).",
    )


CheckpointArg = Annotated[
    str | None, checkpoint_argument(default="out/ckpt.pt if it is there, else demo")
]
