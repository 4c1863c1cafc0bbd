"""What a measurement makes of a clock's times: by a clock of our own, never how fast."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from model_files import save_meta, save_nanogpt
from step_models import build, make_step
from torch import Tensor

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.generation.bench import measure_step, run_bench
from nanogpt_cli.generation.bench_plan import BenchPlan
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.steps import reading
from nanogpt_cli.generation.steps.choose import StepChoice
from nanogpt_cli.generation.steps.eager import EagerStep
from nanogpt_cli.generation.steps.reading import Reading
from nanogpt_cli.generation.steps.weights import store_weights

CPU = torch.device("cpu")


def set_clock(monkeypatch: pytest.MonkeyPatch, *waits: float) -> None:
    """Let each look at the clock come so long after the one before."""
    times = itertools.accumulate(waits)
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))


def test_a_reading_is_all_bytes_over_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FLOATS", 1 << 10)
    set_clock(monkeypatch, 1, 2)
    assert Reading(CPU).measure(make_step("eager", build())) == 4096 / 2


@pytest.mark.parametrize("threads", [1, 2])
def test_a_library_reads_every_float(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    step: Any = make_step("compiled", build(), threads=threads)
    library, sums = step.library, []

    class Watched:
        def nanogpt_read(self, *args: Any) -> None:
            sums.append(library.nanogpt_read(*args))

    step.library = Watched()
    monkeypatch.setattr(reading, "FLOATS", 1 << 21)
    Reading(CPU).measure(step)
    assert sums == [1 << 21]


class Watched(EagerStep):
    """A step that remembers at which positions it was asked to decode."""

    asked: list[list[int]]

    def decode(self, ids: Tensor, positions: Sequence[int], caches: Any) -> Tensor:
        self.asked.append(list(positions))
        return super().decode(ids, positions, caches)


def test_a_row_is_medians_over_rounds_after_one_that_is_thrown_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "FLOATS", 1 << 10)
    step = Watched(store_weights(build(), "float32"))
    step.asked = []
    memory, plan = Reading(CPU), BenchPlan(("float32",), (2,), 4, 3, 2)
    thrown_away = (0, 50, 50)  # of prompts as long, and of one step
    slow = (0, 1, 0, 2, 5, 3, 0, 2)  # memory, the prompts and two steps, memory
    fast = (0, 1, 0, 6, 1, 1, 0, 1)
    set_clock(monkeypatch, *thrown_away, *slow, *fast)
    row = measure_step(step, "float32", 2, plan, memory)
    assert step.asked == [[4, 4], *([[4, 4], [5, 5]] * 2)]
    assert (row.first_token_seconds, row.step_seconds, row.spread) == (4.0, 2.5, 4.0)
    assert (row.prefill_tokens_per_second, row.decode_tokens_per_second) == (2 * 4 / 4, 2 / 2.5)
    limits = ((4096 + 2048) / 2, 4096)
    assert row.bandwidth_bytes_per_second == statistics.median(limits)
    shares = (row.read_bytes_per_step / s / limit for s, limit in zip((4, 1), limits, strict=True))
    assert row.share_of_limit == statistics.median(shares)


def test_a_report_has_the_users_threads_and_the_largest_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FLOATS", 1 << 10)
    set_clock(monkeypatch, *range(1000))
    checkpoint = open_checkpoint(str(save_nanogpt(tmp_path / "ckpt.pt", build(vocab_size=65))))
    save_meta(tmp_path)
    session = Session(checkpoint, choice=StepChoice(compile=False, threads=3))
    report = run_bench(session, BenchPlan(("float32",), (1, 2), 2, 2, 2))
    assert report.threads == 3
    first, second = report.rows
    assert first.spread > second.spread
    assert report.spread == first.spread
