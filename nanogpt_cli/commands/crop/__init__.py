"""`nanogpt crop`: the same model with fewer positions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nanogpt_cli.options.checkpoint import checkpoint_argument
from nanogpt_cli.options.model import OfflineOpt
from nanogpt_cli.options.output import DryRunOpt, ForceOpt, JsonOpt, OutputOpt
from nanogpt_cli.options.panels import MODEL, OUTPUT
from nanogpt_cli.output import emit, note

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nanogpt_cli.surgery import CropReport

Dtype = Literal["float32", "bfloat16", "float16"]

SourceArg = Annotated[str, checkpoint_argument()]
BlockSizeOpt = Annotated[
    int,
    typer.Option(
        "--block-size",
        rich_help_panel=MODEL,
        show_default=False,
        help="The new context in tokens: how many positions to keep, from the first on.",
    ),
]
WeightsOnlyOpt = Annotated[
    bool,
    typer.Option(
        "--weights-only",
        rich_help_panel=MODEL,
        help="Leave the optimizer out: the file has a third of the size, is enough to sample from, "
        "and cannot resume training.",
    ),
]
DtypeOpt = Annotated[
    Dtype | None,
    typer.Option(
        "--dtype",
        envvar="NANOGPT_CROP_DTYPE",
        rich_help_panel=MODEL,
        show_default="each weight's own",
        help="Number format of the weights in the output.",
    ),
]
VerifyOpt = Annotated[
    bool,
    typer.Option(
        "--verify/--no-verify",
        rich_help_panel=OUTPUT,
        help="Read the result again, compare its logits with the source's over the kept positions, "
        "and keep it only if they are equal.",
    ),
]


def crop(
    checkpoint: SourceArg,
    block_size: BlockSizeOpt,
    output: OutputOpt = None,
    weights_only: WeightsOnlyOpt = False,
    dtype: DtypeOpt = None,
    offline: OfflineOpt = False,
    verify: VerifyOpt = True,
    dry_run: DryRunOpt = False,
    force: ForceOpt = False,
    json: JsonOpt = False,
) -> None:
    """Write a checkpoint with a shorter context, which trains and samples as before.

    The position table, stored masks, settings and the optimizer's moments are cut together; all
    else is kept bit for bit. The output is ckpt-256.pt beside ckpt.pt, unless --output says
    otherwise, and in the format of the input.

    Examples:

        nanogpt crop out/ckpt.pt --block-size 256
        nanogpt crop gpt2 --block-size 512 --dtype bfloat16 -o gpt2-512
    """
    from nanogpt_cli import surgery
    from nanogpt_cli.checkpoints import open_checkpoint
    from nanogpt_cli.checkpoints.writing.targets import check_target
    from nanogpt_cli.commands.progress import show_progress

    surgery.require_block_size(block_size)
    if output is not None and not os.path.lexists(checkpoint):
        check_target(output, [], as_folder=output.is_dir(), force=force)  # before any download
    opened = open_checkpoint(checkpoint, offline=offline)
    for message in opened.notes:
        note(message)
    with show_progress("cropping", in_bytes=True, finally_="verifying") as progress:
        report = surgery.crop(
            opened,
            block_size,
            output=output,
            weights_only=weights_only,
            dtype=dtype,
            dry_run=dry_run,
            force=force,
            verify=verify,
            progress=progress,
        )
    for message in report.notes:
        note(message)
    emit(report, json, render)


def render(report: CropReport) -> RenderableType:
    """Return the receipt."""
    from nanogpt_cli.commands.crop.tables import render_crop

    return render_crop(report)
