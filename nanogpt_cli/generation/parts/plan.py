"""Which rows belong to which part, and where their lines are. Knows no cluster and no model."""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.batch.prompts import bare_lines, find_wide_encoding, is_json_row

PART_NAME = re.compile(r"part-[0-9]{12}\.jsonl")

PART_SAMPLES = (64, 512)
"""In a part, at least and at most: enough to fill an engine's batch, few enough to make again."""

PARTS_A_WORKER = 4
"""At least, so that the last ones end at about the same time."""

MOST_PARTS = 10_000

_GRAIN = 64
"""Parts of more rows are of a multiple of this."""

_MOST_OFFSETS = 1 << 22


@dataclass(frozen=True)
class Part:
    """Some rows that follow each other.

    Args:
        first_row: the number of the first.
        rows: how many.
        start: bytes of the file of prompts before them.
        size: bytes that their lines take, blank ones between included.
    """

    first_row: int
    rows: int
    start: int
    size: int

    @property
    def name(self) -> str:
        """The file that has its samples; names sort as the rows do."""
        return f"part-{self.first_row:012d}.jsonl"


class Lines:
    """Where the rows of a file of prompts begin.

    Args:
        stream: the file, from its start; it is read once, and not kept.
        name: of the file, for people.

    Attributes:
        rows: how many there are.
        size: bytes of the file.
        is_json: what the first line decides.

    Raises:
        UsageError: UTF-16 or -32, or a first line that is neither a prompt nor a JSON row.
    """

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        encoding = (find_wide_encoding(stream) or "").upper()
        if encoding:
            raise UsageError(
                f"{name} is {encoding}, and --engine ray reads UTF-8 alone",
                hint=f"iconv -f {encoding} -t UTF-8 OLD > NEW",
            )
        self.rows = self.size = 0
        self.is_json = False
        self._offsets, self._step = array("Q", [0]), 1  # of the rows 0, step, 2 * step, ...
        for line in stream:
            for bare in bare_lines((line,), is_start=self.size == 0):
                if self.rows == 0:
                    self.is_json = is_json_row(bare, name)
                else:
                    self._note(self.size)
                self.rows += 1
            self.size += len(line)

    def _note(self, offset: int) -> None:
        if self.rows % self._step == 0:
            self._offsets.append(offset)
        if len(self._offsets) > _MOST_OFFSETS:
            self._offsets, self._step = self._offsets[::2], 2 * self._step

    def split(self, rows_per_part: int) -> tuple[Part, ...]:
        """Return parts of so many rows, the last of fewer; one of no rows where there are none.

        Raises:
            UsageError: parts that are far too small for a file of this length.
        """
        if rows_per_part % self._step:
            raise UsageError(
                f"{self.rows:,} rows are too many for parts of {rows_per_part}",
                hint="the file has grown by much: give another --output, or --force",
            )
        starts = self._offsets[:: rows_per_part // self._step][: self._count(rows_per_part)]
        parts = []
        for number, start in enumerate(starts):
            first = number * rows_per_part
            end = starts[number + 1] if number + 1 < len(starts) else self.size
            parts.append(Part(first, min(rows_per_part, self.rows - first), start, end - start))
        return tuple(parts)

    def _count(self, rows_per_part: int) -> int:
        return max(1, -(-self.rows // rows_per_part))


def choose_rows_per_part(rows: int, num_samples: int, workers: int) -> int:
    """Return how many rows make a good part for so many workers."""
    low, high = PART_SAMPLES
    samples = min(high, max(low, -(-rows * num_samples // (PARTS_A_WORKER * workers))))
    chosen = max(-(-samples // num_samples), -(-rows // MOST_PARTS))
    return chosen if chosen < _GRAIN else -(-chosen // _GRAIN) * _GRAIN


def other_parts(names: Iterable[str], parts: Iterable[Part]) -> list[str]:
    """Return the names that are those of parts, and of none of these."""
    known = {part.name for part in parts}
    return sorted(name for name in names if PART_NAME.fullmatch(name) and name not in known)
