"""How many workers a cluster gets, and what each is given. Arithmetic, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nanogpt_cli.errors import UsageError


@dataclass(frozen=True)
class Machine:
    """One machine of a cluster, as far as it may be used."""

    cpus: int
    gpus: int


@dataclass(frozen=True)
class Layout:
    """What runs.

    Args:
        workers: how many, each with a model of its own.
        threads: CPUs of each.
        gpus: of each; 0 to compute on CPUs.
    """

    workers: int
    threads: int
    gpus: float


def lay_out(
    machines: Sequence[Machine],
    *,
    num_workers: int | None,
    gpus_per_worker: float | None,
    threads: int | None,
    device: str,
) -> Layout:
    """Return the layout that a user asks for, with no CPU and no GPU given twice.

    Args:
        machines: of the cluster, now.
        num_workers: None for one a GPU, or one a machine.
        gpus_per_worker: None for 1 where there are GPUs, else 0.
        threads: CPUs of each worker; None for as many as there are for each.
        device: "auto", "cpu" or "cuda".

    Raises:
        UsageError: more than the cluster has.
    """
    has_gpus = any(machine.gpus for machine in machines)
    gpus = gpus_per_worker
    if gpus is None:
        gpus = 1.0 if has_gpus and device != "cpu" else 0.0
    if gpus > 0 and not has_gpus:
        raise UsageError(
            f"--gpus-per-worker {gpus:g}: the cluster has no GPU", hint="leave it out for CPUs"
        )
    if device == "cuda" and gpus == 0:
        raise UsageError("--device cuda: the cluster has no GPU for it", hint="use --device cpu")
    if gpus > 0:
        room = sum(int(machine.gpus / gpus) for machine in machines)
        return Layout(_fit(num_workers, room, room, "GPUs"), threads or 1, gpus)
    usable = [machine for machine in machines if machine.cpus]
    cpus = sum(machine.cpus // (threads or 1) for machine in usable)
    workers = _fit(num_workers, len(usable), cpus, "CPUs")
    return Layout(workers, threads or _share(usable, workers), 0.0)


def _fit(asked: int | None, usual: int, most: int, kind: str) -> int:
    workers = usual if asked is None else asked
    if max(workers, 1) > most:
        raise UsageError(
            f"--num-workers {workers}: the cluster has {kind} for {most}"
            if asked is not None
            else f"the cluster has no {kind} for a worker",
            hint="give fewer workers, or less to each" if asked is not None else None,
        )
    return workers


def _share(machines: Sequence[Machine], workers: int) -> int:
    """Return the most CPUs that each of so many workers can have."""
    most = max(machine.cpus for machine in machines)
    return next(
        share
        for share in range(most, 0, -1)
        if sum(machine.cpus // share for machine in machines) >= workers
    )
