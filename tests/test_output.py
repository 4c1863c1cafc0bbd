"""What reaches the user: JSON, tables, notes, and numbers as text."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from nanogpt_cli import output
from nanogpt_cli.output.numbers import format_bytes, format_count, format_seconds, format_short


@dataclass(frozen=True)
class Inner:
    path: Path
    loss: float


@dataclass(frozen=True)
class Report:
    schema: ClassVar[str] = "nanogpt.test/1"
    name: str
    inner: Inner
    counts: dict[str, int] = field(default_factory=dict)
    rows: tuple[float, ...] = ()
    absent: None = None


@dataclass(frozen=True)
class FieldReport:
    total: int
    schema: str = "nanogpt.test/2"


REPORT = Report("é[b]", Inner(Path("a/b"), float("nan")), {"x": 1}, (1.5, float("inf"), 2.0))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    output.begin()
    yield
    output.begin()


def test_json_is_one_line_with_the_schema_first(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit(REPORT, True, lambda report: report.name)
    assert capsys.readouterr().out == (
        '{"schema": "nanogpt.test/1", "name": "é[b]", "inner": {"path": "a/b", "loss": null}, '
        '"counts": {"x": 1}, "rows": [1.5, null, 2.0], "absent": null}\n'
    )


def test_a_schema_may_be_a_field() -> None:
    assert output.to_json(FieldReport(124439808)) == (
        '{"schema": "nanogpt.test/2", "total": 124439808}'
    )


def test_json_refuses_what_it_has_no_word_for() -> None:
    @dataclass(frozen=True)
    class Odd:
        value: object
        schema: str = "x"

    with pytest.raises(TypeError, match=r"^a report holds a set, which JSON has no word for$"):
        output.to_json(Odd({1}))


def test_a_rendered_string_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = "[/INST] [bold]x[/bold] [red] [\\] :smile: [/b] \x1b[1m é " + "w" * 300
    output.emit(REPORT, False, lambda _: text)
    assert capsys.readouterr().out == text + "\n"


def wide_table(report: Report) -> Table:
    table = Table("name", "note")
    table.add_row(report.name + "[/b][red]:smile:", "x" * 300)
    return table


def test_a_table_is_neither_wrapped_nor_coloured_in_a_pipe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.emit(REPORT, False, wide_table)
    out = capsys.readouterr().out
    assert "é[b][/b][red]:smile:" in out
    assert "x" * 300 in out
    assert "\x1b" not in out


@pytest.mark.parametrize(("name", "coloured"), [("FORCE_COLOR", True), ("NO_COLOR", False)])
def test_colour_follows_the_environment(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    coloured: bool,
) -> None:
    def render(_: Report) -> Table:
        table = Table("name")
        table.add_row("x", style="red")
        return table

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv(name, "1")
    output.emit(REPORT, False, render)
    assert ("\x1b[31m" in capsys.readouterr().out) is coloured


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sets_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    output.emit(REPORT, False, lambda report: Text(report.name + "w" * 50))
    assert [len(line) for line in terminal.getvalue().splitlines()] == [40, 14]


def test_a_dumb_terminal_is_sent_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    output.emit(REPORT, False, lambda _: Text("x", style="bold red"))
    assert terminal.getvalue() == "x\n"


def test_text_is_written_byte_for_byte(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output.write_text("a\r\nb\n\x00é\U0001f600\ud800\udfff")
    print("then", end="")
    output.write_text("!")
    assert capsysbinary.readouterr().out == "a\r\nb\n\x00é\U0001f600\ufffd\ufffdthen!".encode()


class Trickle(io.RawIOBase):
    """A pipe that takes three bytes at a time, as an unbuffered stdout may."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)[:3]  # type: ignore[call-overload]
        self.taken += part
        return len(part)


def test_a_pipe_that_takes_little_gets_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Trickle()
    stream = io.TextIOWrapper(pipe, encoding="utf-8", write_through=True)  # type: ignore[type-var]
    monkeypatch.setattr(sys, "stdout", stream)
    output.write_text("first, second, third")
    assert pipe.taken == b"first, second, third"


def test_notes_are_said_once_and_quiet_silences_them(capsys: pytest.CaptureFixture[str]) -> None:
    output.note("one [b]")
    output.note("one [b]")
    output.warn("two\x1b[2J")
    assert capsys.readouterr().err == "note: one [b]\nwarning: two\\x1b[2J\n"
    output.configure(quiet=True, debug=False)
    output.note("three")
    output.warn("four")
    assert capsys.readouterr().err == "warning: four\n"
    output.begin()
    output.note("one [b]")
    assert capsys.readouterr().err == "note: one [b]\n"


def test_status_shows_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with output.status("loading [b]"):
        pass
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with output.status("loading [b]"):
        pass
    assert "loading [b]" in terminal.getvalue()
    shown = len(terminal.getvalue())
    output.configure(quiet=True, debug=False)
    with output.status("loading"):
        pass
    assert len(terminal.getvalue()) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 😀 \\", "plain é 😀 \\"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("gpj.\u202etp", "gpj.\\u202etp"),
        ("\u2066x\u2069\u200b\ufeff\u2028", "\\u2066x\\u2069\\u200b\\ufeff\\u2028"),
        ("\x85\x9b\ud800", "\\x85\\x9b\\ud800"),
    ],
)
def test_visible_spells_out_what_a_terminal_would_obey(text: str, shown: str) -> None:
    assert output.visible(text) == shown


def test_control_characters_are_shown_on_a_terminal_and_raw_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "a\x1b[31mred\x07\r\x9b2J\tb\n\u200d\u202e"
    output.write_text(text)
    assert capsys.readouterr().out == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.write_text(text)
    shown = "a\\x1b[31mred\\x07\\r\\x9b2J\tb\n\u200d\u202e"
    assert capsys.readouterr().out == shown


def test_a_table_in_a_pipe_has_no_blanks_at_its_lines_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_row("a", "wide")
    table.add_row("long", "b")
    output.emit(FieldReport(1), False, lambda _report: table)
    assert capsys.readouterr().out == "a     wide\nlong  b\n"


def test_visible_keeps_what_it_is_told_to() -> None:
    assert output.visible("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"


@given(st.text())
def test_visible_is_printable(text: str) -> None:
    shown = output.visible(text)
    assert not any(char in shown for char in "\x1b\x07\n\r\u202e")
    shown.encode()


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0"), (999, "999"), (1000, "1,000"), (124439808, "124,439,808")],
)
def test_counts(count: int, shown: str) -> None:
    assert format_count(count) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1K"),
        (205248, "205K"),
        (999499, "999K"),
        (999500, "1M"),
        (10650000, "10.7M"),
        (124439808, "124M"),
        (1557611200, "1.56B"),
        (300e9, "300B"),
        (3e12, "3T"),
    ],
)
def test_short_counts(count: float, shown: str) -> None:
    assert format_short(count) == shown


@pytest.mark.parametrize(
    ("count", "shown", "exact"),
    [
        (0, "0 B", "0 B"),
        (999, "999 B", "999 B"),
        (1000, "1.0 kB", "1.0 kB (1,000 bytes)"),
        (497759232, "497.8 MB", "497.8 MB (497,759,232 bytes)"),
        (999999999, "1.0 GB", "1.0 GB (999,999,999 bytes)"),
        (1542470366, "1.5 GB", "1.5 GB (1,542,470,366 bytes)"),
    ],
)
def test_bytes(count: int, shown: str, exact: str) -> None:
    assert format_bytes(count) == shown
    assert format_bytes(count, exact=True) == exact


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (1.5e-6, "1.5 us"),
        (0.0123, "12.3 ms"),
        (0.9999, "1 s"),
        (3.456, "3.46 s"),
        (59.9, "59.9 s"),
        (59.99, "1 min 0 s"),
        (75, "1 min 15 s"),
        (3599.6, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_seconds(seconds: float, shown: str) -> None:
    assert format_seconds(seconds) == shown


@given(st.dictionaries(st.text(), st.floats() | st.none() | st.text() | st.integers()))
def test_json_can_always_be_read_back(counts: dict[str, object]) -> None:
    @dataclass(frozen=True)
    class Any:
        values: dict[str, object]
        schema: str = "x/1"

    line = output.to_json(Any(counts))
    assert "\n" not in line
    assert set(json.loads(line)["values"]) == set(counts)


@pytest.mark.parametrize(
    ("variables", "terminal", "depth", "reason"),
    [
        ({"TERM": "xterm"}, True, 16, ""),
        ({}, True, 16, ""),
        ({"TERM": "screen-256color"}, True, 256, ""),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, True, output.TRUE_COLOR, ""),
        ({"TERM": "xterm", "COLORTERM": "24bit"}, True, output.TRUE_COLOR, ""),
        ({"TERM": "xterm-direct"}, True, output.TRUE_COLOR, ""),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, True, 0, "the terminal is dumb"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, 0, "NO_COLOR is set"),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, 16, ""),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, 0, "NO_COLOR is set"),
        ({"TERM": "xterm", "FORCE_COLOR": "0"}, True, 0, "FORCE_COLOR is 0"),
        ({"TERM": "xterm"}, False, 0, "stdout is no terminal (FORCE_COLOR=1 colours it "),
        ({"TERM": "xterm", "FORCE_COLOR": ""}, False, 0, "stdout is no terminal"),
        ({"TERM": "xterm", "FORCE_COLOR": "1"}, False, 16, ""),
        ({"TERM": "dumb", "FORCE_COLOR": "true"}, False, 16, ""),
        ({"TERM": "xterm", "FORCE_COLOR": "2"}, False, 256, ""),
        ({"TERM": "xterm", "FORCE_COLOR": "3"}, False, output.TRUE_COLOR, ""),
    ],
)
def test_how_many_colours_there_are(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    terminal: bool,
    depth: int,
    reason: str,
) -> None:
    monkeypatch.delenv("COLORTERM", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal() if terminal else io.StringIO())
    found, why = output.color_depth("stdout")
    assert found == depth
    assert why.startswith(reason)
    assert bool(why) == (depth == 0)


def test_a_style_ends_with_every_line_and_shows_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.write_text("a\nb\x1b[2J\n\n", "1;31")
    output.write_text("c\x07\td", "")
    assert capsys.readouterr().out == (
        "\x1b[1;31ma\x1b[0m\n\x1b[1;31mb\\x1b[2J\x1b[0m\n\nc\\x07\td"
    )


def test_remarks_come_as_often_as_they_are_made(capsys: pytest.CaptureFixture[str]) -> None:
    output.remark("one")
    output.remark("one")
    output.note_styled([("two ", ""), ("three", "31")])
    assert capsys.readouterr().err == "one\none\ntwo three\n"
    output.configure(quiet=True, debug=False)
    output.remark("one")
    output.note_styled([("two", "")])
    assert capsys.readouterr().err == ""
