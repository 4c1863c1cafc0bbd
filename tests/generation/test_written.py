"""What a file of rows has, and whether a run may go on with it."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.batch.prompts import PromptRow, RowError, Shard
from nanogpt_cli.generation.batch.written import Expected, Written

SETTINGS = {"temperature": 0.8, "stop": ["x"], "digest": "d1"}
EXPECTED = Expected(SETTINGS, "float32", 1337, 2, None, Shard())
BAD = {"message": "no", "hint": None}


def row(number: int, index: int = 0, **values: Any) -> dict[str, Any]:
    made = {
        "schema": "nanogpt.sample/1",
        "id": None,
        "row": number,
        "index": index,
        "prompt": f"prompt {number}",
        "text": "é" * 10,
        "seed": 1337,
        "dtype": "float32",
        "settings": SETTINGS,
        "logprobs": None,
        "error": None,
    }
    return {**made, **values}


def write(path: Path, *rows: dict[str, Any], tail: bytes = b"") -> Path:
    lines = [json.dumps(each, ensure_ascii=False) + "\n" for each in rows]
    path.write_bytes("".join(lines).encode() + tail)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def ask(number: int, **values: Any) -> PromptRow:
    return PromptRow(number, **{"prompt": f"prompt {number}", **values})


def refusal(path: Path, expected: Expected = EXPECTED) -> str:
    before = path.read_bytes()
    with pytest.raises(UsageError) as caught:
        Written(path, expected)
    assert path.read_bytes() == before
    assert caught.value.message.count(repr(str(path))) == 1
    return caught.value.message.replace(repr(str(path)), "FILE")


def test_no_file_and_an_empty_one_lack_everything(path: Path) -> None:
    for _ in range(2):
        written = Written(path, EXPECTED)
        assert (written.rows, written.size) == (0, 0)
        assert written.lacks(ask(0), 0)
        path.touch()


def test_what_is_there_and_what_is_not(path: Path) -> None:
    write(path, row(0), row(0, 1), row(1))
    written = Written(path, EXPECTED)
    assert (written.rows, written.failed, written.size) == (3, 0, path.stat().st_size)
    lacking = [(n, i) for n in range(3) for i in range(2) if written.lacks(ask(n), i)]
    assert lacking == [(1, 1), (2, 0), (2, 1)]
    assert (written.met, written.has_holes) == (3, False)


def test_a_torn_end_is_cut_at_whatever_byte(path: Path) -> None:
    write(path, row(0), row(0, 1))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        written = Written(path, EXPECTED)
        assert written.size == (len(whole) if size == len(whole) else first if size >= first else 0)
        assert written.lacks(ask(0), 0) == (size < first)
        assert written.lacks(ask(0), 1) == (size < len(whole))


def test_zero_bytes_that_a_crash_left_are_a_torn_end(path: Path) -> None:
    write(path, row(0), tail=b"\0" * 50)
    written = Written(path, EXPECTED)
    assert (written.rows, written.size) == (1, path.stat().st_size - 50)


@pytest.mark.parametrize(
    "data", [b"hello", b"hello\n", b"{}\n", b'{"schema": "nanogpt.params/1"}\n']
)
def test_a_file_of_something_else_is_left_alone(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    assert refusal(path) == "line 1 of FILE is no row of a batch: there is nothing to resume"


@pytest.mark.parametrize(
    "change",
    [
        {"settings": None},
        {"row": "1"},
        {"index": None},
        {"seed": 1.5},
        {"row": True},
        {"seed": False},
    ],
)
def test_a_row_whose_fields_are_not_ours(path: Path, change: dict[str, Any]) -> None:
    write(path, row(0), row(1, **change))
    assert refusal(path).startswith("line 2 of FILE is no row of a batch")


def test_settings_that_changed_are_named(path: Path) -> None:
    write(path, row(0))
    now = {**SETTINGS, "temperature": 0.5, "stop": [], "digest": "d2"}
    assert refusal(path, replace(EXPECTED, settings=now)) == (
        "line 1 of FILE was made with other settings: "
        "temperature 0.8 then, 0.5 now, stop ['x'] then, [] now"
    )


def test_what_changed_beside_settings(path: Path) -> None:
    write(path, row(0))
    now = replace(EXPECTED, settings={**SETTINGS, "digest": "d2"})
    assert refusal(path, replace(now, dtype="bfloat16")) == (
        "line 1 of FILE was made with other settings: dtype 'float32' then, 'bfloat16' now"
    )
    assert refusal(path, now) == (
        "line 1 of FILE was made with other settings: the weights or the tokenizer are not the same"
    )


def test_scores_are_there_in_all_rows_or_in_none(path: Path) -> None:
    write(path, row(0))
    scored = replace(EXPECTED, alternatives=2)
    assert refusal(path, scored) == "line 1 of FILE has no log-probabilities: see --logprobs"
    write(path, row(0, logprobs=[{"top": [1, 2]}]), row(1, logprobs=[]))
    assert Written(path, scored).rows == 2
    assert refusal(path) == "line 1 of FILE has log-probabilities: see --logprobs"
    fewer = replace(EXPECTED, alternatives=1)
    assert refusal(path, fewer) == "line 1 of FILE has 2 alternatives: see --logprobs"


def test_rows_of_another_shard_or_beyond_the_samples(path: Path) -> None:
    write(path, row(0), row(2), row(5))
    assert refusal(path, replace(EXPECTED, shard=Shard(0, 2))) == (
        "line 3 of FILE is row 5: no row of shard 0/2"
    )
    write(path, row(0), row(0, 1))
    assert refusal(path, replace(EXPECTED, num_samples=1)) == (
        "line 2 of FILE is sample 1, counted from 0: --num-samples 1 asks for fewer"
    )


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (ask(0, prompt="other"), "prompt 'prompt 0' then, 'other' now"),
        (ask(0, seed=5), "seed 1337 then, 5 now"),
        (ask(0, prompt=None), "prompt 'prompt 0' then, None now"),
    ],
)
def test_a_row_that_was_made_of_something_else(path: Path, asked: PromptRow, found: str) -> None:
    written = Written(write(path, row(0)), EXPECTED)
    with pytest.raises(UsageError) as caught:
        written.lacks(asked, 0)
    assert caught.value.message == (f"row 0 is in {str(path)!r} already, made differently: {found}")


def test_a_rows_own_seed_is_the_one_that_counts(path: Path) -> None:
    write(path, row(0, seed=5))
    assert not Written(path, EXPECTED).lacks(ask(0, seed=5), 0)
    assert not Written(path, replace(EXPECTED, seed=5)).lacks(ask(0), 0)
    with pytest.raises(UsageError):
        Written(path, EXPECTED).lacks(ask(0), 0)


def test_a_row_is_known_by_its_id_wherever_it_is(path: Path) -> None:
    written = Written(write(path, row(0, id="a"), row(1, id=1), row(2)), EXPECTED)
    assert not written.lacks(ask(7, id="a", prompt="prompt 0"), 0)
    assert not written.lacks(ask(8, id=1, prompt="prompt 1"), 0)
    assert written.lacks(ask(1), 0)
    assert written.lacks(ask(2, id="2"), 0)
    assert not written.lacks(ask(2), 0)


def test_an_id_that_is_a_number_is_no_rows_number(path: Path) -> None:
    written = Written(write(path, row(0, id=1, prompt="prompt 1")), EXPECTED)
    assert written.lacks(ask(1), 0)
    assert not written.lacks(ask(0, id=1, prompt="prompt 1"), 0)


def test_ids_need_not_be_unique(path: Path) -> None:
    """Rows in a row, all of one id, with one prompt or several; the file ends amid them."""
    rows = [ask(number, id="a", prompt="x" if number % 2 else "y") for number in range(6)]
    for there in range(7):
        write(path, *(row(each.row, id="a", prompt=each.prompt) for each in rows[:there]))
        written = Written(path, EXPECTED)
        assert [written.lacks(each, 0) for each in rows] == [n >= there for n in range(6)]
        assert (written.met, written.has_holes) == (there, False)


def test_an_error_stands_for_all_samples_of_its_row(path: Path) -> None:
    bad = row(0, error=BAD, text=None, prompt=None)
    written = Written(write(path, bad, row(1), row(1, 1)), EXPECTED)
    same = PromptRow(0, None, error=RowError("no"))
    assert [written.lacks(same, index) for index in range(2)] == [False, False]
    assert [written.lacks(ask(1), index) for index in range(2)] == [False, False]
    assert (written.rows, written.failed, written.met, written.has_holes) == (3, 1, 3, False)
    assert written.lacks(PromptRow(9, None, error=RowError("no")), 0)
    with pytest.raises(UsageError):
        Written(path, EXPECTED).lacks(ask(0), 0)


def test_what_rows_have_is_added_up_and_the_last_step_that_computed_is_known(path: Path) -> None:
    made = (row(0, new_tokens=3, step="eager"), row(1, new_tokens=4, step="compiled"))
    bad = row(2, error=BAD, text=None, prompt=None, new_tokens=None, step=None)
    written = Written(write(path, *made, bad), EXPECTED)
    assert (written.rows, written.failed, written.new_tokens) == (3, 1, 7)
    assert written.step == "compiled"


def test_holes_are_noticed(path: Path) -> None:
    written = Written(write(path, row(0), row(0, 1), row(2)), EXPECTED)
    lacking = [(n, i) for n in range(4) for i in range(2) if written.lacks(ask(n), i)]
    assert lacking == [(1, 0), (1, 1), (2, 1), (3, 0), (3, 1)]
    assert written.has_holes


def test_many_rows_take_little_memory(path: Path) -> None:
    lines = [json.dumps(row(number, text="x" * 500)) + "\n" for number in range(8_000)]
    path.write_text("".join(lines))
    del lines
    tracemalloc.start()
    written = Written(path, EXPECTED)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert written.rows == 8_000
    assert kept < 8_000 * 24 * 1.3 + 100_000
    assert peak < 2_000_000
