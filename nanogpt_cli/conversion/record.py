"""The account of a conversion: the report, and conversion.json in a folder."""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from nanogpt_cli.checkpoints.writing.remaking import CastLoss
from nanogpt_cli.conversion import hf_folder
from nanogpt_cli.conversion.files import plan_files
from nanogpt_cli.conversion.job import Job
from nanogpt_cli.conversion.report import (
    Cast,
    ConversionReport,
    ModelFacts,
    OutputFile,
    SourceFacts,
    Verification,
)

SCHEMA = "nanogpt.conversion/1"


@dataclass(frozen=True)
class Checked:
    """What reading an output again gave; nothing where that was not asked for."""

    verification: Verification | None = None
    fingerprint: str | None = None


def make_report(
    job: Job,
    *,
    dry_run: bool = False,
    files: tuple[OutputFile, ...] = (),
    loss: CastLoss | None = None,
    checked: Checked = Checked(),
) -> ConversionReport:
    """Return the account of a conversion; see ConversionReport for the parts."""
    config, entries = job.model.config, job.entries or {}
    surroundings = job.surroundings
    if dry_run:
        output_bytes = sum(plan.total_bytes for plan in plan_files(job).values())
    else:
        output_bytes = sum(file.size_bytes for file in files)
    return ConversionReport(
        dry_run=dry_run,
        source=_source_facts(job),
        output=str(job.output),
        to=job.settings.to,
        model=ModelFacts(
            **{name: getattr(config, name) for name in hf_folder.SIZES},
            bias=config.bias,
            activation=config.activation,
            tied_head=config.tied_head,
            dtypes=job.model.dtypes,
        ),
        optimizer=None if surroundings is None else surroundings.optimizer,
        iter_num=cast("int | None", entries.get("iter_num")),
        best_val_loss=cast("float | None", entries.get("best_val_loss")),
        tokenizer=job.tokenizer.kind,
        tensors=tuple(planned.row for planned in job.model.tensors),
        left_out=job.model.left_out + (() if surroundings is None else surroundings.left_out),
        files=files,
        output_bytes=output_bytes,
        cast=_cast(loss),
        fingerprint=checked.fingerprint,
        verification=checked.verification,
        notes=job.notes,
    )


def hash_files(folder: Path) -> tuple[OutputFile, ...]:
    """Return every file of a folder with its hash, by name."""
    files = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        files.append(OutputFile(path.name, path.stat().st_size, digest))
    return tuple(files)


def write_record(folder: Path, report: ConversionReport) -> None:
    """Leave a report in a folder, without the names of folders on this machine."""
    content = {"schema": SCHEMA, **asdict(report)}
    source = content["source"]
    source["path"] = Path(source["path"]).name
    if source["revision"] is None:
        source["given"] = source["path"]
    for name in ("output", "dry_run", "output_bytes", "notes"):
        del content[name]
    path = folder / hf_folder.RECORD
    with path.open("wb") as file:
        file.write(hf_folder.to_text(_finite(content)))
        file.flush()
        os.fsync(file.fileno())


def _finite(content: dict[str, object]) -> dict[str, object]:
    """Return JSON content whose numbers are all numbers; what is none becomes null."""

    def clean(value: object) -> object:
        if isinstance(value, dict):
            return {key: clean(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [clean(entry) for entry in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {key: clean(value) for key, value in content.items()}


def _source_facts(job: Job) -> SourceFacts:
    checkpoint = job.checkpoint
    return SourceFacts(
        given=checkpoint.located.given,
        path=str(checkpoint.located.path),
        container=checkpoint.contents.container,
        revision=checkpoint.located.revision,
        size_bytes=sum(path.stat().st_size for path in checkpoint.contents.files),
        activation=checkpoint.config.activation,
        activation_source=checkpoint.architecture.sources["activation"],
    )


def _cast(loss: CastLoss | None) -> Cast | None:
    if loss is None or not loss.cast:
        return None
    return Cast(loss.cast, loss.changed, loss.vanished, loss.largest, loss.where or None)
