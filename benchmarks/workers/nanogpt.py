"""nanoGPT's own loop: `GPT.generate`, which runs the whole window for every token.

It is the reference of all ids, and answers how near a tie two ids are.
"""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from benchmarks.workers.protocol import Clock, Ids, serve
from nanogpt_cli.checkpoints import load_model, open_checkpoint


class NanoGPT:
    """The plain model."""

    def __init__(self, model: Path, dtype: str, threads: int) -> None:
        assert dtype == "float32", "the loop is timed in float32 alone"
        torch.set_num_threads(threads)
        self.version = (
            f"GPT.generate, torch {torch.__version__}, Python {platform.python_version()}"
        )
        self.model = load_model(open_checkpoint(str(model / "ckpt.pt"))).eval()

    def generate(self, prompts: Ids, new_tokens: int, clock: Clock) -> Ids:
        """Continue row after row where lengths differ, else all at once."""
        if len(set(map(len, prompts))) == 1:
            return self._generate(prompts, new_tokens, clock, range(len(prompts)))
        return [
            self._generate([prompt], new_tokens, clock, range(row, row + 1))[0]
            for row, prompt in enumerate(prompts)
        ]

    def _generate(self, prompts: Ids, new_tokens: int, clock: Clock, rows: range) -> Ids:
        idx = torch.tensor(prompts)
        for _ in range(new_tokens):
            idx = self.model.generate(idx, 1, temperature=0)
            for row in rows:
                clock.token(row)
        new: Ids = idx[:, -new_tokens:].tolist()
        return new

    @torch.no_grad()
    def logit_gap(self, ids: list[int], one: int, other: int) -> float:
        """Return how much more likely, in logits, `one` is than `other` after `ids`."""
        window = torch.tensor([ids[-self.model.config.block_size :]])
        logits = self.model(window)[0][0, -1].double()
        return float(logits[one] - logits[other])


if __name__ == "__main__":
    serve(NanoGPT)
