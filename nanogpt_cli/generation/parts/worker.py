"""What one worker of a cluster does: a session of its own, and parts from prompts to files."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.generation.batch import SampleRow, Tally, sample_rows
from nanogpt_cli.generation.devices import use_threads
from nanogpt_cli.generation.parts.manifest import PartEntry
from nanogpt_cli.generation.parts.plan import Part
from nanogpt_cli.generation.parts.store import Store
from nanogpt_cli.generation.rows import PromptRow, Shard, bare_lines, parse_row
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.steps.choose import Compile, StepChoice
from nanogpt_cli.generation.written import Expected, Written
from nanogpt_cli.tokenizers.base import replace_surrogates


@dataclass(frozen=True)
class Recipe:
    """How any machine opens the same session.

    Args:
        checkpoint: a reference that holds everywhere.
        folder: what relative paths are relative to, where there is such a folder.
        device: "cpu", "cuda" or "auto"; `dtype` likewise may be "auto".
        compile: whether to use the compiled step on CPUs.
        cache: where compiled steps are kept.
    """

    checkpoint: str
    n_head: int | None
    offline: bool
    tokenizer: str | None
    meta: Path | None
    folder: Path
    device: str
    dtype: str
    quantize: str | None
    compile: Compile
    threads: int | None
    cache: Path | None

    def open(self, notify: Callable[[str], None] = lambda _note: None) -> Session:
        """Open the checkpoint; its weights are read later.

        Raises:
            NanoGPTError: what opening a session meets.
        """
        return Session(
            open_checkpoint(self.checkpoint, n_head=self.n_head, offline=self.offline),
            tokenizer=self.tokenizer,
            meta=self.meta,
            device=self.device,
            dtype=self.dtype,
            choice=StepChoice(self.quantize, self.compile, self.threads, self.cache),
            notify=notify,
        )


@dataclass(frozen=True)
class PartsJob:
    """What all workers are told.

    Args:
        recipe: of the session.
        settings: of the samples.
        prompts: where they are.
        is_json: what their first line decides.
        output: the folder of parts.
        batch_size: None for what memory allows.
        identity: what the session must be.
        step: that must compute, or None for any.
    """

    recipe: Recipe
    settings: SampleSettings
    prompts: str
    is_json: bool
    output: str
    batch_size: int | None
    identity: Mapping[str, str]
    step: str | None


@dataclass
class PartReport:
    """How a part went.

    Args:
        entry: of the finished part, or None with `error`.
        kept: rows of it that were there already.
        made: rows of it that were made.
        new_tokens: made.
        finish_reasons: of the samples that were made.
        cut_prompts: see `Tally`; `spaced_prompts` and `first_error` likewise.
        passed_over: keys of the rows that have no meaning.
        notes: of the session, for people.
        step: what computed, or None where nothing had to be.
        error: message, hint and exit code of what ends the run.
    """

    entry: PartEntry | None = None
    kept: int = 0
    made: int = 0
    new_tokens: int = 0
    finish_reasons: dict[str, int] = field(default_factory=dict)
    cut_prompts: int = 0
    spaced_prompts: int = 0
    first_error: tuple[int, str] | None = None
    passed_over: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    step: str | None = None
    error: tuple[str, str | None, int] | None = None

    def to_json(self) -> str:
        """Return it as text, to be sent."""
        return json.dumps(asdict(self))


def read_report(text: str) -> PartReport:
    """Return the report that was sent; its error is raised.

    Raises:
        NanoGPTError: what the worker met.
    """
    values: dict[str, Any] = json.loads(text)
    if values["error"] is not None:
        message, hint, exit_code = values["error"]
        raise NanoGPTError(message, hint, exit_code=exit_code)
    entry = PartEntry(**values.pop("entry"))
    first_error = values.pop("first_error")
    return PartReport(
        entry=entry, first_error=None if first_error is None else tuple(first_error), **values
    )


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
