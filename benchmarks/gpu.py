"""The CUDA step: first that it is right, then how fast it is beside transformers.

`benchmarks/gpu.sh` runs it on a GPU; `--device cpu --shapes tiny` runs every line but the capture.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from nanogpt_cli.config import PRESETS
from nanogpt_cli.generation.bench import BenchRow, measure_step
from nanogpt_cli.generation.bench_plan import BenchPlan
from nanogpt_cli.generation.engine import Engine, Request
from nanogpt_cli.generation.steps.base import Step
from nanogpt_cli.generation.steps.eager import EagerStep
from nanogpt_cli.generation.steps.graphed import GraphedStep
from nanogpt_cli.generation.steps.reading import Reading, settle
from nanogpt_cli.generation.steps.weights import store_weights
from nanogpt_cli.model import GPT, GPTConfig
from nanogpt_cli.sampling import build_filters
from nanogpt_cli.sampling.draws import Draws
from nanogpt_cli.sampling.sampler import Sampler

TINY = {"n_layer": 2, "n_head": 3, "n_embd": 48, "vocab_size": 211, "block_size": 64}
SHAPES: dict[str, dict[str, int]] = {"tiny": TINY, **PRESETS}


def build(shape: str, seed: int = 0) -> GPT:
    """Return a model with random weights, large enough that its choices are no near-ties."""
    torch.manual_seed(seed)
    model = GPT(build_config(shape)).eval()
    if shape == "tiny":
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


def complete(
    model: GPT, step: Step[Any], prompts: list[list[int]], sampler: Sampler
) -> list[list[int]]:
    """Return the new ids of prompts made side by side."""
    texts: list[list[int]] = [[] for _ in prompts]
    requests = [Request(i, prompt, Draws(1, prompt, i)) for i, prompt in enumerate(prompts)]
    for token in Engine(model, step).generate(requests, sampler, max_new_tokens=90):
        if token.id is not None:
            texts[token.index].append(token.id)
    return texts


def check(device: torch.device) -> dict[str, Any]:
    """Hold the step to the plain loop, through block_size and past it; return what was seen."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model = build("tiny")
    prompts = [torch.randint(0, 211, (n,)).tolist() for n in (1, 5, 40, 63, 64, 150, 7, 7, 7)]
    expected = [
        model.generate(torch.tensor([prompt]), 90, temperature=0)[0, len(prompt) :].tolist()
        for prompt in prompts
    ]
    moved = build("tiny").to(device)
    step = GraphedStep(store_weights(moved, "float32"), torch.float32)
    if complete(moved, step, prompts, Sampler(greedy=True)) != expected:
        raise SystemExit("the greedy ids are not those of GPT.generate: no figure is worth a look")
    sampler = Sampler(build_filters({"temperature": 1.2, "top_k": 50, "top_p": 0.95}))
    sampled = complete(moved, step, prompts, sampler)
    host = complete(model, EagerStep(store_weights(model, "float32")), prompts, sampler)
    same = sum(one == other for one, other in zip(sampled, host, strict=True))
    return {"greedy_ids": "equal", "sampled_texts_equal_to_cpu": f"{same} of {len(prompts)}"}


def time_transformers(shape: str, dtype: torch.dtype, plan: BenchPlan, device: torch.device) -> Any:
    """Return transformers' decode tokens/s at batch 1, greedy, or why there are none."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError as error:
        return str(error)
    c = build_config(shape)
    config = GPT2Config(
        n_layer=c.n_layer, n_head=c.n_head, n_embd=c.n_embd, vocab_size=c.vocab_size,
        n_positions=c.block_size, bos_token_id=0, eos_token_id=None,
    )  # fmt: skip
    model: Any = GPT2LMHeadModel(config)
    model = model.eval().to(device=device, dtype=dtype)
    idx = torch.randint(0, c.vocab_size, (1, plan.prompt_tokens), device=device)
    rates = []
    for round in range(plan.rounds + 1):
        seconds = []
        for new in (1, plan.new_tokens):
            started = settle(device)
            with torch.inference_mode():
                model.generate(idx, max_new_tokens=new, min_new_tokens=new, do_sample=False)
            seconds.append(settle(device) - started)
        if round:
            rates.append((plan.new_tokens - 1) / (seconds[1] - seconds[0]))
    return statistics.median(rates)


def build_config(shape: str) -> GPTConfig:
    """Return the config that `build` uses."""
    sizes: dict[str, Any] = {"vocab_size": 50257, **SHAPES[shape]}
    return GPTConfig(**sizes)


def measure(shape: str, device: torch.device, plan: BenchPlan) -> list[BenchRow]:
    """Return rows of one shape: captured, uncaptured and int8, at each batch size."""
    narrow = torch.float32 if device.type == "cpu" else torch.bfloat16
    model = build(shape).to(device)
    memory, rows = Reading(device), []
    name = str(narrow).removeprefix("torch.")
    for kind, stored in (("graphed", name), ("eager", name), ("graphed", "int8")):
        weights = store_weights(model, stored)
        step: Step[Any] = (
            GraphedStep(weights, narrow) if kind == "graphed" else EagerStep(weights, narrow)
        )
        sizes = plan.batch_sizes if kind == "graphed" else plan.batch_sizes[:1]
        for size in sizes:
            rows.append(measure_step(step, stored, size, plan, memory))
            print(shape, rows[-1], flush=True)
        del step, weights
    return rows


def main() -> int:
    """Check, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["gpt2", "gpt2-xl"])
    parser.add_argument("--json", type=Path, default=Path("gpu.json"))
    asked = parser.parse_args()
    device, started = torch.device(asked.device), time.time()
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "card": card,
        "torch": torch.__version__,
        "checks": check(device),
    }
    print(found, flush=True)
    for shape in asked.shapes:
        block = build_config(shape).block_size
        plan = BenchPlan(("any",), (1, 8, 32), min(512, block // 2), min(128, block // 4), 3)
        rows = measure(shape, device, plan)
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        theirs = time_transformers(shape, dtype, replace(plan, rounds=2), device)
        print(shape, "transformers, batch 1, tokens/s:", theirs, flush=True)
        found[shape] = {"rows": [asdict(row) for row in rows], "transformers": theirs}
        asked.json.write_text(json.dumps(found, indent=1))
    print(f"{time.time() - started:.0f} s in all; figures in {asked.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
