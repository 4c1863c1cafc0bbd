"""A file of finished rows: appended whole, cut where torn, and gone on with.

There is nothing beside the rows: each says with which settings it was made.
"""

from __future__ import annotations

import contextlib
import json
import os
import reprlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any

from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.generation.report import SampleReport
from nanogpt_cli.generation.rows import PromptRow, Shard

try:
    import fcntl
except ImportError:  # Windows: two runs into one file are not told apart there
    fcntl = None  # type: ignore[assignment]

BEGINNING = b'{"schema": "%s"' % SampleReport.schema.encode()
"""Of every row: a last line that is torn begins like this, or is the beginning of this."""

FAILED = -1
"""In place of a sample's number, for a row whose one line stands for all of its samples."""

START_AGAIN = "give the same as before, or another --output; --force starts again"


@dataclass(frozen=True)
class Expected:
    """What rows of a file must agree with to be gone on with.

    Args:
        settings: as rows have them, digest included.
        dtype: as rows have it.
        seed: of rows without their own.
        num_samples: of every prompt.
        alternatives: scored beside each token, or None for no scores.
        shard: that the file is for.
    """

    settings: Mapping[str, object]
    dtype: str
    seed: int
    num_samples: int
    alternatives: int | None
    shard: Shard


class RowFile:
    """A file of rows that is open for appending, and for this run alone.

    Args:
        path: the file; made if it is not there.
        keep: whether what is in it stays; else it goes when the first row is written.

    Raises:
        NanoGPTError: it cannot be opened, or another run is writing it.
    """

    def __init__(self, path: Path, *, keep: bool) -> None:
        self.path, self.rows = path, 0
        self._replaces = not keep
        self._is_new = not path.exists()
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            raise NanoGPTError(
                f"cannot write {str(path)!r}: {(error.strerror or str(error)).lower()}",
                hint="give --output in a folder that can be written to",
            ) from error
        self._lock()

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise NanoGPTError(
                f"another run is writing {str(self.path)!r}",
                hint="wait until it is done; shards need an --output each",
            ) from error
        except OSError:  # a file system without locks
            pass

    def append(self, line: str) -> None:
        """Add a row, newline included, in one write; one that fails leaves none of it.

        Raises:
            NanoGPTError: the disk is full, or the like.
        """
        data = line.encode()
        try:
            self._drop_old()
            before = os.fstat(self._descriptor).st_size
            self._write(data, before)
        except OSError as error:
            raise NanoGPTError(
                f"cannot write {str(self.path)!r}: {(error.strerror or str(error)).lower()}",
                hint="the rows in it are whole: make room, then add --resume for the rest",
            ) from error
        self.rows += 1

    def _write(self, data: bytes, before: int) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except BaseException:
            if os.fstat(self._descriptor).st_size < before + len(data):
                os.ftruncate(self._descriptor, before)
            raise

    def _drop_old(self) -> None:
        if self._replaces:
            os.ftruncate(self._descriptor, 0)
            self._replaces = False

    def cut(self, size: int) -> None:
        """Take away what is beyond so many bytes."""
        os.ftruncate(self._descriptor, size)

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._drop_old()
            elif self._is_new and not self.rows:
                self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # a pipe, or a disk that promises nothing
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)


class Written:
    """Which samples a file has: 16 bytes a sample, whatever the rows hold.

    Args:
        path: the file.
        expected: what its rows must agree with.

    Attributes:
        rows: how many there are.
        failed: of these, errors.
        size: bytes that they take; what follows is torn.
        met: how many of them were asked for so far.
        has_holes: whether a sample was asked for that the file lacks, and then one that it has.

    Raises:
        UsageError: rows made with other settings, or a file of something else.
        NanoGPTError: the file cannot be read.
    """

    def __init__(self, path: Path, expected: Expected) -> None:
        self.path, self._expected = path, expected
        self.rows = self.failed = self.size = self.met = 0
        self.has_holes = self._lacked = False
        places, contents = array("Q"), array("Q")
        for number, row in enumerate(self._read(), start=1):
            _check(row, number, path, expected)
            index = FAILED if row.get("error") else row["index"]
            places.append(_digest(_place(row["id"], row["row"], row["index"])))
            place = _place(row["id"], row["row"], index)
            contents.append(_digest(place, row["prompt"], row["seed"]))
            self.rows = number
            self.failed += index == FAILED
        self._places, self._contents = array("Q", sorted(places)), array("Q", sorted(contents))

    def lacks(self, row: PromptRow, index: int) -> bool:
        """Return whether a row's sample is still to be made.

        Raises:
            UsageError: the file has it, for another prompt or seed.
        """
        seed = self._expected.seed if row.seed is None else row.seed
        place, failed = _place(row.id, row.row, index), _place(row.id, row.row, FAILED)
        if _holds(self._contents, _digest(failed, row.prompt, seed)):
            self._meet(index == 0)
            return False
        if _holds(self._contents, _digest(place, row.prompt, seed)):
            self._meet(True)
            return False
        if _holds(self._places, _digest(place)):
            self._refuse(place, row, seed)
        self._lacked = True
        return True

    def _meet(self, once: bool) -> None:
        self.met += once
        self.has_holes |= self._lacked

    def _read(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, and note where the last whole one ends."""
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if not line.endswith(b"\n") and _is_torn(line):
                        return
                    yield _parse(line, number, self.path)
                    self.size += len(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise NanoGPTError(f"cannot read {str(self.path)!r}: {error.strerror}") from error

    def _refuse(self, place: str, row: PromptRow, seed: int) -> None:
        found = next(
            old for old in self._read() if _place(old["id"], old["row"], old["index"]) == place
        )
        changes = _differences(
            {"prompt": found["prompt"], "seed": found["seed"]}, {"prompt": row.prompt, "seed": seed}
        )
        raise UsageError(
            f"row {row.row} is in {str(self.path)!r} already, made differently: {changes}",
            hint="take its line out of the file to have it made anew, or give another --output",
        )


def _holds(sorted_numbers: array[int], number: int) -> bool:
    at = bisect_left(sorted_numbers, number)
    return at < len(sorted_numbers) and sorted_numbers[at] == number


def _place(name: str | int | None, row: int, index: int) -> str:
    """Return what tells a sample of a batch from all others: its id or row, and its number."""
    return json.dumps([row if name is None else [name], index])


def _digest(*parts: object) -> int:
    return int.from_bytes(blake2b(json.dumps(parts).encode(), digest_size=8).digest())


def _is_torn(line: bytes) -> bool:
    """Return whether a line without an end began as a row; a crash may leave zero bytes."""
    return line.startswith(BEGINNING) or BEGINNING.startswith(line) or not line.strip(b"\0")


def _parse(line: bytes, number: int, path: Path) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not _is_row(row):
        raise UsageError(
            f"line {number} of {str(path)!r} is no row of a batch: there is nothing to resume",
            hint="give another --output, or --force to replace the file",
        )
    assert isinstance(row, dict), "it is a row"
    return row


def _is_row(value: object) -> bool:
    if not isinstance(value, dict) or value.get("schema") != SampleReport.schema:
        return False
    numbers = [type(value.get(key)) is int for key in ("row", "index", "seed")]
    has_settings = isinstance(value.get("settings"), dict)
    return all(numbers) and has_settings and {"id", "prompt"} <= value.keys()


def _check(row: dict[str, Any], number: int, path: Path, expected: Expected) -> None:
    found = row["settings"]
    if found.get("digest") != expected.settings["digest"]:
        changes = _differences(found, expected.settings)
        if not changes:
            changes = _differences({"dtype": row.get("dtype")}, {"dtype": expected.dtype})
        changes = changes or "the weights or the tokenizer are not the same"
        raise _refused(number, path, "was made with other settings", changes)
    scores = row.get("logprobs")
    if row.get("error") is None and (scores is None) != (expected.alternatives is None):
        has = "has no" if scores is None else "has"
        raise _refused(number, path, f"{has} log-probabilities", "see --logprobs")
    if scores and len(scores[0]["top"]) != expected.alternatives:
        raise _refused(number, path, f"has {len(scores[0]['top'])} alternatives", "see --logprobs")
    if not expected.shard.holds(row["row"]):
        shard = f"{expected.shard.index}/{expected.shard.count}"
        raise _refused(number, path, f"is row {row['row']}", f"no row of shard {shard}")
    if row["index"] >= expected.num_samples:
        asked = f"--num-samples {expected.num_samples} asks for fewer"
        raise _refused(number, path, f"is sample {row['index']}, counted from 0", asked)


def _refused(number: int, path: Path, found: str, changes: str) -> UsageError:
    return UsageError(f"line {number} of {str(path)!r} {found}: {changes}", hint=START_AGAIN)


def _differences(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Return what is not the same, as `temperature 0.8 then, 0.5 now`."""
    changed = [
        key for key in {**before, **now} if key != "digest" and before.get(key) != now.get(key)
    ]
    return ", ".join(
        f"{key} {reprlib.repr(before.get(key))} then, {reprlib.repr(now.get(key))} now"
        for key in changed
    )
