"""How a batch in parts goes, from the reports of its workers, in whatever order they come."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.batch.prompts import RowError
from nanogpt_cli.generation.batch.samples import Tally
from nanogpt_cli.generation.parts.job import PartReport
from nanogpt_cli.generation.parts.manifest import Manifest, PartEntry


@dataclass
class PartsTally(Tally):
    """A tally of parts; its rows and tokens are those that were made.

    Args:
        kept: rows that were there already.
        entries: of the parts that are there.
        passed_over: keys of the rows that have no meaning.
        notes: of the workers, each once.
        step: what computed, or None before that is known.
    """

    kept: int = 0
    entries: list[PartEntry] = field(default_factory=list)
    passed_over: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    step: str | None = None

    def add_part(self, report: PartReport) -> None:
        """Count a finished part.

        Raises:
            NanoGPTError: workers compute in different ways.
        """
        assert report.entry is not None, "a part that is not finished is an error"
        self.entries.append(report.entry)
        self.rows += report.made
        self.kept += report.kept
        self.failed += report.entry.failed
        self.new_tokens += report.new_tokens
        self.finish_reasons.update(report.finish_reasons)
        self.cut_prompts += report.cut_prompts
        self.spaced_prompts += report.spaced_prompts
        self.passed_over.update(dict.fromkeys(report.passed_over))
        self.notes.update(dict.fromkeys(report.notes))
        if report.first_error is not None:
            row, message = report.first_error
            if self.first_error is None or row < self.first_error[0]:
                self.first_error = (row, RowError(message))
        if report.step is not None:
            if self.step not in (None, report.step):
                raise NanoGPTError(
                    f"one worker computes with the {self.step} step, another with {report.step}",
                    hint="give --no-compile, or use machines of one kind",
                )
            self.step = report.step

    def complete(self, manifest: Manifest) -> Manifest:
        """Return the manifest of the finished run."""
        parts = tuple(sorted(self.entries, key=lambda entry: entry.first_row))
        return replace(
            manifest,
            complete=True,
            step=self.step or manifest.step,
            rows=sum(part.rows for part in parts),
            failed=sum(part.failed for part in parts),
            new_tokens=sum(part.new_tokens for part in parts),
            bytes=sum(part.bytes for part in parts),
            parts=parts,
        )
