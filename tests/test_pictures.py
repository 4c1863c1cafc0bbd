"""README's pictures: the command that draws them works, and they are not stale."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import ROOT

FOLDER = ROOT / "benchmarks" / "pictures"
NAMES = ["attention", "lens", "surprisal"]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with pictures drawn just now."""
    folder = tmp_path_factory.mktemp("pictures")
    command = [sys.executable, "-m", "benchmarks.pictures", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    return folder


def words(picture: Path) -> list[str]:
    """Return the words in a picture; figures differ a little from machine to machine."""
    texts = ElementTree.parse(picture).getroot().itertext()
    return re.findall(r"[^\W\d]{3,}", " ".join(text.replace("\xa0", " ") for text in texts))


def test_every_picture_is_drawn(fresh: Path) -> None:
    assert sorted(path.stem for path in fresh.iterdir()) == NAMES
    assert "surprisal" in words(fresh / "surprisal.svg")
    assert "embed" in words(fresh / "lens.svg")


@pytest.mark.parametrize("name", NAMES)
def test_the_pictures_are_those_of_the_code(fresh: Path, name: str) -> None:
    stale = "`python -m benchmarks.pictures` draws it anew"
    assert words(FOLDER / f"{name}.svg") == words(fresh / f"{name}.svg"), stale


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_small_colourful_and_fetches_nothing(name: str) -> None:
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert len(text) < 40_000
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\((?!#)|@font-face|@import|/ckpt\.pt", text)
    assert len(set(re.findall(r"fill: (#[0-9a-f]{6})", text))) > 1


def test_readme_shows_them() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]{20,}\]\(benchmarks/pictures/(\w+)\.svg\)", readme)
    assert sorted(shown) == NAMES
