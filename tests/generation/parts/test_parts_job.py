"""What workers are told, and what is made of what they tell: without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from model_files import build, save_meta, save_nanogpt

from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.parts.job import PartReport, Recipe
from nanogpt_cli.generation.parts.manifest import Manifest, PartEntry
from nanogpt_cli.generation.parts.tally import PartsTally


def recipe_of(folder: Path, **changes: Any) -> Recipe:
    values: dict[str, Any] = {
        "checkpoint": str(folder / "ckpt.pt"),
        "n_head": None,
        "offline": True,
        "tokenizer": None,
        "meta": None,
        "folder": folder,
        "device": "cpu",
        "dtype": "float32",
        "quantize": None,
        "compile": False,
        "threads": None,
        "cache": None,
    }
    return Recipe(**{**values, **changes})


def test_a_recipe_opens_the_session_that_was_asked_for(tmp_path: Path) -> None:
    save_meta(tmp_path)
    save_nanogpt(tmp_path / "ckpt.pt", build())
    asked = {"quantize": "int8", "threads": 3, "cache": tmp_path, "dtype": "bfloat16"}
    session = recipe_of(tmp_path, tokenizer="ids", **asked).open()
    choice = session.choice
    assert (choice.quantize, choice.compile, choice.threads, choice.folder) == (
        "int8",
        False,
        3,
        tmp_path,
    )
    assert (session.dtype_name, session.tokenizer.name) == ("bfloat16", "ids")
    with pytest.raises(NanoGPTError, match="--n-head 4 contradicts the file"):
        recipe_of(tmp_path, n_head=4).open()


def part_of(first_row: int, failed: int = 0, **report: Any) -> PartReport:
    name = f"part-{first_row:012d}.jsonl"
    return PartReport(PartEntry(name, first_row, 4, 8, failed, 10, 100, "00"), **report)


def manifest_of() -> Manifest:
    settings = {"digest": "d"}
    return Manifest(False, 4, 2, 1337, "float32", None, None, settings, 12)


def test_a_tally_is_the_same_in_whatever_order_parts_come() -> None:
    parts = [
        part_of(0, made=8, new_tokens=10, step="eager", passed_over=["b"]),
        part_of(4, failed=2, kept=8, first_error=(5, "no"), notes=["n"]),
        part_of(8, failed=1, made=3, kept=5, new_tokens=4, first_error=(9, "not"), step="eager"),
    ]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        tally = PartsTally()
        for place in order:
            tally.add_part(parts[place])
        assert (tally.rows, tally.kept, tally.failed, tally.new_tokens) == (11, 13, 3, 14)
        assert tally.first_error is not None
        assert (tally.first_error[0], tally.first_error[1].message) == (5, "no")
        done = tally.complete(manifest_of())
        assert [part.first_row for part in done.parts] == [0, 4, 8]
        assert (done.complete, done.step, done.failed) == (True, "eager", 3)
        assert (done.rows, done.new_tokens, done.bytes) == (24, 30, 300)


def test_workers_that_compute_in_different_ways_are_refused() -> None:
    tally = PartsTally()
    tally.add_part(part_of(0, step="compiled"))
    tally.add_part(part_of(4))
    with pytest.raises(NanoGPTError) as caught:
        tally.add_part(part_of(8, step="eager"))
    assert caught.value.message == (
        "one worker computes with the compiled step, another with eager"
    )
