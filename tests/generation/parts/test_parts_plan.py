"""Parts of a file of prompts: the very rows of the file, whatever its lines."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.batch.prompts import PromptReader, PromptRow, bare_lines, parse_row
from nanogpt_cli.generation.parts import plan
from nanogpt_cli.generation.parts.plan import Lines, Part, choose_rows_per_part, other_parts

BOM = b"\xef\xbb\xbf"
LINES = st.lists(
    st.sampled_from(
        [b"", b" ", b"a", b"b\r", b'{"prompt": "c"}', BOM, BOM + b"d", b"\xff\xfee", b"\x0b"]
    )
)


def lines_of(data: bytes) -> Lines:
    return Lines(io.BufferedReader(io.BytesIO(data)), "'prompts'")


def rows_of(data: bytes, lines: Lines, parts: tuple[Part, ...]) -> list[PromptRow]:
    """Return the rows as workers read them, each its part of the bytes."""
    rows = []
    for part in parts:
        own = io.BytesIO(data[part.start : part.start + part.size])
        bare = list(bare_lines(own, is_start=part.start == 0))
        assert len(bare) == part.rows
        rows += [
            parse_row(line, row, is_json=lines.is_json)
            for row, line in enumerate(bare, start=part.first_row)
        ]
    return rows


@given(LINES, st.booleans(), st.integers(1, 4))
@example([BOM, b"a", BOM + b"d"], True, 1)
@example([BOM + b"d", b"\xff\xfee"], False, 1)
@example([b"", b"\xff\xfee"], False, 1)
def test_parts_have_the_rows_that_the_local_engine_reads(
    pieces: list[bytes], ends: bool, rows_per_part: int
) -> None:
    data = b"\n".join(pieces) + (b"\n" if ends else b"")
    if data.startswith(b"\xff\xfe"):
        return
    try:
        expected = list(PromptReader(io.BufferedReader(io.BytesIO(data)), "'prompts'"))
    except UsageError as error:
        with pytest.raises(UsageError, match=re.escape(error.message)):
            lines_of(data)
        return
    lines = lines_of(data)
    parts = lines.split(rows_per_part)
    assert rows_of(data, lines, parts) == expected
    assert lines.rows == len(expected)
    assert sum(part.size for part in parts) == lines.size == len(data)
    assert all(part.rows == rows_per_part for part in parts[:-1])


def test_an_empty_file_is_one_part_of_no_rows() -> None:
    assert lines_of(b"").split(64) == (Part(0, 0, 0, 0),)
    assert lines_of(b"\n\n").split(64) == (Part(0, 0, 0, 2),)


def test_names_sort_as_rows_do() -> None:
    parts = lines_of(b"x\n" * 1200).split(64)
    names = [part.name for part in parts]
    assert names == sorted(names)
    assert names[-1] == "part-000000001152.jsonl"
    assert other_parts([*names, "part-000000001216.jsonl", "other", "manifest.json"], parts) == [
        "part-000000001216.jsonl"
    ]


def test_of_many_rows_some_offsets_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_MOST_OFFSETS", 10)
    data = b"".join(b"%d\n" % row for row in range(1000))
    lines = lines_of(data)
    parts = lines.split(128)
    assert [row.prompt for row in rows_of(data, lines, parts)] == [str(row) for row in range(1000)]
    with pytest.raises(UsageError, match="1,000 rows are too many for parts of 100"):
        lines.split(100)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xfea\0\n\0", "'prompts' is UTF-16, and --engine ray reads UTF-8 alone"),
        (b"\xff\xfe\0\0a\0\0\0", "'prompts' is UTF-32, and --engine ray reads UTF-8 alone"),
        (b"[1]\n", "the first line of 'prompts' is a JSON list"),
    ],
)
def test_what_it_does_not_read(data: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("[", r"\[")):
        lines_of(data)


@pytest.mark.parametrize(
    ("rows", "num_samples", "workers", "expected"),
    [
        (0, 1, 2, 64),
        (5_000, 1, 2, 512),
        (1_000, 1, 2, 128),
        (1_000_000, 1, 100, 512),
        (100_000_000, 1, 100, 10_048),
        (10, 1_000, 2, 1),
        (1_000, 20, 2, 26),
    ],
)
def test_parts_suit_rows_and_workers(
    rows: int, num_samples: int, workers: int, expected: int
) -> None:
    assert choose_rows_per_part(rows, num_samples, workers) == expected
