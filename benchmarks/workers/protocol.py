"""What every worker has in common: jobs in and answers out, a JSON object a line each.

Standard library only: it runs in every peer's environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

Ids = list[list[int]]


class Clock:
    """When a job's tokens came, in seconds from its start.

    Args:
        rows: how many prompts the job has.
        now: a clock in seconds.
    """

    def __init__(self, rows: int, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._seen = [0] * rows
        self._waiting = rows
        self._started = now()
        self.first_seconds: float | None = None
        self.tokens_at_first = 0

    def token(self, row: int) -> None:
        """Note that a row got a token."""
        self._seen[row] += 1
        if self._seen[row] == 1:
            self._waiting -= 1
            if self._waiting == 0:
                self.first_seconds = self._now() - self._started
                self.tokens_at_first = sum(self._seen)

    def step(self) -> None:
        """Note that every row got a token."""
        for row in range(len(self._seen)):
            self.token(row)

    def stop(self, tokens: int) -> dict[str, float | None]:
        """Return the job's times; `tokens` are all it made.

        Decoding is what follows the moment at which the last row has its first token.
        """
        total = self._now() - self._started
        left = tokens - self.tokens_at_first
        timed = self.first_seconds is not None and left > 0
        return {
            "first_token_seconds": self.first_seconds,
            "total_seconds": total,
            "decode_tokens_per_second": left / (total - (self.first_seconds or 0.0))
            if timed
            else None,
        }


class NotOfferedError(Exception):
    """An engine has no such variant: it is left out, which is no fault."""


class Engine(Protocol):
    """A loaded model."""

    version: str
    """The library's name and version, as people would quote them."""

    def generate(self, prompts: Ids, new_tokens: int, clock: Clock) -> Ids:
        """Continue each prompt greedily by exactly `new_tokens` ids, and return those."""


Opener = Callable[..., Engine]
"""From the model's folder, `dtype`, `threads` and a variant's options to a loaded engine."""

Preparer = Callable[[Path, str], None]
"""Writes the peer's own file for (model, dtype); none where it reads the model as it is."""


def serve(open_engine: Opener, prepare: Preparer | None = None) -> None:
    """Answer jobs until stdin ends."""
    answers = _take_stdout()
    engine: Engine | None = None
    for line in sys.stdin:
        job: dict[str, Any] = json.loads(line)
        op, answer = job.pop("op"), {}
        try:
            if op == "prepare" and prepare is not None:
                prepare(Path(job["model"]), job["dtype"])
            elif op == "load":
                engine = open_engine(Path(job.pop("model")), **job)
                answer = {"version": engine.version}
            elif op == "generate":
                assert engine is not None, "a model is loaded before it generates"
                answer = _generate(engine, job["prompts"], job["new_tokens"])
            elif op == "call":
                answer = {"result": getattr(engine, job["name"])(*job["arguments"])}
        except NotOfferedError as error:
            answer = {"not_offered": str(error)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps({**answer, **read_memory()}) + "\n")
        answers.flush()


def _generate(engine: Engine, prompts: Ids, new_tokens: int) -> dict[str, Any]:
    clock = Clock(len(prompts))
    ids = engine.generate(prompts, new_tokens, clock)
    return {**clock.stop(sum(map(len, ids))), "ids": ids}


def _take_stdout() -> IO[str]:
    """Keep stdout for the answers: what a library prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def read_memory(status: Path = Path("/proc/self/status")) -> dict[str, int]:
    """Return this process's peak resident bytes and its anonymous ones now; {} off Linux."""
    if not status.is_file():
        return {}
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    names = {"peak_bytes": "VmHWM", "anonymous_bytes": "RssAnon"}
    return {ours: int(fields[theirs].split()[0]) * 1024 for ours, theirs in names.items()}


def pad_left(prompts: Sequence[Sequence[int]]) -> tuple[Ids, Ids]:
    """Return the prompts in rows of one length, and a mask with 0 at the padding before them."""
    longest = max(map(len, prompts))
    gaps = [longest - len(prompt) for prompt in prompts]
    rows = [[0] * gap + list(prompt) for gap, prompt in zip(gaps, prompts, strict=True)]
    return rows, [[0] * gap + [1] * (longest - gap) for gap in gaps]
