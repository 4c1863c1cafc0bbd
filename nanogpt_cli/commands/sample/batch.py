"""`nanogpt sample --prompts`: a file of prompts in, a file of samples out."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from nanogpt_cli import output
from nanogpt_cli.commands.sample.batch_plan import STDIO, BatchJob, require_other
from nanogpt_cli.commands.sample.progress import show_progress
from nanogpt_cli.errors import NanoGPTError, count_of, name_some

if TYPE_CHECKING:
    import io

    from nanogpt_cli.generation.batch.prompts import PromptRow
    from nanogpt_cli.generation.batch.row_file import RowFile
    from nanogpt_cli.generation.batch.samples import SampleRow, Tally
    from nanogpt_cli.generation.batch.written import Written
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.settings import SampleSettings


def run(job: BatchJob, session: Session, settings: SampleSettings) -> None:
    """Make a batch's samples, and end with a line that says how it went.

    Raises:
        NanoGPTError: rows without a text (exit code 3), a fault of the model, a full disk.
    """
    from nanogpt_cli.generation.batch.prompts import PromptReader
    from nanogpt_cli.generation.batch.samples import Tally, sample_rows

    tally = Tally()
    with _open_prompts(job.prompts) as stream:
        name = "standard input" if job.prompts == STDIO else repr(job.prompts)
        reader = PromptReader(stream, name, job.shard)
        note_keys(reader.passed_over)
        for message in session.advise(settings):
            output.note(message)
        with _open_output(job, session, settings) as (file, written):
            rows = _count_rows(job)
            total = None if rows is None else job.shard.share(rows) * settings.num_samples
            made = sample_rows(
                session,
                reader,
                settings,
                wanted=_every if written is None else written.lacks,
                batch_size=job.batch_size,
                tally=tally,
            )
            there = (lambda: 0) if written is None else (lambda: written.met)
            with show_progress(tally, there, total, beside_rows=file is None) as step:
                _write(made, file, step)
    note_keys(reader.passed_over)
    _tell(session, settings, tally, written)


def _every(_row: PromptRow, _index: int) -> bool:
    return True


@contextlib.contextmanager
def _open_prompts(prompts: str) -> Iterator[io.BufferedReader]:
    if prompts == STDIO:
        stdin: BinaryIO | None = getattr(sys.stdin, "buffer", None)
        if stdin is None:
            raise NanoGPTError(
                "cannot read prompts: standard input is closed", hint="name a file: --prompts FILE"
            )
        yield cast("io.BufferedReader", stdin)
        return
    try:
        stream = Path(prompts).open("rb")  # noqa: SIM115
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NanoGPTError(f"cannot read {prompts!r}: {reason.lower()}") from error
    with stream:
        yield stream


@contextlib.contextmanager
def _open_output(
    job: BatchJob, session: Session, settings: SampleSettings
) -> Iterator[tuple[RowFile | None, Written | None]]:
    """Open the output, if it is a file, and see what it has where that is to be gone on with."""
    from nanogpt_cli.generation.batch.row_file import RowFile
    from nanogpt_cli.generation.batch.written import Expected, Written

    if job.output is None:
        yield None, None
        return
    require_other(job.output, session.checkpoint.located.path)
    with RowFile(job.output, keep=job.resume) as file:
        if not job.resume:
            yield file, None
            return
        scored = settings.logprobs
        expected = Expected(
            settings=settings.as_dict(**session.identity),
            dtype=session.dtype_name,
            seed=settings.seed,
            num_samples=settings.num_samples,
            alternatives=None if scored is None else min(scored, session.config.vocab_size),
            shard=job.shard,
        )
        with output.status(f"reading {job.output}"):
            written = Written(job.output, expected)
        if written.step is not None:
            session.compute_as(written.step)
        file.cut(written.size)
        yield file, written


def _count_rows(job: BatchJob) -> int | None:
    """Return how many rows there are, of all shards, or None where that cannot be told."""
    from nanogpt_cli.generation.batch.prompts import count_rows

    path = Path(job.prompts)
    if job.prompts == STDIO or not path.is_file():
        return None
    with path.open("rb") as stream:
        return count_rows(stream)


def _write(made: Iterator[SampleRow], file: RowFile | None, step: Callable[[], None]) -> None:
    try:
        for row in made:
            line = output.to_json(row) + "\n"
            if file is None:
                output.write_text(line)
            else:
                file.append(line)
            step()
    except KeyboardInterrupt:
        if file is not None:
            newline = "\n" if sys.stderr.isatty() else ""
            output.say(f"{newline}hint: add --resume to go on with {str(file.path)!r}")
        raise


def note_keys(passed_over: Iterable[str]) -> None:
    """Say which keys of the rows have no meaning."""
    names = list(passed_over)
    if names:
        output.note(
            f"rows are read for 'prompt', 'id' and 'seed' alone, and not for {name_some(names)}"
        )


def _tell(
    session: Session, settings: SampleSettings, tally: Tally, written: Written | None
) -> None:
    """Say what is worth saying of a finished batch; raise where rows have failed."""
    note_prompts(tally, session.config.block_size)
    if not tally.rows and not (written is not None and written.rows):
        output.note("there were no prompts")
    if written is not None and written.has_holes:
        output.note(
            "rows were missing in the middle of the output: they are at its end, out of order"
        )
    if written is not None and written.met < written.rows:
        lost = written.rows - written.met
        output.note(f"{count_of(lost, 'row')} of the output {_have(lost)} no prompt any more")
    output.remark(summarise(session, settings, tally, written))
    failed = tally.failed + (0 if written is None else written.failed)
    refuse_failed(tally, failed, tally.rows + (0 if written is None else written.rows))


def note_prompts(tally: Tally, block_size: int) -> None:
    """Say what was odd about the prompts."""
    if tally.cut_prompts:
        output.note(
            f"{count_of(tally.cut_prompts, 'prompt')} {_have(tally.cut_prompts)} more than "
            f"{count_of(block_size, 'token')}, and the model sees the last {block_size} of them"
        )
    if tally.spaced_prompts:
        output.note(
            f"in {count_of(tally.spaced_prompts, 'prompt')} the end is a space, which these "
            "models seldom saw: text goes better without it"
        )


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


def refuse_failed(tally: Tally, failed: int, rows: int) -> None:
    """End with exit code 3 where rows have failed.

    Args:
        tally: knows the first of those that were made.
        failed: rows with an error, those that were there among them.
        rows: all of them.

    Raises:
        NanoGPTError: some have.
    """
    if not failed:
        return
    first = ""
    if tally.first_error is not None:
        first = f", the first is row {tally.first_error[0]}: {tally.first_error[1].message}"
    raise NanoGPTError(
        f"{failed:,} of {count_of(rows, 'row')} {_have(failed)} an error and no text{first}",
        hint="each of them says under 'error' what was wrong, and what to do",
        exit_code=3,
    )


def summarise(
    session: Session, settings: SampleSettings, tally: Tally, written: Written | None
) -> str:
    """Return the closing line of a batch."""
    facts = [count_of(tally.rows, "row")]
    if written is not None and written.rows:
        facts[0] += f" after {written.rows:,} that were there"
    facts += rates(tally)
    facts += [str(session.device), session.dtype_name, f"seed {settings.seed}"]
    return ", ".join(facts + ends(tally))


def rates(tally: Tally) -> list[str]:
    """Return the tokens made, and how fast they came."""
    facts = [count_of(tally.new_tokens, "token")]
    if tally.seconds > 0:
        facts.append(f"{tally.rows / tally.seconds:,.1f} rows/s")
        facts.append(f"{tally.new_tokens / tally.seconds:,.1f} tokens/s")
    return facts


def ends(tally: Tally) -> list[str]:
    """Return why samples ended, and how many, where there are any."""
    counts = [f"{reason} {count:,}" for reason, count in tally.finish_reasons.most_common()]
    return [f"finished by {', '.join(counts)}"] if counts else []
