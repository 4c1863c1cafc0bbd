"""Ours: the one place that knows how the engine of `nanogpt_cli` is called.

A variant whose options the engine does not take is left out and said to be, instead of being
timed as something else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.workers.protocol import Clock, Ids, NotOfferedError, serve
from nanogpt_cli import __version__
from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.generation.devices import use_threads
from nanogpt_cli.generation.engine import Engine, Request
from nanogpt_cli.generation.session import Session
from nanogpt_cli.sampling.draws import Draws
from nanogpt_cli.sampling.sampler import Sampler

SEED = 1337


class Ours:
    """A session's model in our engine, greedy, without filters or end-of-text."""

    def __init__(self, model: Path, dtype: str, threads: int, **options: Any) -> None:
        use_threads(threads)
        self.version = f"nanogpt-cli {__version__}, torch {torch.__version__}"
        known = {"dtype": dtype, "device": "cpu", "tokenizer": "ids", **options}
        unknown = sorted(set(options) - {*_parameters(Session), *_parameters(Engine)})
        if unknown:
            raise NotOfferedError(f"neither Session nor Engine takes {', '.join(unknown)}")
        session = Session(open_checkpoint(str(model / "ckpt.pt")), **_accepted(Session, known))
        self.engine = Engine(session.load(), **_accepted(Engine, options))
        self.sampler = Sampler((), greedy=True, forbidden=None)

    def generate(self, prompts: Ids, new_tokens: int, clock: Clock) -> Ids:
        """Serve all prompts side by side."""
        requests = [
            Request(row, tuple(prompt), Draws(SEED, prompt, 0))
            for row, prompt in enumerate(prompts)
        ]
        made: Ids = [[] for _ in prompts]
        for token in self.engine.generate(requests, self.sampler, max_new_tokens=new_tokens):
            if token.id is not None:
                clock.token(token.index)
                made[token.index].append(token.id)
        return made


def _parameters(callee: Callable[..., object]) -> set[str]:
    return set(inspect.signature(callee).parameters)


def _accepted(callee: Callable[..., object], options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in _parameters(callee)}


if __name__ == "__main__":
    serve(Ours)
