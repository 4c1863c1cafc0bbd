"""Format to format: nanoGPT's ckpt.pt, Hugging Face folders, safetensors; each result verified.

`convert` is the whole of it. The plan is settled before a byte is read, the writing streams, and
what was written is read again and compared before it gets its name. What writes is the heavy half,
and is imported once nothing is wrong with what was asked for.
"""

from __future__ import annotations

import os
from pathlib import Path

from nanogpt_cli.checkpoints import Checkpoint, open_checkpoint
from nanogpt_cli.checkpoints.writing.atomic import Progress
from nanogpt_cli.checkpoints.writing.targets import check_target
from nanogpt_cli.conversion.job import Job, plan_job
from nanogpt_cli.conversion.report import ConversionReport
from nanogpt_cli.conversion.settings import ConversionSettings, choose_target
from nanogpt_cli.errors import UsageError

__all__ = ["ConversionReport", "ConversionSettings", "choose_target", "convert"]


def convert(
    ref: str | None,
    output: Path,
    settings: ConversionSettings,
    *,
    n_head: int | None = None,
    offline: bool = False,
    tokenizer: str | None = None,
    meta: Path | None = None,
    verify: bool = True,
    dry_run: bool = False,
    force: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> ConversionReport:
    """Write a checkpoint in another format, and check that it is the same model.

    Args:
        ref: the source, in the grammar of `open_checkpoint`; it must be given.
        output: the file, or for "hf" the folder, to write.
        settings: what to write.
        n_head: for sources that do not say it.
        offline: fetch nothing.
        tokenizer: a name in TOKENIZERS, a folder or a file, in place of the source's own.
        meta: a meta.pkl in place of the source's own.
        verify: whether the output is read again and compared; it is kept only if it is the same.
        dry_run: plan everything and write nothing.
        force: replace an output that exists.
        progress: told how far the writing is.

    Raises:
        UsageError: flags that cannot be meant, or an output that would cost another file.
        CheckpointError: a source that cannot be read, or that the format cannot carry.
        NanoGPTError: a failed download or write; with exit code 3, an output that differs.
    """
    if ref is None:
        raise UsageError("no source was given", hint="such as nanogpt convert gpt2 -o gpt2.pt")
    is_folder = settings.to == "hf"
    local = [Path(ref)] if os.path.lexists(ref) else []
    check_target(output, local, as_folder=is_folder, force=force)  # before any download
    checkpoint = open_checkpoint(ref, n_head=n_head, offline=offline)
    check_target(output, _inputs(checkpoint), as_folder=is_folder, force=force)
    job = plan_job(checkpoint, output, settings, tokenizer=tokenizer, meta=meta)
    _check_neighbours(job, force=force)
    from nanogpt_cli.conversion import writing  # the heavy half

    if dry_run:
        return writing.report_plan(job)
    return writing.write_output(job, progress, verify=verify)


def _inputs(checkpoint: Checkpoint) -> list[Path]:
    return [checkpoint.located.path, *checkpoint.contents.files]


def _check_neighbours(job: Job, *, force: bool) -> None:
    """Refuse to overwrite another checkpoint's tokenizer beside a single file."""
    if job.is_folder:
        return
    for name in job.tokenizer.files:
        check_target(job.output.parent / name, [], force=force)
