"""`nanogpt inspect`: what is in a checkpoint, executing nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanogpt_cli import options, output
from nanogpt_cli.errors import CheckpointError, NanoGPTError, TokenizerError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nanogpt_cli.checkpoints import Checkpoint
    from nanogpt_cli.inspection.overview import OverviewReport
    from nanogpt_cli.inspection.refusal import RefusalReport


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

    try:
        opened = open_checkpoint(checkpoint, n_head=n_head, offline=offline)
    except CheckpointError as error:
        show_refusal(checkpoint, error, as_json=json)
        raise
    tell(opened)
    report = survey(opened, tokenizer=tokenizer, meta=meta)
    output.emit(report, json, render)
    refuse_hostile_table(report)


def tell(checkpoint: Checkpoint) -> None:
    """Say on stderr which file is inspected, how far it was trained, and what to know of it."""
    facts = [str(checkpoint.located.path)]
    if checkpoint.iter_num is not None:
        facts.append(f"iter_num {checkpoint.iter_num}")
    if checkpoint.best_val_loss is not None:
        facts.append(f"best_val_loss {checkpoint.best_val_loss:.4f}")
    output.note("inspecting " + ", ".join(facts))
    for message in checkpoint.notes:
        output.note(message)


def show_refusal(ref: str | None, error: CheckpointError, *, as_json: bool) -> None:
    """Show what can be said of a file that is not opened; the error itself goes to stderr."""
    from nanogpt_cli.checkpoints.refs import locate
    from nanogpt_cli.inspection.refusal import examine

    try:
        path = locate(ref, offline=True).path
    except NanoGPTError:
        return
    output.emit(examine(path, error), as_json, render_refused)


def refuse_hostile_table(report: OverviewReport) -> None:
    """Fail where the table beside the checkpoint is a pickle that would run something."""
    found = report.tokenizer
    if found.status == "refused":
        raise TokenizerError(found.message, found.hint)


def render(report: OverviewReport) -> RenderableType:
    """Return the overview."""
    from nanogpt_cli.commands.inspect_overview import render_overview

    return render_overview(report)


def render_refused(report: RefusalReport) -> RenderableType:
    """Return what is in a file that is not opened."""
    from nanogpt_cli.commands.inspect_refusal import render_refusal

    return render_refusal(report)
