"""Format to format: nanoGPT's ckpt.pt, Hugging Face folders, safetensors; each result verified.

`convert` is the whole of it. The plan is settled before a byte is read, the writing streams, and
what was written is read again and compared before it gets its name.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.checkpoints import Checkpoint, open_checkpoint
from nanogpt_cli.checkpoints.writing.atomic import Progress, write_file, write_folder
from nanogpt_cli.checkpoints.writing.plans import BytesPlan
from nanogpt_cli.checkpoints.writing.remaking import CastLoss
from nanogpt_cli.checkpoints.writing.targets import check_target
from nanogpt_cli.conversion.job import Job, plan_files, plan_job
from nanogpt_cli.conversion.record import Checked, hash_files, make_report, write_record
from nanogpt_cli.conversion.report import ConversionReport, OutputFile
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
    if dry_run:
        return make_report(job, dry_run=True)
    write = _write_folder if is_folder else _write_file
    return write(job, _Check(job) if verify else None, progress)


def _inputs(checkpoint: Checkpoint) -> list[Path]:
    return [checkpoint.located.path, *checkpoint.contents.files]


def _check_neighbours(job: Job, *, force: bool) -> None:
    """Refuse to overwrite another checkpoint's tokenizer beside a single file."""
    if job.is_folder:
        return
    for name in job.tokenizer.files:
        check_target(job.output.parent / name, [], force=force)


def _write_folder(job: Job, check: _Check | None, progress: Progress) -> ConversionReport:
    loss = CastLoss()
    reports: list[ConversionReport] = []

    def finish(path: Path) -> None:
        found = check.run(path) if check else Checked()
        reports.append(make_report(job, files=hash_files(path), loss=loss, checked=found))
        write_record(path, reports[0])

    write_folder(job.output, plan_files(job, loss), check=finish, progress=progress)
    return reports[0]


def _write_file(job: Job, check: _Check | None, progress: Progress) -> ConversionReport:
    loss = CastLoss()
    found = [Checked()]

    def finish(path: Path) -> None:
        if check:
            found[0] = check.run(path)

    (plan,) = plan_files(job, loss).values()
    write_file(job.output, plan, check=finish, progress=progress)
    for name, content in job.tokenizer.files.items():
        write_file(job.output.parent / name, BytesPlan(content))
    sizes = {name: len(content) for name, content in job.tokenizer.files.items()}
    files = {job.output.name: plan.total_bytes, **sizes}
    listed = tuple(OutputFile(name, size) for name, size in files.items())
    return make_report(job, files=listed, loss=loss, checked=found[0])


@dataclass(frozen=True)
class _Check:
    """Reads an output again before it gets its name."""

    job: Job

    def run(self, path: Path) -> Checked:
        """Return what was found; see `verification.verify` for what it raises."""
        from nanogpt_cli.checkpoints.fingerprints import fingerprint
        from nanogpt_cli.conversion import verification  # transformers, for a model to run

        job = self.job
        found = verification.verify(
            job.checkpoint, job.model, job.settings.to, path, entries=job.entries
        )
        return Checked(found, fingerprint(verification.read_output(path).architecture))
