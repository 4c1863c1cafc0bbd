"""The heavy half of a conversion: its files are written, read again, and accounted for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.checkpoints.fingerprints import fingerprint
from nanogpt_cli.checkpoints.plans import BytesPlan
from nanogpt_cli.checkpoints.writing.atomic import Progress, write_file, write_folder
from nanogpt_cli.checkpoints.writing.remaking import CastLoss
from nanogpt_cli.conversion.files import plan_files
from nanogpt_cli.conversion.job import Job
from nanogpt_cli.conversion.record import Checked, hash_files, make_report, write_record
from nanogpt_cli.conversion.report import ConversionReport, OutputFile


def report_plan(job: Job) -> ConversionReport:
    """Return the account of a conversion that is not to be done."""
    return make_report(job, dry_run=True)


def write_output(job: Job, progress: Progress, *, verify: bool) -> ConversionReport:
    """Write the output of a conversion, and return the account of it.

    Args:
        job: what to write.
        progress: told how far the writing is.
        verify: whether it is read again and compared; it is kept only if it is the same.

    Raises:
        CheckpointError: a weight that the number format has no place for, or a source that was
            written again meanwhile.
        NanoGPTError: a failed write; with exit code 3, an output that differs.
    """
    write = _write_folder if job.is_folder else _write_file
    return write(job, _Check(job) if verify else None, progress)


def _write_folder(job: Job, check: _Check | None, progress: Progress) -> ConversionReport:
    loss = CastLoss()
    reports: list[ConversionReport] = []

    def finish(path: Path) -> None:
        job.checkpoint.require_unchanged()
        found = check.run(path) if check else Checked()
        reports.append(make_report(job, files=hash_files(path), loss=loss, checked=found))
        write_record(path, reports[0])

    write_folder(job.output, plan_files(job, loss), check=finish, progress=progress)
    return reports[0]


def _write_file(job: Job, check: _Check | None, progress: Progress) -> ConversionReport:
    loss = CastLoss()
    found = [Checked()]

    def finish(path: Path) -> None:
        job.checkpoint.require_unchanged()
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
        from nanogpt_cli.conversion import verification  # transformers, for a model to run

        job = self.job
        found = verification.verify(
            job.checkpoint, job.model, job.settings.to, path, entries=job.entries
        )
        return Checked(found, fingerprint(verification.read_output(path).architecture))
