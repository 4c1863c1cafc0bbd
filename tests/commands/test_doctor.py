"""`nanogpt doctor`: the facts of an installation, also of a broken one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import Outcome, Run

from nanogpt_cli import __version__
from nanogpt_cli.tokenizers.gpt2 import RANKS_SHA256

HIDDEN = """
import sys
from importlib.abc import MetaPathFinder
from nanogpt_cli.cli import main

class Broken(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise {error}

sys.meta_path.insert(0, Broken())
sys.exit(main(["doctor", *sys.argv[1:]]))
"""


def with_broken(name: str, error: str, *words: str) -> Outcome:
    """Run it where importing a package raises."""
    script = HIDDEN.format(name=name, error=error)
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, timeout=120, check=False
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_the_facts_as_json(nanogpt: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NANOGPT_CACHE", str(tmp_path / "steps"))
    monkeypatch.setenv("NANOGPT_TOP_K", "7")
    got = nanogpt("doctor", "--json")
    assert (got.code, got.err) == (0, "")
    (facts,) = got.rows
    assert (facts["schema"], facts["nanogpt"]) == ("nanogpt.doctor/1", __version__)
    assert facts["packages"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert None not in facts["packages"].values()
    assert facts["threads"] == torch.get_num_threads()
    assert facts["devices"][0]["device"] == "cpu"
    assert {device["status"] for device in facts["devices"]} == {"right"}
    assert (facts["step_folder"], facts["step_kept"]) == ("~/steps", False)
    assert facts["gpt2_sha256"] == RANKS_SHA256
    assert {"NANOGPT_CACHE", "NANOGPT_TOP_K"} <= set(facts["variables"])
    assert facts["faults"] == []


def test_the_facts_as_text_to_paste(nanogpt: Run) -> None:
    got = nanogpt("doctor")
    assert (got.code, got.err) == (0, "")
    lines = got.out.splitlines()
    assert lines[0] == f"nanogpt              {__version__}"
    assert lines[-1] == "faults               none found"
    assert sum(line.endswith("matrix product right") for line in lines) >= 1
    assert str(Path.home()) not in got.out


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ('ImportError("libx.so.1: cannot open shared object file")', "ImportError: libx.so.1: "),
        ('OSError("[WinError 126] c10.dll")', "OSError: [WinError 126] c10.dll"),
    ],
)
def test_a_torch_that_does_not_load_is_a_fact_among_the_others(error: str, told: str) -> None:
    got = with_broken("torch", error, "--json")
    assert (got.code, got.err) == (3, "")
    (facts,) = got.rows
    assert facts["faults"][0].startswith(f"torch cannot be imported: {told}")
    assert (facts["devices"], facts["threads"], facts["step_kept"]) == ([], None, None)
    assert facts["packages"]["torch"] is not None
    assert facts["gpt2_sha256"] == RANKS_SHA256
    assert facts["hub_folder"] is not None


def test_any_other_package_that_does_not_load() -> None:
    got = with_broken("huggingface_hub", 'ImportError("no\\nreason")')
    assert (got.code, got.err) == (3, "")
    assert got.out.splitlines()[-2:] == [
        got.out.splitlines()[-2],
        "faults               the hub's cache: ImportError: no",
    ]
    assert "hub cache            unknown" in got.out


def test_it_needs_no_home() -> None:
    environment = {name: value for name, value in os.environ.items() if "HOME" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "nanogpt_cli", "doctor", "--json"],
        env={**environment, "HOME": ""},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert json.loads(done.stdout)["schema"] == "nanogpt.doctor/1"
