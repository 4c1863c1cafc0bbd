"""Whether a text's ids depend on what shares its batch: the same requests, differently crowded.

    python -m benchmarks.invariance --tokens 1000000

Every text is sampled in each of several arrangements of the same requests: how many side by side,
and in which order they come. The ids must be the same in all. Exits 1 at the first that are not.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from nanogpt_cli.generation.engine import Engine, Request
from nanogpt_cli.generation.steps.choose import StepChoice, make_step
from nanogpt_cli.model import GPT, GPTConfig
from nanogpt_cli.sampling import build_filters
from nanogpt_cli.sampling.draws import Draws
from nanogpt_cli.sampling.sampler import Sampler

NEW_TOKENS = 64
SHAPE = {"n_layer": 3, "n_head": 4, "n_embd": 128, "block_size": 128, "vocab_size": 5000}


def build_model() -> GPT:
    """Return a model with many near-ties: its weights are small, its logits near each other."""
    torch.manual_seed(1)
    return GPT(GPTConfig(**SHAPE)).eval()  # type: ignore[arg-type]


def digests(
    engine: Engine, prompts: Sequence[list[int]], order: Sequence[int], batch_size: int
) -> list[str]:
    """Return a digest of each prompt's sampled ids, made in an order, so many side by side."""
    requests = (Request(i, prompts[i], Draws(1337, prompts[i], i)) for i in order)
    texts: list[list[int]] = [[] for _ in prompts]
    sampler = Sampler(build_filters({"temperature": 1.0, "top_k": 200}))
    for token in engine.generate(
        requests, sampler, max_new_tokens=NEW_TOKENS, batch_size=batch_size
    ):
        if token.id is not None:
            texts[token.index].append(token.id)
    return [hashlib.sha256(repr(text).encode()).hexdigest() for text in texts]


def main() -> int:
    """Compare the arrangements; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="in all arrangements")
    parser.add_argument("--no-compile", action="store_true", help="see torch's products differ")
    asked = parser.parse_args()
    arrangements = [(1, False), (3, True), (8, False), (13, True), (64, False)]
    count = -(-asked.tokens // NEW_TOKENS // len(arrangements))
    generator = random.Random(7)
    prompts = [
        [generator.randrange(5000) for _ in range(generator.choice([1, 2, 9, 60, 63]))]
        for _ in range(count)
    ]
    with tempfile.TemporaryDirectory() as folder:
        choice = StepChoice(compile=not asked.no_compile, folder=Path(folder))
        step, notes = make_step(build_model(), torch.float32, choice, float("inf"))
    print(*notes, step.name, sep="\n")
    engine = Engine(build_model(), step)
    first: list[str] = []
    for batch_size, shuffled in arrangements:
        order = list(range(count))
        if shuffled:
            generator.shuffle(order)
        started = time.perf_counter()
        found = digests(engine, prompts, order, batch_size)
        first = first or found
        differ = sum(one != other for one, other in zip(first, found, strict=True))
        rate = count * NEW_TOKENS / (time.perf_counter() - started)
        print(f"batch {batch_size:>3}: {differ} of {count} texts differ, {rate:,.0f} tokens/s")
        if differ:
            return 1
    print(f"{len(arrangements) * count * NEW_TOKENS:,} tokens, all as they are alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
