"""`nanogpt inspect --prompt TEXT --html FILE` as people use it: what is told, and what is kept."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Outcome, Run
from model_files import build, save_meta, save_nanogpt

TEXT = "TO BE, OR NOT"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a small model over capital letters and its table."""
    save_nanogpt(tmp_path / "ckpt.pt", build())
    save_meta(tmp_path)
    return tmp_path


def write(nanogpt: Run, folder: Path, *args: object, prompt: str = TEXT) -> Outcome:
    return nanogpt("inspect", folder, "-p", prompt, "--html", folder / "page.html", *args)


def test_stdout_says_where_the_page_is_and_its_size(nanogpt: Run, folder: Path) -> None:
    outcome = write(nanogpt, folder)
    page = folder / "page.html"
    size = page.stat().st_size
    assert outcome.code == 0
    assert outcome.out == (
        f"wrote {page}, {size / 1000:.1f} kB ({size:,} bytes): open it in a browser\n"
    )
    assert outcome.err == (
        f"note: inspecting {folder / 'ckpt.pt'}, iter_num 250, best_val_loss 2.5000\n"
    )
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>\n")
    assert text.endswith("</html>\n")
    assert '"start":"next"' in text


def test_json_says_the_same(nanogpt: Run, folder: Path) -> None:
    outcome = write(nanogpt, folder, "--view", "lens", "--json")
    (report,) = outcome.rows
    assert report == {
        "schema": "nanogpt.inspect.page/1",
        "file": str(folder / "page.html"),
        "file_bytes": (folder / "page.html").stat().st_size,
        "checkpoint": f"{folder / 'ckpt.pt'}, iter_num 250, best_val_loss 2.5000",
        "prompt": TEXT,
        "prompt_tokens": 13,
        "first_view": "lens",
        "views": [
            *("next", "surprisal", "lens", "attention", "contributions", "activations"),
            "ablation",
        ],
        "left_out": [],
    }
    assert '"start":"lens"' in (folder / "page.html").read_text(encoding="utf-8")


def test_what_is_left_out_is_told_on_stderr_and_on_the_page(nanogpt: Run, folder: Path) -> None:
    outcome = write(nanogpt, folder, prompt=TEXT * 2)
    told = (
        "the model sees the last 16 of the text's 26 tokens; surprisal alone goes over all of them"
    )
    assert f"note: {told}\n" in outcome.err
    assert told in (folder / "page.html").read_text(encoding="utf-8")


def test_options_of_every_view_are_taken_together(nanogpt: Run, folder: Path) -> None:
    args = ("--track", "A", "--layer", 1, "--head", 2, "--answer", "B", "--stride", 4)
    assert write(nanogpt, folder, *args).code == 0


def test_a_page_is_replaced_only_by_force(nanogpt: Run, folder: Path) -> None:
    page = folder / "page.html"
    page.write_text("mine")
    outcome = write(nanogpt, folder)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"error: {str(page)!r} exists already\n" in outcome.err
    assert "hint: give --force to replace it, or another --html\n" in outcome.err
    assert page.read_text() == "mine"
    assert write(nanogpt, folder, "--force").code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_places_where_no_page_can_be(nanogpt: Run, folder: Path, force: tuple[str, ...]) -> None:
    before = (folder / "ckpt.pt").read_bytes()
    cases = {
        folder: f"--html {str(folder)!r} is a folder",
        folder / "no" / "page.html": "there is no folder",
        folder / "ckpt.pt": "is the input, which would be lost",
    }
    for target, told in cases.items():
        outcome = nanogpt("inspect", folder, "-p", TEXT, "--html", target, *force)
        assert (outcome.code, outcome.out) == (2, "")
        assert told in outcome.err
        assert "--output" not in outcome.err
    assert (folder / "ckpt.pt").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["ckpt.pt", "meta.pkl"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("-p", TEXT, "--save", "x.npz"), "--save and --html are two outputs: give one"),
        (("-p", TEXT, "--track", "AB"), "'AB' is 2 tokens: 'A', 'B'"),
        (("-p", TEXT, "--head", 1), "--head without a layer"),
        (("-p", TEXT, "--view", "x"), "no view is named 'x'"),
        ((), "--html means nothing without a text to look at"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_wrong_command_line_leaves_no_file(
    nanogpt: Run, folder: Path, args: tuple[object, ...], told: str
) -> None:
    outcome = nanogpt("inspect", folder, "--html", folder / "page.html", *args)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"error: {told}\n" in outcome.err
    assert sorted(path.name for path in folder.iterdir()) == ["ckpt.pt", "meta.pkl"]


def test_an_empty_prompt_has_a_page(nanogpt: Run, folder: Path) -> None:
    assert write(nanogpt, folder, prompt="").code == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert page.count('"missing":"the text is one token, and a token is predicted') == 2


def test_another_process_writes_the_same_bytes(nanogpt: Run, folder: Path) -> None:
    assert write(nanogpt, folder).code == 0
    page = folder / "page.html"
    first = page.read_bytes()
    command = [sys.executable, "-m", "nanogpt_cli", "inspect", str(folder), "-p", TEXT, "--force"]
    subprocess.run([*command, "--html", str(page)], check=True, capture_output=True, timeout=120)
    assert page.read_bytes() == first
    assert not re.search(rb"20\d\d-\d\d-\d\d", first)
