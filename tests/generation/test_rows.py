"""Prompts of a batch as files give them."""

from __future__ import annotations

import codecs
import io
import json
from typing import Any

import pytest

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.batch.prompts import (
    PromptReader,
    PromptRow,
    Shard,
    count_rows,
    parse_shard,
)

ASK = '{"prompt": "x"}'


def stream(data: str | bytes) -> io.BufferedReader:
    data = data.encode() if isinstance(data, str) else data
    return io.BufferedReader(io.BytesIO(data))


def read(data: str | bytes, shard: Shard | None = None) -> list[PromptRow]:
    return list(PromptReader(stream(data), "the file", shard))


def prompts(data: str | bytes) -> list[str | None]:
    return [row.prompt for row in read(data)]


def message(line: str) -> str:
    """What is said of a second line, after a good one."""
    first, second = read(f"{ASK}\n{line}\n")
    assert first.error is None
    assert second.error is not None
    return second.error.message


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("one\ntwo\n", ["one", "two"]),
        ("one\ntwo", ["one", "two"]),
        ("one\r\ntwo\r\n", ["one", "two"]),
        ("\n\none\n \t\n\ntwo\n\n", ["one", "two"]),
        ("  one  \n", ["  one  "]),
        ("a\x0bb\u2028c\x85d\re\n", ["a\x0bb\u2028c\x85d\re"]),
        ("\ufeffone\n", ["one"]),
        ("one\n\ufefftwo\n", ["one", "\ufefftwo"]),
        ("\ufeff one\ntwo".encode("utf-16-le"), [" one", "two"]),
        ("one\r\né漢\r\n".encode("utf-16"), ["one", "é漢"]),
        ("one\r\né漢\r\n".encode("utf-32"), ["one", "é漢"]),
        (codecs.BOM_UTF32_BE + "one\ntwo".encode("utf-32-be"), ["one", "two"]),
        ("123\nTrue\nnull\n", ["123", "True", "null"]),
        ('"quoted"\n', ['"quoted"']),
        ("[ROMEO]\n{stage direction\n", ["[ROMEO]", "{stage direction"]),
        ("{% if %}\n", ["{% if %}"]),
        ("", []),
        ("\n \n", []),
    ],
)
def test_plain_lines(data: str | bytes, expected: list[str]) -> None:
    rows = read(data)
    assert [row.prompt for row in rows] == expected
    assert [row.row for row in rows] == list(range(len(expected)))
    assert all((row.id, row.seed, row.error) == (None, None, None) for row in rows)
    assert count_rows(stream(data)) == len(expected)


def test_brackets_deeper_than_any_parser_goes_are_a_prompt() -> None:
    assert prompts("[" * 100_000) == ["[" * 100_000]


def test_json_lines() -> None:
    data = (
        '\n{"prompt": "a\\nb", "id": "x", "seed": -5}\n\n {"prompt": "", "id": 7, "seed": null} \n'
    )
    assert read(data) == [PromptRow(0, "a\nb", "x", -5), PromptRow(1, "", 7)]


def test_json_of_windows() -> None:
    assert prompts(f"{ASK}\r\n{ASK}\r\n".encode("utf-16")) == ["x", "x"]
    assert prompts(f"\ufeff{ASK}\r\n") == ["x"]


def test_the_first_line_decides_and_the_others_are_held_to_it() -> None:
    plain = read(f'one\n{ASK}\n{{"text": 1}}\n')
    assert [row.prompt for row in plain] == ["one", None, '{"text": 1}']
    assert plain[1].error is not None
    assert "first line of the file is a plain prompt" in plain[1].error.message
    assert message("plain") == "the line is no JSON: expecting value at column 1"


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ('{"text": "a"}', "is JSON without a 'prompt'"),
        ("{}", "is JSON without a 'prompt'"),
        ('{"prompt": "a"', "begins like JSON, and is none by itself"),
        ("{", "begins like JSON, and is none by itself"),
        ("[", "begins like JSON, and is none by itself"),
        ('[{"prompt": "a"},', "begins like JSON, and is none by itself"),
        ('["a", "b"]', "is a JSON list"),
        ("é".encode("latin-1"), "is not UTF-8 text, from byte 0 on"),
        (b"\x1f\x8b\x08\x00", "is not UTF-8 text, from byte 1 on"),
    ],
    ids=repr,
)
def test_a_first_line_that_could_be_either_is_refused(first: str | bytes, found: str) -> None:
    first = first if isinstance(first, bytes) else first.encode()
    with pytest.raises(UsageError) as caught:
        read(first + b"\nb\n")
    assert caught.value.message == f"the first line of the file {found}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"prompt": "a"', "the line is no JSON: expecting ',' delimiter at column 15"),
        ("[1]", "the line is JSON and no object: it is a list"),
        ('"a"', "the line is JSON and no object: it is text"),
        ("null", "the line is JSON and no object: it is null"),
        ('{"text": "a"}', "the object has no 'prompt'"),
        ('{"prompt": null}', "'prompt' is null: it must be text"),
        ('{"prompt": 5}', "'prompt' is a number: it must be text"),
        ('{"prompt": [5, 7]}', "'prompt' is a list: it must be text"),
        ('{"prompt": {}}', "'prompt' is a table: it must be text"),
        ('{"prompt": true}', "'prompt' is true or false: it must be text"),
        ('{"prompt": "a", "seed": "5"}', "'seed' is text: it must be a whole number"),
        ('{"prompt": "a", "seed": true}', "'seed' is true or false: it must be a whole number"),
        ('{"prompt": "a", "seed": 1.0}', "'seed' is a number: it must be a whole number"),
        ('{"prompt": "a", "id": 1.5}', "'id' is a number: it must be text or a whole number"),
        ('{"prompt": "a", "id": true}', "'id' is true or false: it must be text or a whole number"),
        ('{"prompt": null, "seed": "5", "id": 1.5}', "'prompt' is null: it must be text"),
        (
            '{"prompt": "a", "seed": 1.5, "id": 2.5}',
            "'seed' is a number: it must be a whole number",
        ),
        ('{"prompt": "a", "id": ["b"]}', "'id' is a list: it must be text or a whole number"),
        ("[" * 100_000, "the line is JSON with too long a number, or nested too deeply"),
        (
            '{"prompt": "a", "seed": %s}' % ("9" * 5000),
            "the line is JSON with too long a number, or nested too deeply",
        ),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_wrong_with_a_line(line: str, expected: str) -> None:
    assert message(line) == expected


def test_an_error_keeps_what_is_right() -> None:
    _, row = read(ASK + '\n{"prompt": "a", "id": "k", "seed": 1.5}\n')
    assert (row.prompt, row.id, row.seed) == ("a", "k", None)


def test_bytes_that_are_no_text_are_an_error_of_their_row() -> None:
    rows = read(b"one\ncaf\xe9\nthree\n")
    assert [row.prompt for row in rows] == ["one", None, "three"]
    assert rows[1].error is not None
    assert rows[1].error.message == "the line is not UTF-8 text, from byte 3 on"


def test_lone_surrogates_become_replacement_characters() -> None:
    (row,) = read('{"prompt": "a\\ud800b", "id": "\\udfff"}')
    assert (row.prompt, row.id) == ("a\ufffdb", "\ufffd")


def test_keys_without_a_meaning_are_remembered() -> None:
    reader = PromptReader(stream('{"prompt": "a", "x": 1}\n{"prompt": "b", "y": 1, "x": 2}\n'), "f")
    assert list(reader.passed_over) == ["x"]
    assert [row.prompt for row in reader] == ["a", "b"]
    assert list(reader.passed_over) == ["x", "y"]


def test_of_many_keys_without_a_meaning_a_hundred_are_remembered() -> None:
    lines = [json.dumps({"prompt": "a", f"x{number}": 1}) for number in range(102)]
    reader = PromptReader(stream("\n".join(lines)), "f")
    assert len(list(reader)) == 102
    assert list(reader.passed_over) == [f"x{number}" for number in range(100)]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_are_apart_and_together_the_whole(count: int) -> None:
    data = "".join(f"line {number}\n\n" for number in range(20))
    shards = [read(data, Shard(index, count)) for index in range(count)]
    assert all(row.row % count == index for index, rows in enumerate(shards) for row in rows)
    merged = sorted((row for rows in shards for row in rows), key=lambda row: row.row)
    assert merged == read(data)
    shares = [Shard(index, count).share(count_rows(stream(data))) for index in range(count)]
    assert shares == [len(rows) for rows in shards]


def test_the_name_of_a_shard() -> None:
    assert parse_shard("3/4") == Shard(3, 4)
    assert parse_shard("0/1") == Shard()


@pytest.mark.parametrize("text", ["4/4", "0/0", "-1/4", "1", "a/b", "1/2/3", "", "1.0/2", "٣/٤"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(UsageError):
        parse_shard(text)


def test_rows_are_read_one_at_a_time() -> None:
    class Counted(io.RawIOBase):
        lines = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            data = json.dumps({"prompt": "x" * 100}).encode() + b"\n"
            buffer[: len(data)] = data
            self.lines += 1
            return len(data)

    raw = Counted()
    reader = iter(PromptReader(io.BufferedReader(raw), "endless"))
    assert [next(reader).row for _ in range(50)] == list(range(50))
    assert raw.lines < 200
