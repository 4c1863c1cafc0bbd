"""A batch on Ray: a cluster to run on, and Ray Data to hand parts to workers. Imports Ray."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import ray
import ray.data
from ray.exceptions import RayError

from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.batch.samples import SampleRow
from nanogpt_cli.generation.devices import choose_device, choose_dtype
from nanogpt_cli.generation.parts.job import PartReport, PartsJob, read_report
from nanogpt_cli.generation.parts.layout import Layout, Machine
from nanogpt_cli.generation.parts.plan import Part
from nanogpt_cli.generation.parts.worker import PartWorker

STDERR = 2

STORE_BYTES = 128 << 20
"""Of memory that a cluster of our own shares: what passes through it is small."""

TALKATIVE = ("ray.data._internal.progress", "ray._private.authentication")
"""Loggers that warn of what is as it should be."""


@contextlib.contextmanager
def connect(address: str | None) -> Iterator[list[Machine]]:
    """Connect to a cluster for the block, or start one on this machine; give its machines.

    Args:
        address: of a running cluster, or None.

    Raises:
        NanoGPTError: no cluster at that address.
    """
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
    own: dict[str, Any] = {"include_dashboard": False, "object_store_memory": STORE_BYTES}
    try:
        with _without(b"Set ray log level from environment"):
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level=logging.WARNING,
                **({} if address else own),
            )
    except (RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f"at RAY_ADDRESS={address!r}" if address else "on this machine"
        raise NanoGPTError(
            f"no Ray cluster {where}: {_first_line(error)}",
            hint="ray status shows what runs; where tokens are in use an address other than auto "
            "needs RAY_AUTH_MODE=token; without RAY_ADDRESS a cluster is started here"
            if address
            else None,
        ) from error
    try:
        yield [
            Machine(int(node["Resources"].get("CPU", 0)), int(node["Resources"].get("GPU", 0)))
            for node in ray.nodes()
            if node["Alive"]
        ]
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _without(words: bytes) -> Iterator[None]:
    """Hold back what the block writes to stderr, below Python too; then give all but some lines."""
    with tempfile.TemporaryFile() as held:
        kept = os.dup(STDERR)
        os.dup2(held.fileno(), STDERR)
        try:
            yield
        finally:
            os.dup2(kept, STDERR)
            held.seek(0)
            os.write(kept, b"".join(line for line in held if words not in line))
            os.close(kept)


def ask_dtype(layout: Layout) -> str:
    """Return what "auto" is on the cluster's GPUs.

    Raises:
        NanoGPTError: a worker cannot be started.
    """
    asked = ray.remote(num_cpus=0, num_gpus=layout.gpus)(_usual_dtype)
    with _telling():
        answer: str = ray.get(asked.remote())
    return answer


def _usual_dtype() -> str:
    return str(choose_dtype("auto", choose_device("cuda"))).removeprefix("torch.")


def run_parts(
    job: PartsJob,
    parts: Sequence[Part],
    there: set[str],
    layout: Layout,
    spell: Callable[[SampleRow], str],
) -> Iterator[PartReport]:
    """Have parts made, and give their reports as they come: in any order.

    A worker that is killed is started again, and its part is made again: the same bytes in the
    same file.

    Args:
        job: what to do.
        parts: all of them; those that are there and right are kept by the workers.
        there: names of parts that the output has.
        layout: the workers.
        spell: a row as a line; sent to the workers, so a function of a module.

    Raises:
        NanoGPTError: what a worker meets that no other attempt would mend.
    """
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    items = [{**asdict(part), "there": part.name in there} for part in parts]
    with _telling():
        reports = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            PartWorker,
            fn_constructor_args=(job, spell),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(layout.workers, len(items))),
            num_cpus=layout.threads if layout.gpus == 0 else 1,
            num_gpus=layout.gpus or None,
        )
        for row in reports.iter_rows():
            yield read_report(row["report"])


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except RayError as error:
        raise NanoGPTError(
            f"a worker failed: {_first_line(error.__cause__ or error)}",
            hint="every machine needs the same nanogpt-cli[ray], Python and torch; "
            "--resume goes on with the parts that are there",
        ) from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
