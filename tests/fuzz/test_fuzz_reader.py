"""A short run of the reader's fuzzer, and that it would find what it looks for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz_reader import Tally, run, summarise
from mutations import Seed, make_seeds, mutate, split_opcodes

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.pickles import opcodes, reader
from nanogpt_cli.pickles.machine import Machine


@pytest.fixture(scope="module")
def seeds() -> list[Seed]:
    return make_seeds()


def test_no_broken_file_ends_in_a_traceback(seeds: list[Seed]) -> None:
    tally = run(seeds, 400, seed=1)
    assert tally.findings == []
    assert tally.outcomes["refused"] > 100
    assert tally.outcomes["opened and read"] > 20


def test_most_opcodes_are_reached(seeds: list[Seed]) -> None:
    tally = run(seeds, 400, seed=2)
    assert tally.findings == []
    known = {name for name, _ in opcodes.OPCODES.values()}
    assert len(tally.reached.keys() & known) > 50
    assert f"of {len(known) - 1}" in summarise(tally, 400, 1.0)


def test_the_seeds_are_sound(seeds: list[Seed], tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    for seed in seeds:
        if seed.kind != "pickle":
            path.write_bytes(seed.data)
            assert open_checkpoint(str(path)).config.n_embd == 8, seed.name


def test_one_seed_gives_one_input(seeds: list[Seed]) -> None:
    for seed in seeds:
        once, again = (mutate(seed, random.Random(7)) for _ in range(2))
        assert once == again
        assert once != seed.data


def test_opcodes_are_split_at_their_borders(seeds: list[Seed]) -> None:
    stream = next(seed.data for seed in seeds if seed.kind == "pickle")
    assert b"".join(split_opcodes(stream)) == stream


def test_a_bug_would_be_found(seeds: list[Seed], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_machine: Machine, _argument: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(reader.STEPS, "BINPERSID", broken)
    tally: Tally = run(seeds[:1], 5, seed=3)
    assert tally.findings
    assert all("ZeroDivisionError" in finding for finding in tally.findings)
