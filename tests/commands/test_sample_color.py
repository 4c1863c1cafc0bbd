"""`nanogpt sample --color prob`: which text looks how, and whether eyes can tell."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Outcome, Run
from model_files import build, save_meta, save_nanogpt

from nanogpt_cli.commands.sample.color import LEVELS, Painter, level_of, style_of
from nanogpt_cli.generation.scores import TokenScore
from nanogpt_cli.generation.text import Piece
from nanogpt_cli.output import TRUE_COLOR

DEPTHS = (16, 256, TRUE_COLOR)

XTERM = {31: (205, 0, 0), 35: (205, 0, 205), 94: (92, 92, 255)}
"""How xterm, and most after it, shows the colours that have a name."""

SPANS = re.compile("(?:\x1b\\[([0-9;]*)m([^\x1b]*)\x1b\\[0m)|([^\x1b]+)")


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    save_meta(tmp_path)
    return save_nanogpt(tmp_path / "ckpt.pt", build())


@pytest.fixture
def colored(nanogpt: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs `nanogpt sample --color prob` with FORCE_COLOR."""

    def run(*args: object) -> Outcome:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("COLORTERM", raising=False)
        return nanogpt("sample", "--color", "prob", *args)

    return run


def painted(text: str) -> list[tuple[str, str]]:
    """Return each character with the codes it stands in; newlines stand in none."""
    found = list(SPANS.finditer(text))
    assert "".join(span[0] for span in found) == text, "a span begins, has text, and ends"
    return [(char, span[1] or "") for span in found for char in span[2] or span[3]]


def test_each_token_has_the_style_of_its_probability(
    nanogpt: Run, tmp_path: Path, colored: Run
) -> None:
    save_meta(tmp_path)
    sharp = save_nanogpt(tmp_path / "ckpt.pt", build(spread=0.6))
    command = [sharp, "-p", "AB", "-t", 1.5, "-m", 90, "-n", 2]
    rows = nanogpt("sample", *command, "--json", "--logprobs", 0).rows
    expected: list[tuple[str, str]] = []
    for row in rows:
        expected += [(char, "") for char in ("-" * 15 + "\n" if row["index"] else "") + "AB"]
        for token in row["logprobs"]:
            style = style_of(level_of(token["logprob"]), 16)
            expected.append((token["text"], "" if token["text"] == "\n" else style))
        expected.append(("\n", ""))
    result = colored(*command)
    assert result.code == 0
    assert painted(result.out) == expected
    assert len({style for _, style in expected}) == 4, "each level is there"
    assert colored(*command, "--no-stream").out == result.out
    assert colored(*command, "--no-echo").out == result.out.replace("AB", "")


def test_colour_changes_no_text(nanogpt: Run, letters: Path, colored: Run) -> None:
    command = [letters, "-p", "AB", "-t", 1, "-m", 60]
    plain = nanogpt("sample", *command).out
    stop = plain[20:23]
    assert "".join(char for char, _ in painted(colored(*command).out)) == plain
    whole, cut = painted(colored(*command).out), painted(colored(*command, "--stop", stop).out)
    assert cut == [*whole[: plain.index(stop, 2)], ("\n", "")]


@pytest.mark.parametrize(
    ("probability", "place"),
    [(1.0, 0), (0.5, 0), (0.499, 1), (0.1, 1), (0.099, 2), (0.0101, 2), (0.0099, 3), (0.0, 3)],
)
def test_levels_begin_where_the_legend_says(probability: float, place: int) -> None:
    logprob = math.log(probability) if probability else -math.inf
    assert level_of(logprob) is LEVELS[place]
    assert LEVELS[3].least == 0


def scored(text: str, probability: float, finish_reason: str | None = None) -> Piece:
    score = TokenScore(1, 0.0, math.log(probability), 1)
    return Piece(0, 1, text, finish_reason, score)


def test_a_character_of_several_tokens_has_the_colour_of_the_unlikeliest() -> None:
    painter = Painter(16)
    styles = [style_of(level, 16) for level in LEVELS]
    given = [scored("", 0.05), scored("", 0.2), scored("\U0001f389", 0.9), scored("a", 0.9)]
    assert [painter(piece) for piece in given] == ["", "", styles[2], styles[0]]


def test_half_a_character_at_the_end_colours_nothing_of_the_next_text() -> None:
    painter = Painter(16)
    assert painter(scored("\ufffd", 0.001, "length")) == style_of(LEVELS[3], 16)
    assert painter(scored("", 0.001)) == ""
    assert painter(Piece(0, None, "", "eos")) == ""
    assert painter(scored("a", 0.9)) == ""


def test_a_models_control_characters_are_shown(tmp_path: Path, colored: Run) -> None:
    save_meta(tmp_path, "\n\x1b[2Jab\x07")
    path = save_nanogpt(tmp_path / "ckpt.pt", build(vocab_size=8))
    out = colored(path, "-p", "\x1b", "-t", 5, "-m", 200).out
    assert out.startswith("\\x1b")
    assert out.count("\\x1b") > 5
    assert out.count("\\x07") > 5
    assert "\x07" not in out
    assert set(re.findall("\x1b.(?:[0-9;]*.)?", out)) <= {
        f"\x1b[{code}m" for code in ("0", *(style_of(level, 16) for level in LEVELS))
    }


@pytest.mark.parametrize(
    ("variables", "depth"),
    [
        ({"TERM": "xterm"}, 16),
        ({"TERM": "xterm-256color"}, 256),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, TRUE_COLOR),
    ],
)
def test_the_legend_shows_every_level_as_it_looks(
    nanogpt: Run,
    monkeypatch: pytest.MonkeyPatch,
    letters: Path,
    variables: dict[str, str],
    depth: int,
) -> None:
    monkeypatch.delenv("COLORTERM", raising=False)
    for name, value in {"FORCE_COLOR": "yes", **variables}.items():
        monkeypatch.setenv(name, value)
    command = ["sample", letters, "--color", "prob", "-m", 40, "-t", 3]
    result = nanogpt(*command)
    labels = [f"{level.colors[depth][1]} {level.label}" for level in LEVELS]
    assert labels[0] == "plain 50 % or more"
    styled = [f"\x1b[{style_of(level, depth)}m" for level in LEVELS]
    spans = [labels[0], *(f"{styled[i]}{labels[i]}\x1b[0m" for i in (1, 2, 3))]
    assert f"note: probability by the model: {', '.join(spans)}\n" in result.err
    assert styled[3] in result.out
    quiet = nanogpt(*command, "-q")
    assert (quiet.out, quiet.err) == (result.out, "")


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({}, "stdout is no terminal (FORCE_COLOR=1 colours it nevertheless)"),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, "NO_COLOR is set"),
        ({"FORCE_COLOR": "0"}, "FORCE_COLOR is 0"),
    ],
)
def test_where_no_colour_is_wanted_the_text_is_plain_with_one_note(
    nanogpt: Run,
    monkeypatch: pytest.MonkeyPatch,
    letters: Path,
    variables: dict[str, str],
    reason: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    command = ["sample", letters, "-m", 40]
    result = nanogpt(*command, "--color", "prob")
    assert result.out == nanogpt(*command).out
    assert result.err.count(f"note: --color prob: {reason}, so the text is plain\n") == 1
    assert "probability by the model" not in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--json"], "--color prob is for text, and --json prints none"),
        (["--rng", "nanogpt"], "--rng nanogpt is sample.py's own loop, which gives no --color"),
    ],
)
def test_what_colour_does_not_go_with(
    colored: Run, letters: Path, options: list[Any], message: str
) -> None:
    result = colored(letters, *options)
    assert (result.code, result.out) == (2, "")
    assert f"error: {message}" in result.err


def rgb(level: Any, depth: int) -> tuple[int, ...]:
    """Return the colour that a level's codes ask for."""
    codes = [int(code) for code in level.colors[depth][0].split(";")]
    if codes[:2] == [38, 2]:
        return tuple(codes[2:])
    if codes[:2] != [38, 5]:
        return XTERM[codes[0]]
    steps = (0, 95, 135, 175, 215, 255)
    cube = codes[2] - 16
    return steps[cube // 36], steps[cube // 6 % 6], steps[cube % 6]


def linear(color: tuple[int, ...]) -> torch.Tensor:
    """Return sRGB as light."""
    part = torch.tensor(color, dtype=torch.float64) / 255
    return torch.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def luminance(color: tuple[int, ...]) -> float:
    return float(linear(color) @ torch.tensor([0.2126, 0.7152, 0.0722], dtype=torch.float64))


@pytest.mark.parametrize(("depth", "least"), [(16, 3.5), (256, 3.8), (TRUE_COLOR, 4.5)])
def test_every_colour_can_be_read_on_black_and_on_white(depth: int, least: float) -> None:
    """WCAG 2's contrast: 4.5 for text where the terminal shows any colour; 3 is for large text."""
    for level in LEVELS[1:]:
        light = luminance(rgb(level, depth))
        assert min((light + 0.05) / 0.05, 1.05 / (light + 0.05)) >= least, level


DEFICIENCIES = {
    "protanopia": [
        *([0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216]),
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        *([0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413]),
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        *([1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602]),
        [0.004733, 0.691367, 0.303900],
    ],
}
"""How light looks to each, at full severity. Source: doi:10.1109/TVCG.2009.113."""


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_colour_blind_tell_the_levels_apart(depth: int) -> None:
    """By marks; and blue, which has none, is also far from the others in hue."""
    marks = [level.marks for level in LEVELS]
    assert marks == ["", "", "4", "1;4"]
    blue, *others = (linear(rgb(level, depth)) for level in LEVELS[1:])
    for matrix, other in itertools.product(DEFICIENCIES.values(), others):
        seen = torch.tensor(matrix, dtype=torch.float64)
        assert torch.dist(seen @ blue, seen @ other) > 0.25
