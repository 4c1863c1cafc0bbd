"""What a model costs, from its configuration alone: parameters, bytes, FLOPs, days.

Arithmetic on a GPTConfig. Nothing is loaded, fetched or measured; standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nanogpt_cli.accounting.compute import FlopsReport, count_flops
from nanogpt_cli.accounting.memory import (
    CacheReport,
    MemoryReport,
    StoredBytes,
    measure_cache,
    measure_memory,
)
from nanogpt_cli.accounting.parameters import (
    RULES,
    Breakdown,
    DecaySplit,
    ParameterCounts,
    break_down,
    count_parameters,
    count_tensors,
    split_by_decay,
)
from nanogpt_cli.accounting.published import (
    GPT2_VOCAB_SIZE,
    KNOWN_NAMES,
    count_padding_rows,
    find_known_config,
    find_published,
)
from nanogpt_cli.accounting.workload import (
    PEAKS,
    Hardware,
    StepReport,
    TrainingReport,
    Workload,
    estimate_training,
    find_gpu,
    name_hardware,
    rate_step,
)
from nanogpt_cli.config import GPTConfig

__all__ = [
    "GPT2_VOCAB_SIZE",
    "KNOWN_NAMES",
    "PEAKS",
    "RULES",
    "Breakdown",
    "CacheReport",
    "DecaySplit",
    "FlopsReport",
    "Hardware",
    "MemoryReport",
    "ModelReport",
    "ParameterCounts",
    "Sizes",
    "StepReport",
    "StoredBytes",
    "TrainingReport",
    "Workload",
    "account",
    "break_down",
    "count_flops",
    "count_padding_rows",
    "count_parameters",
    "count_tensors",
    "estimate_training",
    "find_gpu",
    "find_known_config",
    "find_published",
    "measure_cache",
    "measure_memory",
    "name_hardware",
    "rate_step",
    "split_by_decay",
]


@dataclass(frozen=True)
class Sizes:
    """The part of a GPTConfig that figures rest on; `n_head` is None where it is not known."""

    n_layer: int
    n_head: int | None
    n_embd: int
    block_size: int
    vocab_size: int
    bias: bool
    tied_head: bool
    activation: str


@dataclass(frozen=True)
class ModelReport:
    """Everything that can be said of a model without its weights.

    Args:
        name: as the user gave it.
        config: its sizes.
        published_as: OpenAI's name for a model of these counts, or None.
        published_labels: the sizes it was published under, today's first; empty if not.
        parameters: by each rule.
        breakdown: where they are.
        decay: which of them weight decay touches.
        state_dict_tensors: in a state dict, the head included.
        memory: bytes of weights, optimizer, masks.
        kv_cache: bytes of the cache.
        flops: for one full sequence.
        padding_rows: rows of wte that pad GPT-2's vocabulary; None for another vocabulary.
        untrained_loss_nats_per_token: ln V.
        changed: fields of config that flags set beside the name.
        stored: what its file holds, or None without a file.
        step: throughput and MFU of a measured step, or None.
        training: the cost of training on a number of tokens, or None.
    """

    name: str
    config: Sizes
    published_as: str | None
    published_labels: tuple[str, ...]
    parameters: ParameterCounts
    breakdown: Breakdown
    decay: DecaySplit
    state_dict_tensors: int
    memory: MemoryReport
    kv_cache: CacheReport
    flops: FlopsReport
    padding_rows: int | None
    untrained_loss_nats_per_token: float
    changed: tuple[str, ...] = ()
    stored: StoredBytes | None = None
    step: StepReport | None = None
    training: TrainingReport | None = None

    def __post_init__(self) -> None:
        total, split = self.parameters.total, self.decay
        parts = split.decayed_parameters + split.non_decayed_parameters
        assert self.breakdown.total == parts == total, (
            f"the decay split sums to {parts} and the breakdown to {self.breakdown.total}, "
            f"not {total}"
        )


def account(
    config: GPTConfig,
    name: str,
    workload: Workload | None = None,
    *,
    changed: tuple[str, ...] = (),
    n_head_known: bool = True,
    stored: StoredBytes | None = None,
) -> ModelReport:
    """Return the full account of a model.

    Args:
        config: its sizes.
        name: what to call it.
        workload: what it is to be put to.
        changed: fields of `config` that are not the named model's own.
        n_head_known: whether `config.n_head` is more than a stand-in; no figure rests on it.
        stored: what its file holds.
    """
    work = workload or Workload()
    published = find_published(config)
    step = _rate(config, work)
    return ModelReport(
        name=name,
        config=_sizes(config, n_head_known),
        published_as=published[0] if published else None,
        published_labels=published[1] if published else (),
        parameters=count_parameters(config),
        breakdown=break_down(config),
        decay=split_by_decay(config),
        state_dict_tensors=count_tensors(config),
        memory=measure_memory(config),
        kv_cache=measure_cache(config, work.batch_size),
        flops=count_flops(config),
        padding_rows=count_padding_rows(config),
        untrained_loss_nats_per_token=math.log(config.vocab_size),
        changed=changed,
        stored=stored,
        step=step,
        training=_train(config, work, step),
    )


def _rate(config: GPTConfig, work: Workload) -> StepReport | None:
    if work.step_seconds is None:
        return None
    return rate_step(config, work.hardware, work.step_seconds, work.sequences or work.batch_size)


def _train(config: GPTConfig, work: Workload, step: StepReport | None) -> TrainingReport | None:
    if work.tokens is None:
        return None
    return estimate_training(config, work.tokens, work.hardware, work.mfu, step)


def _sizes(config: GPTConfig, n_head_known: bool) -> Sizes:
    return Sizes(
        n_layer=config.n_layer,
        n_head=config.n_head if n_head_known else None,
        n_embd=config.n_embd,
        block_size=config.block_size,
        vocab_size=config.vocab_size,
        bias=config.bias,
        tied_head=config.tied_head,
        activation=config.activation,
    )
