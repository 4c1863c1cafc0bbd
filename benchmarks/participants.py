"""A variant at work: its files made, its worker started, its jobs run."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.variants import PEERS, Variant
from benchmarks.venvs import ensure_venv, fingerprint
from benchmarks.worker_process import Worker

WARM_TOKENS = 4


@dataclass(frozen=True)
class Place:
    """Where things are.

    Args:
        model: the folder of random_model.py.
        venvs: the folder of the peers' environments.
        logs: the folder of the workers' stderr.
        threads: of every engine.
        here: run transformers in this environment, too.
    """

    model: Path
    venvs: Path
    logs: Path
    threads: int
    here: bool = False


class Participant:
    """One variant's worker, made ready.

    Args:
        variant: what runs.
        place: where.

    Raises:
        InstallError, NotOfferedError, WorkerError: it cannot take part.
    """

    def __init__(self, variant: Variant, place: Place) -> None:
        self.variant, self.place = variant, place
        peer = PEERS[variant.peer]
        here = place.here and variant.peer == "hf"
        self.python = ensure_venv(place.venvs, variant.peer, PEERS["ours"] if here else peer)
        self.convert_seconds = self._prepare()
        self.worker: Worker | None = None
        self.start_seconds = 0.0
        self.version = ""
        self.start()

    def _prepare(self) -> float:
        """Return what it took to write the peer's own files, now or in an earlier run."""
        variant, peer = self.variant, PEERS[self.variant.peer]
        if peer.files == "as it is":
            return 0.0
        kind = f"-{variant.dtype}" if peer.files == "by dtype" else ""
        receipt = self.place.model / f"{variant.peer}{kind}.json"
        wanted = fingerprint(peer)
        if receipt.is_file():
            written: dict[str, Any] = json.loads(receipt.read_text())
            if written["fingerprint"] == wanted:
                return float(written["seconds"])
        worker, start = self._spawn(), time.perf_counter()
        try:
            worker.ask("prepare", model=str(self.place.model), dtype=variant.dtype)
        finally:
            worker.close()
        seconds = time.perf_counter() - start
        receipt.write_text(json.dumps({"fingerprint": wanted, "seconds": seconds}))
        return seconds

    def _spawn(self) -> Worker:
        peer = PEERS[self.variant.peer]
        log = self.place.logs / f"{self.variant.name.replace('/', '-')}.log"
        return Worker(self.python, peer.module, self.place.threads, log)

    def start(self) -> None:
        """Start the worker and load the model."""
        begun = time.perf_counter()
        self.worker = self._spawn()
        try:
            answer = self.worker.ask(
                "load",
                model=str(self.place.model),
                dtype=self.variant.dtype,
                threads=self.place.threads,
                **self.variant.options,
            )
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.perf_counter() - begun
        self.version = answer["version"]

    def ready(self, prompts: list[list[int]]) -> Worker:
        """Return the worker; one that was closed is started and warmed first."""
        if self.worker is None:
            self.start()
            self.generate(prompts, WARM_TOKENS)
        assert self.worker is not None, "started above"
        return self.worker

    def generate(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        """Return the ids and times of one job."""
        assert self.worker is not None, "started by __init__ or ready"
        return self.worker.ask("generate", prompts=prompts, new_tokens=new_tokens)

    def call(self, name: str, *arguments: object) -> Any:
        """Return what a method of the worker's engine returns."""
        assert self.worker is not None, "only ever called on a running worker"
        return self.worker.ask("call", name=name, arguments=arguments)["result"]

    def close(self) -> None:
        """End the worker; it may be started again."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None
