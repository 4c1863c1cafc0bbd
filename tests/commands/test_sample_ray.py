"""`--engine ray` as far as it goes without a cluster: what is refused, and before what."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import Run
from ray_extra import needs_ray

BATCH = ("sample", "demo", "--prompts", "prompts.txt", "-o", "rows")
RAY = (*BATCH, "--engine", "ray")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.txt").write_text("To be\nor not\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*BATCH, "--num-workers", 2), "--num-workers is about the workers of --engine ray"),
        (
            (*BATCH, "--gpus-per-worker", 0),
            "--gpus-per-worker is about the workers of --engine ray",
        ),
        (("sample", "--engine", "ray"), "--engine is about --prompts, which is not given"),
        ((*RAY[:4], *RAY[6:]), "--engine ray writes a folder of parts, and none is named"),
        ((*RAY, "--prompts", "-"), "--engine ray cannot read prompts from standard input"),
        ((*RAY, "--shard", "0/2"), "--shard splits the rows among runs, and --engine ray among"),
        ((*RAY, "--resume", "--force"), "--resume keeps what is in the output, and --force"),
        ((*RAY, "--num-workers", 0), "--num-workers 0: it must be at least 1"),
        ((*RAY, "--gpus-per-worker", 2), "--gpus-per-worker 2: it must be 0 to 1"),
        ((*RAY, "--rng", "nanogpt"), "--rng nanogpt draws all samples from one stream"),
        ((*RAY, "--batch-size", 0), "--batch-size 0: it must be at least 1"),
        ((*RAY, "--engine", "spark"), "spark"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(
    nanogpt: Run, words: tuple[object, ...], message: str
) -> None:
    result = nanogpt(*words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert not Path("rows").exists()


def test_without_the_extra_the_error_says_what_to_install(
    nanogpt: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = nanogpt(*RAY)
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "error: --engine ray needs Ray Data, which is not installed\n"
        'hint: pip install "nanogpt-cli[ray]"\n'
    )


@needs_ray[0]
@needs_ray[1]
class TestBeforeAClusterIsLookedFor:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--device", "cuda:1"), "--device cuda:1: Ray gives each worker its GPU"),
            (("--device", "mps"), "--device mps: the workers of --engine ray compute on"),
            (("--threads", 0), "--threads 0: it must be 1 to 1024"),
            (("--prompts", "gone.txt"), "no file of prompts at"),
            (("--prompts", "."), "'.' is a folder"),
            (("-o", "."), "the output '.' holds the prompts, which could be lost"),
            (("-o", "prompts.txt"), "is a file, and --engine ray writes a folder"),
            (("-o", "nonsense://x/y"), "cannot reach 'nonsense://x/y'"),
        ],
        ids=str,
    )
    def test_places_and_devices(
        self, nanogpt: Run, options: tuple[object, ...], message: str
    ) -> None:
        result = nanogpt(*RAY, *options)
        assert (result.code, result.out) == (2, "")
        assert message in result.err

    def test_parts_that_are_there_are_kept(self, nanogpt: Run) -> None:
        part = Path("rows", "part-000000000000.jsonl")
        part.parent.mkdir()
        part.write_text("mine\n")
        result = nanogpt(*RAY)
        assert result.code == 2
        assert "'rows' has 'part-000000000000.jsonl' already" in result.err
        result = nanogpt(*RAY, "--resume")
        assert result.code == 2
        assert "'rows' has parts and no manifest.json" in result.err
        Path("rows", "manifest.json").write_text(json.dumps({"schema": "other", "parts": []}))
        result = nanogpt(*RAY, "--resume")
        assert result.code == 2
        assert "'rows/manifest.json' is no manifest of a batch" in result.err
        assert part.read_text() == "mine\n"
