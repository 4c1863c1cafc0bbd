"""The prompts of a batch, a row each, as a file or a stream gives them. Knows no model.

A row's number is its place among the lines that are not blank, from 0.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.prompt import WIDE_ENCODINGS
from nanogpt_cli.tokenizers.base import replace_surrogates

KEYS = ("prompt", "id", "seed")
"""What a JSON row is read for; its other keys are passed over."""

EXAMPLE = '{"prompt": "..."}'

_LIKE_JSON = re.compile(r'[{\[]$|\{\s*"|\[\s*[{"]')
"""How a line begins that is no JSON by itself, and was hardly meant as a plain prompt."""

_KINDS = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
}
_MOST_NAMED = 100


@dataclass(frozen=True)
class RowError:
    """Why a row has no text: what was found, and what to do about it."""

    message: str
    hint: str | None = None


@dataclass(frozen=True)
class PromptRow:
    """One prompt of a batch.

    Args:
        row: its number.
        prompt: None only where `error` says why.
        id: the user's own name for it.
        seed: its own, or None for the run's.
        error: what is wrong with the line, or None.
    """

    row: int
    prompt: str | None
    id: str | int | None = None
    seed: int | None = None
    error: RowError | None = None


@dataclass(frozen=True)
class Shard:
    """The rows whose number leaves `index` when divided by `count`.

    Raises:
        UsageError: no such shard.
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise UsageError(
                f"shard {self.index}/{self.count}: shards are numbered from 0 to the count less 1",
                hint="--shard 0/4, 1/4, 2/4 and 3/4 are the four quarters",
            )

    def holds(self, row: int) -> bool:
        """Return whether a row is of this shard."""
        return row % self.count == self.index

    def share(self, rows: int) -> int:
        """Return how many of so many rows are of this shard."""
        return len(range(self.index, rows, self.count))


def parse_shard(text: str) -> Shard:
    """Return the shard that `I/N` names.

    Raises:
        UsageError: something else, or no such shard.
    """
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
    if match is None:
        raise UsageError(
            f"--shard {text!r}: it must be two numbers, I/N", hint="--shard 0/4 is the first of 4"
        )
    return Shard(int(match[1]), int(match[2]))


class PromptReader:
    """The rows of a stream of lines, one at a time.

    Plain lines or JSON Lines: the first line that is not blank decides for all of them. They are
    JSON if it is an object with a `prompt`.

    Args:
        stream: UTF-8, or UTF-16 or -32 that says so; its mark is no part of the first prompt.
        name: of the stream, for people.
        shard: rows of others are counted and not read.

    Attributes:
        is_json: what the first line decided.
        passed_over: keys of JSON rows that have no meaning here, in the order of their coming.

    Raises:
        UsageError: a first line that is neither.
    """

    def __init__(self, stream: io.BufferedReader, name: str, shard: Shard | None = None) -> None:
        self._lines = read_lines(stream)
        self._shard = shard or Shard()
        self._first = next(self._lines, None)
        self.is_json = self._first is not None and is_json_row(self._first, name)
        self.passed_over: dict[str, None] = {}
        if self.is_json and self._first is not None:
            parse_row(self._first, 0, is_json=True, passed_over=self.passed_over)

    def __iter__(self) -> Iterator[PromptRow]:
        line, row = self._first, 0
        while line is not None:
            if self._shard.holds(row):
                yield parse_row(line, row, is_json=self.is_json, passed_over=self.passed_over)
            line, row = next(self._lines, None), row + 1


def count_rows(stream: io.BufferedReader) -> int:
    """Return how many rows there are, right or wrong, of all shards."""
    return sum(1 for _ in read_lines(stream))


def read_lines(stream: io.BufferedReader) -> Iterator[bytes]:
    """Yield the lines that are not blank, as UTF-8 without their ends."""
    lines: Iterator[bytes] = iter(stream)
    encoding = find_wide_encoding(stream)
    if encoding is not None:
        text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="\n")
        lines = (line.encode() for line in text)
    yield from bare_lines(lines, is_start=True)


def find_wide_encoding(stream: io.BufferedReader) -> str | None:
    """Return "utf-16" or "utf-32" where a stream begins with that mark; nothing is used up."""
    start = stream.peek(4)
    found = (name for name, marks in WIDE_ENCODINGS.items() if start.startswith(marks))
    return next(found, None)


def bare_lines(lines: Iterable[bytes], *, is_start: bool) -> Iterator[bytes]:
    """Yield the lines that are not blank, without their ends.

    Args:
        lines: UTF-8, as a file gives them.
        is_start: whether they are the first of their file, and may begin with a byte-order mark.
    """
    mark = codecs.BOM_UTF8 if is_start else b""
    for line in lines:
        bare = line.removeprefix(mark).removesuffix(b"\n").removesuffix(b"\r")
        mark = b""
        if bare.strip():
            yield bare


def is_json_row(line: bytes, name: str) -> bool:
    """Return whether the first line of a batch is JSON, False for a plain prompt.

    Raises:
        UsageError: it could be meant as either, or is no text.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the first line of {name} is not UTF-8 text, from byte {error.start} on",
            hint="prompts are plain lines or JSON Lines, not compressed, in UTF-8",
        ) from error
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
        if _LIKE_JSON.match(text.strip()):
            raise _ambiguous(name, "begins like JSON, and is none by itself") from None
    if isinstance(value, dict) and "prompt" in value:
        return True
    if isinstance(value, dict):
        raise _ambiguous(name, "is JSON without a 'prompt'")
    if isinstance(value, list):
        raise _ambiguous(name, "is a JSON list")
    return False


def _ambiguous(name: str, found: str) -> UsageError:
    return UsageError(
        f"the first line of {name} {found}",
        hint=f"a line each: plain prompts, or JSON objects such as {EXAMPLE}",
    )


def parse_row(
    line: bytes, row: int, *, is_json: bool, passed_over: dict[str, None] | None = None
) -> PromptRow:
    """Return the row that a line holds; what is wrong with it becomes its error.

    Args:
        line: not blank, without its end.
        row: its number.
        is_json: what the first line decided for all.
        passed_over: keys without a meaning are added to it.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        found = f"the line is not UTF-8 text, from byte {error.start} on"
        return PromptRow(row, None, error=RowError(found, "save the file as UTF-8"))
    if is_json:
        return _from_json(text, row, {} if passed_over is None else passed_over)
    if _is_object_with_prompt(text):
        message = "the line is a JSON object, and the first line of the file is a plain prompt"
        return PromptRow(row, None, error=RowError(message, "keep to one of the two"))
    return PromptRow(row, text)


def _is_object_with_prompt(text: str) -> bool:
    if not text.lstrip().startswith("{"):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "prompt" in value


def _from_json(text: str, row: int, passed_over: dict[str, None]) -> PromptRow:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        reason = f"{error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}"
        message = f"the line is no JSON: {reason}"
        return PromptRow(row, None, error=RowError(message, f"a line is an object: {EXAMPLE}"))
    except (ValueError, RecursionError):
        message = "the line is JSON with too long a number, or nested too deeply"
        return PromptRow(row, None, error=RowError(message, f"a line is an object: {EXAMPLE}"))
    if not isinstance(value, dict):
        message = f"the line is JSON and no object: it is {_kind(value)}"
        return PromptRow(row, None, error=RowError(message, f"write {EXAMPLE}"))
    for key in value:
        if key not in KEYS and len(passed_over) < _MOST_NAMED:
            passed_over[key] = None
    return _checked(row, value)


def _checked(row: int, value: dict[str, Any]) -> PromptRow:
    prompt, name, seed = (value.get(key) for key in KEYS)
    error = None
    if "prompt" not in value:
        error = RowError("the object has no 'prompt'", f"write {EXAMPLE}")
    elif not isinstance(prompt, str):
        hint = "with --tokenizer ids the text is numbers with spaces between: '5 7 2'"
        error = RowError(f"'prompt' is {_kind(prompt)}: it must be text", hint)
    if seed is not None and type(seed) is not int:
        error = error or RowError(
            f"'seed' is {_kind(seed)}: it must be a whole number",
            "leave it out for the run's --seed",
        )
        seed = None
    if name is not None and type(name) not in (str, int):
        error = error or RowError(
            f"'id' is {_kind(name)}: it must be text or a whole number",
            "leave it out: each row has its number",
        )
        name = None
    return PromptRow(
        row,
        replace_surrogates(prompt)[0] if isinstance(prompt, str) else None,
        replace_surrogates(name)[0] if isinstance(name, str) else name,
        seed,
        error,
    )


def _kind(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value), "text")
