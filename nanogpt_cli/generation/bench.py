"""How fast a model runs on this machine: prefill, first token, decode, and what memory allows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from nanogpt_cli.checkpoints import load_model
from nanogpt_cli.generation.bench_plan import BenchPlan
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.steps.base import Step
from nanogpt_cli.generation.steps.choose import QUANTIZATIONS, make_step
from nanogpt_cli.generation.steps.reading import Reading, settle

CACHED_BYTES = 4
SEED = 1337


@dataclass(frozen=True)
class BenchRow:
    """One number format at one batch size; medians over the rounds.

    Args:
        weights: "float32", "float16", "bfloat16" or "int8".
        step: what computed.
        prefill_tokens_per_second: over all prompts of the batch.
        first_token_seconds: until every prompt of the batch has its first token.
        decode_tokens_per_second: over all texts of the batch.
        read_bytes_per_step: weights, and keys and values at the middle of the texts.
        bandwidth_bytes_per_second: what memory gave between the rounds.
        share_of_limit: the step's bytes a second, of what the memory gave at the same time; above
            1 where caches hold part of it.
        spread: the slowest round's step over the fastest's.
    """

    weights: str
    batch_size: int
    step: str
    batch_invariant: bool
    prefill_tokens_per_second: float
    first_token_seconds: float
    decode_tokens_per_second: float
    step_seconds: float
    read_bytes_per_step: int
    bandwidth_bytes_per_second: float
    share_of_limit: float
    spread: float


@dataclass(frozen=True)
class BenchReport:
    """What a model does on this machine.

    Args:
        bandwidth_bytes_per_second: the median of the rows'.
        spread: the largest of the rows'.
    """

    schema: ClassVar[str] = "nanogpt.bench/1"

    checkpoint: str
    parameters: int
    device: str
    threads: int
    prompt_tokens: int
    new_tokens: int
    rounds: int
    bandwidth_bytes_per_second: float
    spread: float
    rows: list[BenchRow]


def run_bench(
    session: Session, plan: BenchPlan, progress: Callable[[str], None] = lambda _what: None
) -> BenchReport:
    """Measure a session's model.

    Args:
        session: whose device, threads and way of compiling are used; its dtype plays no part.
        progress: is told what is measured next.

    Raises:
        UsageError: texts longer than the model's context, or an unknown number format.
    """
    plan.require_room(session.config.block_size)
    plan.require_known_weights()
    model = load_model(session.checkpoint).eval()
    memory = Reading(session.device)
    rows = []
    for weights in plan.weights:
        quantized = weights in QUANTIZATIONS
        dtype = torch.float32 if quantized else getattr(torch, weights)
        if quantized and session.device.type == "cuda":
            dtype = session.dtype
        choice = replace(session.choice, quantize=weights if quantized else None)
        step, notes = make_step(model, dtype, choice, float("inf"), session.device)
        for note in notes:
            session.notify(note)
        for size in plan.batch_sizes:
            progress(f"{weights}, batch {size}")
            rows.append(measure_step(step, weights, size, plan, memory))
        del step  # before the next one's weights are made
    return BenchReport(
        checkpoint=session.checkpoint.located.given or str(session.checkpoint.located.path),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        device=str(session.device),
        threads=session.choice.threads or torch.get_num_threads(),
        prompt_tokens=plan.prompt_tokens,
        new_tokens=plan.new_tokens,
        rounds=plan.rounds,
        bandwidth_bytes_per_second=statistics.median(
            row.bandwidth_bytes_per_second for row in rows
        ),
        spread=max(row.spread for row in rows),
        rows=rows,
    )


def measure_step(
    step: Step[Any], weights: str, size: int, plan: BenchPlan, memory: Reading
) -> BenchRow:
    """Run the rounds of one row, each between two readings of memory."""
    rounds = []
    for prompts in _prompts(step, size, plan):
        before = memory.measure(step)
        first, step_seconds = _run_once(step, prompts, plan)
        limit = (before + memory.measure(step)) / 2
        rounds.append((first, step_seconds, limit))
    first, step_seconds = (statistics.median(r[i] for r in rounds) for i in (0, 1))
    steps = [seconds for _, seconds, _ in rounds]
    c = step.weights.config
    middle = plan.prompt_tokens + plan.new_tokens // 2
    read = step.weights.matrix_bytes + size * 2 * c.n_layer * c.n_embd * middle * CACHED_BYTES
    return BenchRow(
        weights=weights,
        batch_size=size,
        step=step.name,
        batch_invariant=step.batch_invariant,
        prefill_tokens_per_second=size * plan.prompt_tokens / first,
        first_token_seconds=first,
        decode_tokens_per_second=size / step_seconds,
        step_seconds=step_seconds,
        read_bytes_per_step=read,
        bandwidth_bytes_per_second=statistics.median(limit for *_, limit in rounds),
        spread=max(steps) / min(steps),
        share_of_limit=statistics.median(read / seconds / limit for _, seconds, limit in rounds),
    )


def _prompts(step: Step[Any], size: int, plan: BenchPlan) -> Iterator[list[list[int]]]:
    """Give each round its own random ids, after a first round that is thrown away."""
    generator = torch.Generator().manual_seed(SEED)
    shape = (size, plan.prompt_tokens)
    V = step.weights.config.vocab_size
    for round in range(plan.rounds + 1):
        prompts: list[list[int]] = torch.randint(V, shape, generator=generator).tolist()
        if round:
            yield prompts
        else:
            _run_once(step, prompts, replace(plan, new_tokens=2))


@torch.inference_mode()
def _run_once(
    step: Step[Any], prompts: Sequence[Sequence[int]], plan: BenchPlan
) -> tuple[float, float]:
    """Return the seconds to every first token, and the median seconds of a step."""
    length = plan.prompt_tokens
    caches = [step.open(length + plan.new_tokens) for _ in prompts]
    started = settle(step.device)
    ids = step.prefill(prompts, caches).argmax(dim=-1)
    ended = settle(step.device)
    first, steps = ended - started, []
    for position in range(length, length + plan.new_tokens - 1):
        ids = step.decode(ids, [position] * len(prompts), caches).argmax(dim=-1)
        started, ended = ended, settle(step.device)
        steps.append(ended - started)
    return first, statistics.median(steps)
