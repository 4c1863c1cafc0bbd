"""A batch over a checkpoint of a stranger's whose every right answer is known."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from conftest import Run

pytestmark = pytest.mark.real


def test_the_adder_makes_every_sum_of_two_digit_numbers(
    nanogpt: Run, zoo: Path, tmp_path: Path
) -> None:
    """10,000 prompts of four digits; three digits come back, the last of the sum first."""
    prompts, out = tmp_path / "sums.txt", tmp_path / "sums.jsonl"
    pairs = list(itertools.product(range(100), repeat=2))
    lines = [f"{a // 10} {a % 10} {b // 10} {b % 10}\n" for a, b in pairs]
    prompts.write_text("".join(lines))
    options = ("--tokenizer", "ids", "--n-head", 3, "--temperature", 0, "-m", 3, "-o", out)
    result = nanogpt("sample", zoo / "minGPT-adder" / "model.pt", "--prompts", prompts, *options)
    assert result.code == 0
    answers = []
    with out.open() as file:
        for number, line in enumerate(file):
            row = json.loads(line)
            assert (row["row"], row["text"]) == (number, " ".join(map(str, row["ids"])))
            units, tens, hundreds = row["ids"]
            answers.append(units + 10 * tens + 100 * hundreds)
    assert answers == [a + b for a, b in pairs]
