"""README's examples: what it says is printed is what is printed.

A block that begins with ```console is a command after `$ ` and its output, in which a line `...`
stands for any lines.
"""

from __future__ import annotations

import re
import shlex

import pytest
from conftest import ROOT, Run

BLOCK = re.compile(r"^```console\n\$ nanogpt (.+)\n((?s:.*?))^```$", re.MULTILINE)
EXAMPLES = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def pattern_of(shown: list[str]) -> str:
    """Return what matches an output, blanks at the ends of its lines aside."""
    lines = (r"(?:.*\n)*?" if line == "..." else f"{re.escape(line)} *\n" for line in shown)
    return "".join(lines)


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[each[0] for each in EXAMPLES])
def test_an_example_prints_what_is_shown(nanogpt: Run, command: str, shown: str) -> None:
    outcome = nanogpt(*shlex.split(command))
    assert outcome.code == 0, outcome.err
    assert re.fullmatch(pattern_of(shown.splitlines()), outcome.out), outcome.out


def test_there_are_examples_and_they_can_be_wrong() -> None:
    assert len(EXAMPLES) > 1
    assert re.fullmatch(pattern_of(["...", "a b", "..."]), "x\ny\na b  \n")
    assert not re.fullmatch(pattern_of(["...", "a b", "..."]), "x\na c\n")
