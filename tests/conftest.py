"""What all tests share: a quiet environment, the command line in a call, files made by others."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import typer

from nanogpt_cli.cli import main

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Tiny models gain nothing from more, and on a busy machine they wait for each other."""

# How long a case takes is the machine's affair.
hypothesis.settings.register_profile("nanogpt", deadline=None)
hypothesis.settings.load_profile("nanogpt")

ROOT = Path(__file__).parents[1]

CACHE = tempfile.TemporaryDirectory(prefix="nanogpt-tests-")
"""What is compiled is compiled once for all tests, and the user's own folder is left alone."""

NOISE = ("NO_COLOR", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "COLUMNS", "TERM")
"""Variables that change how things look, beside PYTHONIOENCODING and our own NANOGPT_*."""


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the caller's environment would change."""
    for name in list(os.environ):
        ours = name.startswith("NANOGPT_") and name != "NANOGPT_ZOO"
        if ours or name in NOISE or name in ("PYTHONIOENCODING", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", CACHE.name)


@pytest.fixture(scope="session")
def zoo() -> Path:
    """Return the folder of checkpoints that others made, or skip."""
    folder = Path(os.environ.get("NANOGPT_ZOO") or ROOT.parent / "shared" / "zoo")
    if not folder.is_dir():
        pytest.skip(f"no checkpoints of others in {folder}: set NANOGPT_ZOO")
    return folder


@dataclass(frozen=True)
class Outcome:
    """What a call of `nanogpt` left behind."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The JSON objects on stdout, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Outcome]


@pytest.fixture
def nanogpt(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs `nanogpt` with its arguments in this process."""

    def run(*args: object, app: typer.Typer | None = None) -> Outcome:
        capsys.readouterr()
        code = main([str(arg) for arg in args], app=app)
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return run
