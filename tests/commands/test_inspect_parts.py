"""`nanogpt inspect --view attention, contributions, ablation`, from the command line down."""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Outcome, Run
from induction_model import SIZE, build_induction
from model_files import ALPHABET, build, save_meta, save_nanogpt
from rich.console import Console, RenderableType

from nanogpt_cli.commands.inspect.behaviour.heat import LEGEND, LayerMap, SquareMap

HOSTILE = "[RED]X[/B]"


def lines(outcome: Outcome) -> list[str]:
    """Return the lines of stdout with runs of blanks made one."""
    assert outcome.code == 0, outcome.err
    return [" ".join(line.split()) for line in outcome.out.splitlines()]


def draw(drawn: RenderableType, width: int, **settings: Any) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, markup=False, emoji=False, highlight=False, **settings).print(
        drawn
    )
    return file.getvalue().splitlines()


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    save_meta(tmp_path)
    return save_nanogpt(tmp_path / "ckpt.pt", build())


@pytest.fixture
def copier(tmp_path: Path) -> Path:
    return save_nanogpt(tmp_path / "ckpt.pt", build_induction())


def test_a_table_tells_what_each_head_does(nanogpt: Run, copier: Path) -> None:
    prompt = ("--prompt", "3 1 4 1 5 9 2 6", "--tokenizer", "ids")
    shown = lines(nanogpt("inspect", copier, *prompt, "--view", "attention"))
    assert shown[2] == "layer head previous first induction duplicate entropy role"
    assert "0 1 100.0 % 0.0 % 0.0 % 0.0 % 0.00 previous token" in shown
    assert any(re.fullmatch(r"1 2 .* 96.9 % 3.1 % .* induction", line) for line in shown)
    assert (
        "induction, duplicate: on 16 random tokens, twice over (seed 1337), from the second half "
        "to the token after the same one, and to the same one itself"
    ) in shown
    assert shown[-1].startswith("rows sum to 1 within ")
    alone = lines(nanogpt("inspect", copier, *prompt, "--view", "attention", "--layer", "1"))
    assert [line.split()[0] for line in alone[4:7]] == ["1", "1", "1"]
    assert len(alone) == len(shown) - 3


def test_a_map_is_drawn_with_the_texts_own_tokens(nanogpt: Run, letters: Path) -> None:
    options = ("--view", "attention", "--layer", "1", "--head", "2")
    outcome = nanogpt("inspect", letters, "--prompt", HOSTILE, *options)
    shown = outcome.out.splitlines()
    assert outcome.code == 0
    assert shown[2] == "block 1 head 2, 10 x 10 tokens: row t is where token t looks"
    drawn = shown[5:15]
    assert [line.split()[1] for line in drawn] == list(HOSTILE)
    for t, line in enumerate(drawn):
        glyphs = line[4:]
        assert set(glyphs) <= set("·░▒▓█ ")
        assert 2 * t + 1 <= len(glyphs) <= 2 * t + 2  # nothing above the diagonal
    assert drawn[0] == "0 [ ██"
    assert LEGEND in shown
    assert "\x1b" not in outcome.out


def test_the_mean_over_heads_is_drawn_when_asked_for(nanogpt: Run, letters: Path) -> None:
    options = ("--view", "attention", "--layer", "0", "--average")
    shown = lines(nanogpt("inspect", letters, "--prompt", "ABC", *options))
    assert shown[2] == "block 0 mean over its heads, 3 x 3 tokens: row t is where token t looks"


def test_all_maps_are_saved(nanogpt: Run, letters: Path, tmp_path: Path) -> None:
    target = tmp_path / "maps.npz"
    options = ("--view", "attention", "--save", target, "--json")
    outcome = nanogpt("inspect", letters, "--prompt", "HELLO", *options)
    assert outcome.code == 0
    [report] = outcome.rows
    assert report["schema"] == "nanogpt.inspect.attention/1"
    assert report["map"] is None
    assert "maps" not in report
    with np.load(target) as saved:
        attention = saved["attention"]
    assert attention.shape == (2, 3, 5, 5)
    assert abs(attention.sum(-1) - 1).max() <= 1e-5
    assert not np.triu(attention, 1).any()


def test_the_json_map_is_the_saved_one(nanogpt: Run, letters: Path, tmp_path: Path) -> None:
    target = tmp_path / "maps.npz"
    options = ("--view", "attention", "--layer", "1", "--head", "0", "--save", target, "--json")
    [report] = nanogpt("inspect", letters, "--prompt", "HELLO", *options).rows
    with np.load(target) as saved:
        assert report["map"]["weights"] == saved["attention"][1, 0].tolist()


def test_contributions_add_up_on_screen(nanogpt: Run, letters: Path) -> None:
    options = ("--view", "contributions", "--answer", "[")
    outcome = nanogpt("inspect", letters, "--prompt", "HELLO", *options)
    shown = lines(outcome)
    assert shown[2].startswith("after token 4 O: [ (id 60, logit ")
    cells = {line.split(" +")[0].split(" -")[0]: line.split()[-2:] for line in shown}
    parts = ["embeddings", "heads", "MLPs", "biases"]
    for column in (0, 1):
        total = sum(float(cells[part][column]) for part in parts)
        assert total == pytest.approx(float(cells["sum"][column]), abs=0.003)
        assert cells["sum"][column] == cells["the model's"][column]
        assert abs(float(cells["left over"][column])) < 1e-4


def test_an_induction_head_is_the_strongest_on_screen(nanogpt: Run, copier: Path) -> None:
    options = ("--tokenizer", "ids", "--view", "contributions", "--against", "4")
    shown = lines(nanogpt("inspect", copier, "--prompt", "7 3 9 4 7 3", *options))
    assert shown[2].startswith("after token 5 3: 9 (id 9, logit ")
    assert ", against 4 (id 4, logit " in shown[2]
    strongest = shown.index("strongest logit less the other")
    assert shown[strongest + 2].startswith("block 1 head 2 +")


def test_ablation_of_a_token_file(nanogpt: Run, copier: Path, tmp_path: Path) -> None:
    once = torch.randperm(SIZE, generator=torch.Generator().manual_seed(0))[:16].tolist()
    tokens = tmp_path / "val.bin"
    tokens.write_bytes(struct.pack("<64H", *(once * 4)))
    options = ("--tokenizer", "ids", "--view", "ablation")
    outcome = nanogpt("inspect", copier, "--prompt", f"FILE:{tokens}", *options)
    shown = lines(outcome)
    assert re.fullmatch(
        r"loss \d\.\d{4} nats per token over 63 predicted tokens, 2 windows side by side of up "
        r"to 32",
        shown[2],
    )
    head = shown.index("layer 0 1 2 attention mlp both")
    layer, *changes = shown[head + 1].split()
    assert (layer, changes[0], changes[2]) == ("0", "+0.000", "+0.000")
    largest = shown.index("largest change loss")
    first_four = {line.rsplit(" ", 2)[0] for line in shown[largest + 2 : largest + 6]}
    assert first_four == {
        "block 0 head 1",
        "block 0 attention",
        "block 1 head 2",
        "block 1 attention",
    }


@pytest.mark.parametrize("view", ["attention", "contributions", "ablation"])
def test_json_is_one_object_without_nan(nanogpt: Run, letters: Path, view: str) -> None:
    outcome = nanogpt("inspect", letters, "--prompt", HOSTILE, "--view", view, "--json")
    assert outcome.code == 0
    [report] = outcome.rows
    assert report["schema"] == f"nanogpt.inspect.{view}/1"
    assert report["prompt"] == HOSTILE
    assert "NaN" not in outcome.out
    assert "Infinity" not in outcome.out


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            ("attention", "--layer", "2"),
            "no layer 2: the model's 2 layers are numbered 0 to 1",
            "give --layer 0 to 1",
        ),
        (
            ("attention", "--layer", "0", "--head", "9"),
            "no head 9: the model's 3 heads are numbered 0 to 2",
            "give --head 0 to 2",
        ),
        (("attention", "--head", "1"), "--head without a layer", "add --layer 0 to 1"),
        (
            ("contributions", "--position", "3"),
            "no position 3: the 3 tokens are numbered 0 to 2",
            "give --position 2 for the last, or leave it out",
        ),
        (
            ("contributions", "--answer", "AB"),
            "'AB' is 2 tokens: 'A', 'B'",
            "give one token; a space before a word is often a part of it",
        ),
        (
            ("ablation", "--layer", "0"),
            "--layer means nothing to the view 'ablation'",
            "add --view attention, or leave --layer out",
        ),
    ],
)
def test_wrong_usage_is_told(
    nanogpt: Run, letters: Path, options: tuple[str, ...], message: str, hint: str
) -> None:
    outcome = nanogpt("inspect", letters, "-q", "--prompt", "ABC", "--view", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"error: {message}\nhint: {hint}\n"


def test_one_token_has_no_loss_to_change(nanogpt: Run, letters: Path) -> None:
    outcome = nanogpt("inspect", letters, "-q", "--prompt", "A", "--view", "ablation")
    assert outcome.code == 2
    assert outcome.err.startswith("error: the text is 1 token, and a loss takes at least 2\n")


def test_a_square_map_keeps_to_the_width() -> None:
    weights = torch.ones(30, 30).tril() / torch.arange(1, 31)[:, None]
    labels = ["[red]" if t % 2 else "字" for t in range(30)]
    wide = draw(SquareMap(labels, weights.tolist()), 100)
    assert wide[1] == " 0 字    ██"
    assert wide[2] == " 1 [red] ▓▓▓▓"
    assert wide[30].startswith("29 [red] · · ·")
    narrow = draw(SquareMap(labels, weights.tolist()), 40)
    assert narrow[2] == " 1 [red] ▓▓"
    pooled = draw(SquareMap(labels, weights.tolist()), 24)
    assert pooled[0] == "each cell is the largest"
    assert [line for line in pooled if line.startswith(" 0-1")] == [" 0-1   █"]
    for width in (100, 40, 24):
        assert all(len(line) <= width for line in draw(SquareMap(labels, weights.tolist()), width))


def test_a_layer_map_falls_back_to_shades() -> None:
    rows: list[list[float | None]] = [[0.5, -0.01, None, 8.0], [-1.0, 0.1, 0.0, -2.0]]
    table = LayerMap([("mlp", "M")], rows)
    assert draw(table, 80) == [
        "layer      0      1      2    mlp",
        "    0 +0.500 -0.010        +8.000",
        "    1 -1.000 +0.100 +0.000 -2.000",
    ]
    assert draw(table, 20)[:3] == ["layer  0  1  2  M", "    0 +▓ -·    +█", "    1 -█ +░ +· -▒"]
    many = LayerMap([("mlp", "M")], [[float(value) for value in range(13)]])
    assert draw(many, 36)[:2] == [
        "layer 0 1 2 3 4 5 6 7 8 9 0 1 M",
        "    0+·+░+░+▒+▒+▓+▓+▓+█+█+█+█+█",
    ]


def test_colours_are_of_the_sixteen_and_say_nothing_alone() -> None:
    weights = torch.ones(9, 9).tril() / torch.arange(1, 10)[:, None]
    drawn: list[RenderableType] = [
        SquareMap(["x"] * 9, weights.tolist()),
        LayerMap([("mlp", "M")], [[1.0, -2.0, 3.0]]),
    ]
    for each in drawn:
        coloured = draw(each, 60, force_terminal=True, color_system="truecolor", no_color=False)
        codes = set(re.findall(r"\x1b\[([0-9;]*)m", "\n".join(coloured)))
        assert codes
        assert all(
            re.fullmatch(r"(?:[0-9]|3[0-7]|9[0-7])(?:;(?:3[0-7]|9[0-7]))?", c) for c in codes
        )
        plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in coloured]
        assert plain == draw(each, 60)


def test_labels_have_no_raw_control_characters(nanogpt: Run, letters: Path) -> None:
    options = ("--view", "attention", "--layer", "0", "--head", "0")
    shown = lines(nanogpt("inspect", letters, "--prompt", "A B\n", *options))
    assert shown[5:9] == [f"{row} {text} {glyphs}" for row, text, glyphs in _rows(shown[5:9])]
    assert [text for _, text, _ in _rows(shown[5:9])] == ["A", "␣", "B", "\\n"]
    assert ALPHABET[0] == "\n"


def _rows(shown: list[str]) -> list[tuple[str, str, str]]:
    return [(row, text, glyphs) for row, text, glyphs in (line.split(" ", 2) for line in shown)]
