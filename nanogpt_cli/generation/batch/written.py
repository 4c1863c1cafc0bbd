"""What a file of rows has, and whether a run may go on with it.

There is nothing beside the rows: each says with which settings it was made. A row is known by its
id, else by its number, whatever its place in the file.
"""

from __future__ import annotations

import json
import reprlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.generation.batch.prompts import PromptRow, Shard
from nanogpt_cli.generation.report import SampleReport

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


class Written:
    """Which samples a file has: 24 bytes a sample, whatever the rows hold.

    Each is met once: of two rows with one id, one may be there and the other not.

    Args:
        path: the file.
        expected: what its rows must agree with.
        data: what is in the file, where it is no local one.

    Attributes:
        rows: how many there are.
        failed: of these, errors.
        new_tokens: that they have.
        size: bytes that they take; what follows is torn.
        met: how many of them were asked for so far.
        step: what computed the last sample, or None where there is none.
        has_holes: whether a sample was asked for that the file lacks, and then one that it has.

    Raises:
        UsageError: rows made with other settings, or a file of something else.
        NanoGPTError: the file cannot be read.
    """

    def __init__(self, path: Path | str, expected: Expected, data: bytes | None = None) -> None:
        self.path, self._expected, self._data = path, expected, data
        self.rows = self.failed = self.size = self.met = self.new_tokens = 0
        self.step: str | None = None
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
            self.new_tokens += row.get("new_tokens") or 0
            self.step = row.get("step") or self.step
        self._places, self._contents = _Bag(places), _Bag(contents)

    def lacks(self, row: PromptRow, index: int) -> bool:
        """Return whether a row's sample is still to be made.

        Raises:
            UsageError: the file has it, for another prompt or seed.
        """
        seed = self._expected.seed if row.seed is None else row.seed
        failed = _digest(_place(row.id, row.row, FAILED), row.prompt, seed)
        if index > 0 and self._contents.had(failed):
            return False
        place = _place(row.id, row.row, index)
        if self._contents.take(failed) or self._contents.take(_digest(place, row.prompt, seed)):
            self._places.take(_digest(place))
            self.met += 1
            self.has_holes |= self._lacked
            return False
        if self._places.take(_digest(place)):
            self._refuse(place, row, seed)
        self._lacked = True
        return True

    def _read(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, and note where the last whole one ends."""
        try:
            with Path(self.path).open("rb") if self._data is None else BytesIO(self._data) as file:
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
        changes = differences(
            {"prompt": found["prompt"], "seed": found["seed"]}, {"prompt": row.prompt, "seed": seed}
        )
        raise UsageError(
            f"row {row.row} is in {str(self.path)!r} already, made differently: {changes}",
            hint="take its line out of the file to have it made anew, or give another --output",
        )


class _Bag:
    """Numbers, each as often as it was put in, to be taken out one by one."""

    def __init__(self, numbers: array[int]) -> None:
        self._numbers = array("Q", sorted(numbers))
        self._taken = array("I", bytes(4 * len(numbers)))  # of equal numbers, at the first of them

    def had(self, number: int) -> bool:
        """Return whether a number was put in, taken or not."""
        first = bisect_left(self._numbers, number)
        return first < len(self._numbers) and self._numbers[first] == number

    def take(self, number: int) -> bool:
        """Take a number out; return whether there was one left."""
        first, end = bisect_left(self._numbers, number), bisect_right(self._numbers, number)
        if first == end or self._taken[first] == end - first:
            return False
        self._taken[first] += 1
        return True


def _place(name: str | int | None, row: int, index: int) -> str:
    """Return what tells a sample of a batch from all others: its id or row, and its number."""
    return json.dumps([row if name is None else [name], index])


def _digest(*parts: object) -> int:
    return int.from_bytes(blake2b(json.dumps(parts).encode(), digest_size=8).digest())


def _is_torn(line: bytes) -> bool:
    """Return whether a line without an end began as a row; a crash may leave zero bytes."""
    return line.startswith(BEGINNING) or BEGINNING.startswith(line) or not line.strip(b"\0")


def _parse(line: bytes, number: int, path: Path | str) -> dict[str, Any]:
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


def _check(row: dict[str, Any], number: int, path: Path | str, expected: Expected) -> None:
    found = row["settings"]
    if found.get("digest") != expected.settings["digest"]:
        changes = differences(found, expected.settings)
        if not changes:
            changes = differences({"dtype": row.get("dtype")}, {"dtype": expected.dtype})
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


def _refused(number: int, path: Path | str, found: str, changes: str) -> UsageError:
    return UsageError(f"line {number} of {str(path)!r} {found}: {changes}", hint=START_AGAIN)


def differences(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Return what is not the same, as `temperature 0.8 then, 0.5 now`."""
    changed = [
        key for key in {**before, **now} if key != "digest" and before.get(key) != now.get(key)
    ]
    return ", ".join(
        f"{key} {reprlib.repr(before.get(key))} then, {reprlib.repr(now.get(key))} now"
        for key in changed
    )
