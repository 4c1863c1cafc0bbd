"""`nanogpt inspect`: what is in a checkpoint, executing nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanogpt_cli import options, output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nanogpt_cli.checkpoints import Checkpoint
    from nanogpt_cli.inspection.overview import OverviewReport


def inspect(
    checkpoint: options.CheckpointArg = None,
    tokenizer: options.TokenizerOpt = None,
    meta: options.MetaOpt = None,
    n_head: options.NHeadOpt = None,
    offline: options.OfflineOpt = False,
    json: options.JsonOpt = False,
) -> None:
    """Show what is in a checkpoint: its model, its training, where every byte went.

    Only names, shapes and settings are read, and nothing in the file is executed.

    Example: nanogpt inspect out/ckpt.pt
    """
    from nanogpt_cli.checkpoints import open_checkpoint
    from nanogpt_cli.inspection.overview import survey

    opened = open_checkpoint(checkpoint, n_head=n_head, offline=offline)
    output.note(describe(opened))
    for message in opened.notes:
        output.note(message)
    output.emit(survey(opened, tokenizer=tokenizer, meta=meta), json, render)


def describe(checkpoint: Checkpoint) -> str:
    """Return which file is inspected, and how far it was trained."""
    facts = [str(checkpoint.located.path)]
    if checkpoint.iter_num is not None:
        facts.append(f"iter_num {checkpoint.iter_num}")
    if checkpoint.best_val_loss is not None:
        facts.append(f"best_val_loss {checkpoint.best_val_loss:.4f}")
    return "inspecting " + ", ".join(facts)


def render(report: OverviewReport) -> RenderableType:
    """Return the overview."""
    from nanogpt_cli.commands.inspect_overview import render_overview

    return render_overview(report)
