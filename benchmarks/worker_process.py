"""A worker seen from the harness: start, ask, close."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class WorkerError(Exception):
    """A worker answered with an error, or ended."""


class NotOfferedError(WorkerError):
    """An engine has no such variant."""


class Worker:
    """One running worker.

    Args:
        python: of the peer's environment.
        module: below `benchmarks.workers`.
        threads: that its libraries may use.
        log: where its stderr goes.
    """

    def __init__(self, python: Path, module: str, threads: int, log: Path) -> None:
        counts = dict.fromkeys(THREAD_VARIABLES, str(threads))
        self.log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [python, "-m", f"benchmarks.workers.{module}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=ROOT,
                env={**os.environ, **counts},
            )

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def ask(self, op: str, **job: object) -> dict[str, Any]:
        """Return the answer to one job.

        Raises:
            NotOfferedError: the engine has no such variant.
            WorkerError: the job failed, or the worker ended.
        """
        assert self._process.stdin is not None, "opened with a pipe"
        assert self._process.stdout is not None, "opened with a pipe"
        try:
            self._process.stdin.write(json.dumps({"op": op, **job}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: there is no line to read either
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            words = self.log.read_text(errors="replace").strip().splitlines()
            raise WorkerError(f"the worker ended with {code}: {words[-1] if words else ''}")
        answer: dict[str, Any] = json.loads(line)
        if "not_offered" in answer:
            raise NotOfferedError(answer["not_offered"])
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def close(self) -> None:
        """End the worker and wait for it."""
        assert self._process.stdin is not None, "opened with a pipe"
        assert self._process.stdout is not None, "opened with a pipe"
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
