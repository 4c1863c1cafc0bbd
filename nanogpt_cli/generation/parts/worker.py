"""What one worker of a cluster does: a session of its own, and parts from prompts to files."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import platform
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.generation.batch.prompts import PromptRow, Shard, bare_lines, parse_row
from nanogpt_cli.generation.batch.samples import SampleRow, Tally, sample_rows
from nanogpt_cli.generation.batch.written import Expected, Written
from nanogpt_cli.generation.devices import use_threads
from nanogpt_cli.generation.parts.job import PartReport, PartsJob
from nanogpt_cli.generation.parts.manifest import PartEntry
from nanogpt_cli.generation.parts.plan import Part
from nanogpt_cli.generation.parts.store import Store
from nanogpt_cli.generation.session import Session
from nanogpt_cli.tokenizers.base import replace_surrogates


class PartWorker:
    """Makes parts, one after the other, with one model.

    Args:
        job: what to do.
        spell: a row as a line of JSON, without its end.
    """

    def __init__(self, job: PartsJob, spell: Callable[[SampleRow], str]) -> None:
        self.job, self.spell = job, spell
        self.notes: list[str] = []

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        """Make the parts of a batch as Ray Data gives it: a list a field of `Part`, and `there`."""
        names = ("first_row", "rows", "start", "size")
        columns = zip(*(batch[name] for name in (*names, "there")), strict=True)
        reports = [self.report(Part(*map(int, row[:-1])), there=bool(row[-1])) for row in columns]
        return {"report": [report.to_json() for report in reports]}

    def report(self, part: Part, *, there: bool) -> PartReport:
        """Make a part; what ends the run is in the report, since it is not to be tried again."""
        try:
            return self.make(part, there=there)
        except NanoGPTError as error:
            return PartReport(error=(error.message, error.hint, error.exit_code))

    @cached_property
    def session(self) -> Session:
        """The session, when it is first needed."""
        recipe = self.job.recipe
        with contextlib.suppress(OSError):  # another machine need not have it
            os.chdir(recipe.folder)
        use_threads(recipe.threads)
        try:
            session = recipe.open(self.notes.append)
        except NanoGPTError as error:
            raise NanoGPTError(
                f"a worker on {platform.node()} cannot open the checkpoint: {error.message}",
                hint="it must be there on every machine: on a shared disk, at the same path, "
                "or by its name on the hub",
            ) from error
        for name, value in self.job.identity.items():
            if session.identity[name] != value:
                raise NanoGPTError(
                    f"a worker on {platform.node()} has other {name} than this machine",
                    hint="the same checkpoint and tokenizer must be there on every machine",
                )
        return session

    def make(self, part: Part, *, there: bool) -> PartReport:
        """Make what a part lacks and write it.

        Args:
            part: which.
            there: whether the output has some of it, to be kept.

        Raises:
            NanoGPTError: a fault of the model, of the prompts or of the output.
        """
        tally, report = Tally(), PartReport()
        rows = self._read(part, report)
        output = Store(self.job.output)
        old = _Old(self, output, part, rows) if there else None
        made = sample_rows(
            self.session,
            rows,
            self.job.settings,
            wanted=old.lacks if old is not None else lambda _row, _index: True,
            batch_size=self.job.batch_size,
            tally=tally,
        )
        lines = [f"{self._spelled(row)}\n" for row in made]
        kept = b"" if old is None else old.kept
        data = kept + replace_surrogates("".join(lines))[0].encode()
        if lines or old is None or len(old.data) != len(data):
            output.write(part.name, data)
        self._tell(report, tally)
        counted = (0, 0, 0) if old is None else old.counts
        report.kept = counted[0]
        report.entry = PartEntry(
            part.name,
            part.first_row,
            part.rows,
            tally.rows + counted[0],
            tally.failed + counted[1],
            tally.new_tokens + counted[2],
            len(data),
            hashlib.sha256(data).hexdigest(),
        )
        return report

    def _read(self, part: Part, report: PartReport) -> list[PromptRow]:
        try:
            data = Store(self.job.prompts).read_range(part.start, part.size)
        except NanoGPTError as error:
            raise NanoGPTError(
                f"a worker on {platform.node()} cannot read the prompts: {error.message}",
                hint="they must be there on every machine: on a shared disk, or at a URI",
            ) from error
        lines = list(bare_lines(io.BytesIO(data), is_start=part.start == 0))
        if len(data) != part.size or len(lines) != part.rows:
            raise NanoGPTError(
                f"{self.job.prompts!r} changed while its rows were made",
                hint="start again, with --force or another --output",
            )
        passed_over: dict[str, None] = {}
        rows = [
            parse_row(line, row, is_json=self.job.is_json, passed_over=passed_over)
            for row, line in enumerate(lines, start=part.first_row)
        ]
        report.passed_over = list(passed_over)
        return rows

    def _spelled(self, row: SampleRow) -> str:
        expected = self.job.step
        if expected is not None and row.step not in (None, expected):
            why = "".join(f": {note}" for note in self.notes)
            raise NanoGPTError(
                f"a worker on {platform.node()} has no {expected} step{why}",
                hint="install a C++ compiler on every machine, or give --no-compile",
            )
        return self.spell(row)

    def _tell(self, report: PartReport, tally: Tally) -> None:
        report.made, report.new_tokens = tally.rows, tally.new_tokens
        report.finish_reasons = dict(Counter(tally.finish_reasons))
        report.cut_prompts, report.spaced_prompts = tally.cut_prompts, tally.spaced_prompts
        if tally.first_error is not None:
            report.first_error = (tally.first_error[0], tally.first_error[1].message)
        report.notes, self.notes[:] = list(self.notes), []
        if tally.new_tokens:
            report.step = self.session.engine.step.name


class _Old:
    """A part as an earlier run left it: all of it is kept, or, where rows are missing, none."""

    def __init__(
        self, worker: PartWorker, output: Store, part: Part, rows: list[PromptRow]
    ) -> None:
        settings, session = worker.job.settings, worker.session
        self.data = output.read(part.name)
        scored = settings.logprobs
        self._expected = Expected(
            settings=settings.as_dict(**session.identity),
            dtype=session.dtype_name,
            seed=settings.seed,
            num_samples=settings.num_samples,
            alternatives=None if scored is None else min(scored, session.config.vocab_size),
            shard=Shard(),
        )
        written = Written(output.within(part.name), self._expected, self.data)
        self._lacking = {
            (row.row, index)
            for row in rows
            for index in range(settings.num_samples)
            if written.lacks(row, index)
        }
        if written.met < written.rows:
            raise UsageError(
                f"{output.within(part.name)!r} has {written.rows - written.met:,} rows "
                "that the prompts have not",
                hint="give the same prompts as before, or another --output; --force starts again",
            )
        self._is_whole = not written.has_holes
        self.kept = self.data[: written.size] if self._is_whole else b""
        self.counts = (written.rows, written.failed, written.new_tokens)
        if not self._is_whole:
            self.counts = (0, 0, 0)

    def lacks(self, row: PromptRow, index: int) -> bool:
        """Return whether to make a row's sample."""
        return not self._is_whole or (row.row, index) in self._lacking
