"""`nanogpt bench`: that it measures what it says, never how fast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Run
from model_files import build, save_nanogpt

from nanogpt_cli.commands.bench import remarks
from nanogpt_cli.generation.bench import BenchReport, BenchRow

SMALL = ("--new-tokens", "3", "--prompt-tokens", "4", "--rounds", "1")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(save_nanogpt(tmp_path / "ckpt.pt", build()))


def test_a_row_for_each_format_and_batch_size(nanogpt: Run, checkpoint: str) -> None:
    sizes = ("--batch-size", "1", "--batch-size", "3")
    result = nanogpt("bench", checkpoint, "--json", *SMALL, *sizes)
    assert result.code == 0, result.err
    (report,) = result.rows
    assert report["schema"] == "nanogpt.bench/1"
    assert (report["prompt_tokens"], report["new_tokens"], report["rounds"]) == (4, 3, 1)
    assert report["parameters"] == sum(p.numel() for p in build().parameters())
    rows = report["rows"]
    assert [(row["weights"], row["batch_size"]) for row in rows] == [
        (weights, size) for weights in ("float32", "float16", "int8") for size in (1, 3)
    ]
    for row in rows:
        assert (row["step"], row["batch_invariant"]) == ("compiled", True)
        assert row["decode_tokens_per_second"] == pytest.approx(
            row["batch_size"] / row["step_seconds"]
        )
        assert row["prefill_tokens_per_second"] == pytest.approx(
            4 * row["batch_size"] / row["first_token_seconds"]
        )
        share = row["read_bytes_per_step"] / row["step_seconds"]
        share /= row["bandwidth_bytes_per_second"]
        assert row["share_of_limit"] == pytest.approx(share)


def test_the_bytes_of_a_step_are_weights_and_cache(nanogpt: Run, checkpoint: str) -> None:
    result = nanogpt("bench", checkpoint, "--json", *SMALL, "--batch-size", "2")
    config = build().config
    L, C, V = config.n_layer, config.n_embd, config.vocab_size
    elements, cache = 12 * L * C * C + V * C, 2 * 2 * L * C * 5 * 4
    assert [row["read_bytes_per_step"] for row in result.rows[0]["rows"]] == [
        width * elements + cache for width in (4, 2, 1)
    ]


def test_a_table_for_people(nanogpt: Run, checkpoint: str) -> None:
    result = nanogpt("bench", checkpoint, *SMALL, "--no-compile", "--dtype", "float32")
    assert result.code == 0
    titles = "weights   batch   prefill tok/s   first token   decode tok/s   ms a step   of limit"
    assert titles in result.out
    assert [line.split()[-1] for line in result.out.splitlines() if "float32" in line] == [
        "eager",
        "eager",
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--dtype", "int3"), "unknown dtype 'int3'"),
        (("--new-tokens", "1"), "--new-tokens 1: it must be at least 2"),
        (("--batch-size", "0"), "--batch-size 0: it must be at least 1"),
        (("--rounds", "0"), "--rounds 0: it must be at least 1"),
        (
            ("--prompt-tokens", "400"),
            "400 prompt tokens and 8 new ones are more than the model's 16 positions",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    nanogpt: Run, checkpoint: str, flags: tuple[str, str], message: str
) -> None:
    result = nanogpt("bench", checkpoint, *flags)
    assert result.code == 2
    assert f"error: {message}" in result.err.splitlines()


def test_figures_that_say_little_are_said_to() -> None:
    row = BenchRow("int8", 1, "compiled", True, 1.0, 1.0, 1.0, 1.0, 9, 4.0, 2.25, 1.0)
    report = BenchReport("demo", 1, "cpu", 1, 1, 2, 1, 4.0, 1.0, [row])
    assert [line.split(":")[0] for line in remarks(report)] == ["of limit above 1"]
    noisy = replace(report, rows=[replace(row, share_of_limit=0.5)], spread=4.04)
    assert remarks(noisy) == [
        "the rounds differ by up to 4.0 times: other programs are at work, "
        "and these figures say little"
    ]
    assert remarks(replace(noisy, spread=1.2)) == []
