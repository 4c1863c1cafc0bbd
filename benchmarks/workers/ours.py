"""Ours: the one place that knows how the engine of `nanogpt_cli` is called.

A variant that the engine does not offer is left out and said to be, instead of being timed as
something else.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch

from benchmarks.workers.protocol import Clock, Ids, NotOfferedError, serve
from nanogpt_cli import __version__
from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.generation.devices import use_threads
from nanogpt_cli.generation.engine import Request
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.steps.choose import StepChoice
from nanogpt_cli.sampling.draws import Draws

SEED = 1337


class Ours:
    """A session, greedy, without filters or end-of-text.

    Args:
        model: the folder with `ckpt.pt`.
        dtype: of the weights, "int8" for the quantized ones.
        threads: of the CPU.
        options: further arguments of StepChoice; without a `folder` what is compiled is compiled
            anew, so that its cost is part of the first use.
    """

    def __init__(self, model: Path, dtype: str, threads: int, **options: Any) -> None:
        use_threads(threads)
        self.version = f"nanogpt-cli {__version__}, torch {torch.__version__}"
        quantized = dtype == "int8"
        wanted = {"threads": threads, **options, **({"quantize": dtype} if quantized else {})}
        if "folder" in wanted:
            wanted["folder"] = Path(wanted["folder"])
        if unknown := sorted(set(wanted) - set(inspect.signature(StepChoice).parameters)):
            raise NotOfferedError(f"StepChoice takes no {', '.join(unknown)}")
        self.notes: list[str] = []
        self.session = Session(
            open_checkpoint(str(model / "ckpt.pt")),
            tokenizer="ids",
            device="cpu",
            dtype="float32" if quantized else dtype,
            choice=StepChoice(**wanted),
            notify=self.notes.append,
        )
        self.session.prepare()
        if options.get("compile") is True and self.session.engine.step.name != "compiled":
            raise NotOfferedError("; ".join(self.notes) or "the step is not compiled")

    def generate(self, prompts: Ids, new_tokens: int, clock: Clock) -> Ids:
        """Serve all prompts side by side."""
        requests = [
            Request(row, tuple(prompt), Draws(SEED, prompt, 0))
            for row, prompt in enumerate(prompts)
        ]
        settings = SampleSettings(
            max_new_tokens=new_tokens,
            filters={"temperature": 0, "top_k": 0},
            ignore_eos=True,
        )
        made: Ids = [[] for _ in prompts]
        for token in self.session.generate(requests, settings, batch_size=len(prompts)):
            if token.id is not None:
                clock.token(token.index)
                made[token.index].append(token.id)
        return made


if __name__ == "__main__":
    serve(Ours)
