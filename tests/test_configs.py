"""The option files that users start from: each is read, and sets what it says."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Run

CONFIGS = sorted((ROOT / "configs").glob("*.toml"))


def test_there_are_some() -> None:
    assert {path.stem for path in CONFIGS} >= {"creative", "greedy", "nanogpt"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.stem))
def test_sample_takes_it(nanogpt: Run, path: Path) -> None:
    got = nanogpt("sample", "--config", path, "--prompt", "A", "-m", "2", "-n", "1", "-q")
    assert got.code == 0, got.err
    assert got.out.startswith("A")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.stem))
def test_its_first_line_says_what_it_is_for(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")


def test_nanogpt_s_are_those_of_sample_py() -> None:
    settings: dict[str, Any] = tomllib.loads((ROOT / "configs/nanogpt.toml").read_text("utf-8"))
    assert settings == {
        "num_samples": 10,
        "max_new_tokens": 500,
        "temperature": 0.8,
        "top_k": 200,
        "seed": 1337,
    }
