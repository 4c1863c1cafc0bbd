"""Models whose choices are no near-ties, and each kind of step over them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from conftest import CACHE

from nanogpt_cli.generation.engine import Engine, Request
from nanogpt_cli.generation.steps.base import Step
from nanogpt_cli.generation.steps.compiled import CompiledStep
from nanogpt_cli.generation.steps.eager import EagerStep
from nanogpt_cli.generation.steps.graphed import GraphedStep
from nanogpt_cli.generation.steps.library import load_library
from nanogpt_cli.generation.steps.weights import store_weights
from nanogpt_cli.model import GPT, GPTConfig
from nanogpt_cli.sampling.draws import Draws
from nanogpt_cli.sampling.sampler import Sampler

STEPS = ("eager", "compiled", "graphed")


def build(seed: int = 0, **sizes: Any) -> GPT:
    """A model whose weights are large enough that its choices are no near-ties."""
    defaults = {"block_size": 12, "vocab_size": 31, "n_layer": 2, "n_head": 3, "n_embd": 24}
    torch.manual_seed(seed)
    model = GPT(GPTConfig(**{**defaults, **sizes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


@functools.cache
def library() -> Any:
    """The compiled step's library, built once for all tests."""
    built, note = load_library(Path(CACHE.name, "nanogpt"), build=True)
    assert built is not None, note
    return built


def make_step(kind: str, model: GPT, stored: str = "float32", threads: int = 1) -> Step[Any]:
    weights = store_weights(model, stored)
    if kind == "eager":
        return EagerStep(weights)
    if kind == "graphed":
        return GraphedStep(weights, torch.float32)
    return CompiledStep(weights, library(), threads)


def complete(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    sampler: Sampler,
    seed: int = 0,
    **options: Any,
) -> list[list[int]]:
    """Return the new ids of each prompt, made side by side."""
    requests = [Request(i, prompt, Draws(seed, prompt, i)) for i, prompt in enumerate(prompts)]
    texts: list[list[int]] = [[] for _ in prompts]
    for token in engine.generate(requests, sampler, **options):
        if token.id is not None:
            texts[token.index].append(token.id)
    return texts
