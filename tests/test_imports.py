"""What a light start must not import: it is what makes it quick."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from nanogpt_cli.commands import COMMANDS

HEAVY = {
    "torch",
    "transformers",
    "tiktoken",
    "numpy",
    "huggingface_hub",
    "safetensors",
    "tokenizers",
    "requests",
    "httpx",
    "ray",
    "pyarrow",
    "fsspec",
}

PROBE = """
import json, sys
from nanogpt_cli.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


def imported(*words: str) -> set[str]:
    """Return the top-level modules that are there after `nanogpt WORDS` has run."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


HELPS = [("--help",), *((command.__name__, "--help") for command in COMMANDS)]


@pytest.mark.parametrize("words", [*HELPS, ("--version",), ("params", "gpt2-xl")], ids=" ".join)
def test_nothing_heavy_is_imported(words: tuple[str, ...]) -> None:
    modules = imported(*words)
    assert "nanogpt_cli" in modules
    assert modules & HEAVY == set()


def test_the_probe_sees_what_is_imported() -> None:
    assert {"typer", "rich"} <= imported("--help")
