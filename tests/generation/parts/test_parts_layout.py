"""How a cluster is shared out: nothing is given twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.parts.layout import Layout, Machine, lay_out

ASKED: dict[str, Any] = {
    "num_workers": None,
    "gpus_per_worker": None,
    "threads": None,
    "device": "auto",
}


@pytest.mark.parametrize(
    ("machines", "asked", "expected"),
    [
        ([(2, 0)], {}, Layout(1, 2, 0)),
        ([(2, 0)], {"num_workers": 2}, Layout(2, 1, 0)),
        ([(16, 0), (16, 0), (0, 0)], {}, Layout(2, 16, 0)),
        ([(16, 0), (8, 0)], {"num_workers": 3}, Layout(3, 8, 0)),
        ([(16, 0)], {"num_workers": 3}, Layout(3, 5, 0)),
        ([(16, 0)], {"num_workers": 3, "threads": 2}, Layout(3, 2, 0)),
        ([(16, 8)], {}, Layout(8, 1, 1)),
        ([(16, 8), (16, 8)], {"gpus_per_worker": 0.5}, Layout(32, 1, 0.5)),
        ([(16, 1)], {"gpus_per_worker": 0.1}, Layout(10, 1, 0.1)),
        ([(16, 8)], {"num_workers": 3, "device": "cuda"}, Layout(3, 1, 1)),
        ([(16, 8)], {"device": "cpu"}, Layout(1, 16, 0)),
        ([(16, 8)], {"gpus_per_worker": 0}, Layout(1, 16, 0)),
    ],
)
def test_layouts(machines: list[tuple[int, int]], asked: dict[str, Any], expected: Layout) -> None:
    assert lay_out([Machine(*machine) for machine in machines], **{**ASKED, **asked}) == expected


@pytest.mark.parametrize(
    ("machines", "asked", "message"),
    [
        ([(2, 0)], {"num_workers": 3}, "--num-workers 3: the cluster has CPUs for 2"),
        ([(4, 0)], {"num_workers": 3, "threads": 2}, "--num-workers 3: the cluster has CPUs for 2"),
        ([(4, 0)], {"threads": 8}, "the cluster has no CPUs for a worker"),
        ([(4, 2)], {"num_workers": 3}, "--num-workers 3: the cluster has GPUs for 2"),
        ([(4, 0)], {"gpus_per_worker": 1}, "--gpus-per-worker 1: the cluster has no GPU"),
        ([(4, 0)], {"device": "cuda"}, "--device cuda: the cluster has no GPU for it"),
        ([], {}, "the cluster has no CPUs for a worker"),
    ],
)
def test_more_than_there_is(
    machines: list[tuple[int, int]], asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        lay_out([Machine(*machine) for machine in machines], **{**ASKED, **asked})
    assert caught.value.message == message


@given(st.lists(st.integers(1, 64), min_size=1, max_size=8), st.integers(1, 600))
def test_no_cpu_is_given_twice_and_none_is_wasted(cpus: list[int], workers: int) -> None:
    machines = [Machine(count, 0) for count in cpus]
    if workers > sum(cpus):
        with pytest.raises(UsageError):
            lay_out(machines, **{**ASKED, "num_workers": workers})
        return
    threads = lay_out(machines, **{**ASKED, "num_workers": workers}).threads
    assert sum(count // threads for count in cpus) >= workers
    assert sum(count // (threads + 1) for count in cpus) < workers
