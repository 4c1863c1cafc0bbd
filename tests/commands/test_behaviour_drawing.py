"""How the views are drawn at a width, in colours and without.

CASES: token labels are never markup (25), one visible label a row (126).
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from model_files import build
from rich.console import Console

from nanogpt_cli.commands.inspect.behaviour import activations as behaviour_activations
from nanogpt_cli.commands.inspect.behaviour import lens as behaviour_lens
from nanogpt_cli.commands.inspect.behaviour import next as behaviour_next
from nanogpt_cli.commands.inspect.behaviour import surprisal as behaviour_surprisal
from nanogpt_cli.commands.inspect.behaviour.lens import Cell, Grid, cut
from nanogpt_cli.commands.inspect.behaviour.next import format_percent
from nanogpt_cli.commands.inspect.behaviour.surprisal import ColouredText, level_of
from nanogpt_cli.inspection.behaviour import activations, lens, next_token, surprisal
from nanogpt_cli.inspection.behaviour.labels import label_bytes
from nanogpt_cli.inspection.behaviour.subject import Subject
from nanogpt_cli.inspection.behaviour.surprisal import SurprisingToken
from nanogpt_cli.tokenizers.search import find_tokenizer

NAME = "[red]name[/red].pt"


@pytest.fixture(scope="module")
def subject() -> Subject:
    tokenizer, _ = find_tokenizer(
        vocab_size=50257, near=Path("/nowhere"), dataset=None, tokenizer="gpt2", meta=None
    )
    ids = tokenizer.encode("[red]once[/red] upon a time :smile: \x1b[31m")
    assert 17 <= len(ids) <= 24
    model = build(vocab_size=50257, block_size=24)
    return Subject(NAME, model, tokenizer, ids, tokenizer.decode(ids))


def draw(drawn: Any, width: int = 80, **console: Any) -> str:
    file = io.StringIO()
    out = Console(file=file, width=width, markup=False, emoji=False, highlight=False, **console)
    out.print(drawn)
    return file.getvalue()


def test_no_text_is_markup(subject: Subject) -> None:
    reports = [
        behaviour_next.render(next_token.measure(subject, track=" upon")),
        behaviour_surprisal.render(surprisal.measure(subject)),
        behaviour_lens.render(lens.measure(subject, track=" upon")),
        behaviour_activations.render(activations.measure(subject)),
    ]
    for drawn in reports:
        shown = draw(drawn, width=1000)
        assert NAME in shown
        assert "\x1b" not in shown
    rows = [line.split() for line in draw(reports[1]).splitlines()]
    labels = [row[1] for row in rows if len(row) > 2 and row[0].isdigit() and row[2].isdigit()]
    assert labels[:4] == ["[", "red", "]", "once"]
    assert labels[-4:] == ["\\x1b", "[", "31", "m"]


@pytest.mark.parametrize("width", [30, 80, 120])
def test_a_grid_is_as_wide_as_the_terminal(subject: Subject, width: int) -> None:
    report = lens.measure(subject)
    shown = draw(behaviour_lens.render(report), width).splitlines()
    (at,) = [place for place, line in enumerate(shown) if line.startswith("embed")]
    assert max(len(line) for line in shown[at:]) <= width
    positions = [int(word) for word in shown[at + 4].split()[1:]]
    last = len(report.tokens) - 1
    assert positions == list(range(positions[0], last + 1))
    assert 1 <= len(positions) < len(report.tokens)
    told = " ".join(shown[at + 5 :])
    assert re.search(rf"positions? {positions[0]}( to {last})? fits?, of 0 to {last};", told)


def test_a_grid_with_room_shows_every_position(subject: Subject) -> None:
    report = lens.measure(subject, track=" upon")
    shown = draw(behaviour_lens.render(report), 1000)
    assert "fit" not in shown
    lines = [line.split()[1:] for line in shown.splitlines() if line.startswith("position")]
    everywhere = [str(place) for place in range(len(report.tokens))]
    assert lines == [everywhere, everywhere]
    assert "the rank of `␣upon`, of 50,257 ids" in shown
    row = next(line for line in shown.splitlines()[10:] if line.startswith("block 1"))
    ranks = report.rows[-1].tracked_ranks
    assert ranks is not None
    assert row.split()[2:] == [f"{rank:,}" for rank in ranks]


def test_one_position_is_always_shown() -> None:
    grid = Grid(["a", "b"], ["embed"], [[Cell("wide" * 3), Cell("wide" * 3)]])
    assert grid.first_that_fits(5) == 1
    assert grid.first_that_fits(8 + 14) == 1
    assert grid.first_that_fits(8 + 2 * 14) == 0


def test_wide_and_long_labels_are_cut_to_columns() -> None:
    assert cut("ordinary") == "ordinary"
    assert cut("extraordinary") == "extraord…"
    assert cut("日本語日本語") == "日本語日…"
    assert Cell("日", "5%").width == 5


def tokens(*parts: tuple[bytes, float | None]) -> list[SurprisingToken]:
    return [
        SurprisingToken(place, "", tuple(data), label_bytes(data), None, None, bits, None, None)
        for place, (data, bits) in enumerate(parts)
    ]


LEVELS = tokens((b"[b]", None), (b" low", 0.5), (b" mid", 1.0), (b" more", 4.0), (b"\x07", 8.0))


def test_levels_begin_at_their_bounds() -> None:
    assert [level_of(bits) for bits in (0, 0.99, 1, 3.9, 4, 7.9, 8, 30)] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_colours_bring_their_own_ground() -> None:
    shown = draw(ColouredText(LEVELS, ""), force_terminal=True, color_system="standard")
    text, _, legend = shown.splitlines()
    assert text == (
        "\x1b[2m[b]\x1b[0m low\x1b[30;46m mid\x1b[0m\x1b[30;43m more\x1b[0m"
        "\x1b[1;37;41m\\x07\x1b[0m"
    )
    plain = re.sub(r"\x1b\[[0-9;]*m", "", legend)
    assert plain == "surprisal:  below 1 bit   1 to 4   4 to 8   8 and more   not predicted "


def test_without_colours_levels_are_marked() -> None:
    shown = draw(
        ColouredText(LEVELS, ""), force_terminal=True, color_system="standard", no_color=True
    )
    assert shown.splitlines()[0] == (
        "\x1b[2m[b]\x1b[0m low\x1b[4m mid\x1b[0m\x1b[1m more\x1b[0m\x1b[1;7m\\x07\x1b[0m"
    )


def test_a_pipe_has_no_coloured_text() -> None:
    assert draw(ColouredText(LEVELS, "")) == "the text is coloured on a terminal\n"


def test_characters_cut_in_two_are_whole_in_the_text() -> None:
    euro = "€".encode()
    halves = tokens((b"a", None), (euro[:2], 9.0), (euro[2:], 0.1), (b"\xf0", 9.0))
    shown = draw(ColouredText(halves, ""), force_terminal=True, color_system="standard")
    assert shown.splitlines()[0] == "\x1b[2ma\x1b[0m€\x1b[1;37;41m\ufffd\x1b[0m"


def test_numbers_keep_their_spaces() -> None:
    shown = draw(
        ColouredText(tokens((b"5", None), (b"7", 0.1), (b"2", 0.1)), " "),
        force_terminal=True,
        color_system="standard",
    )
    assert shown.splitlines()[0] == "\x1b[2m5\x1b[0m 7 2"


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100.00%"), (0.9999, "99.99%"), (0.2583, "25.8%"), (0.00001234, "0.00123%"), (0, "0%")],
)
def test_shares_keep_three_digits(share: float, text: str) -> None:
    assert format_percent(share) == text
