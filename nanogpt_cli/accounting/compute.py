"""FLOPs: what one sequence costs, itemised and by formula, and what a GPU makes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nanogpt_cli.accounting.parameters import count_parameters
from nanogpt_cli.config import GPTConfig

SECONDS_PER_DAY = 86_400

PEAKS = {
    "A100": 312e12,
    "H100": 989e12,
    "H200": 989e12,
    "B200": 2250e12,
    "RTX 4090": 165.2e12,
    "RTX 3090": 71e12,
    "L4": 121e12,
}
"""Dense bfloat16 peak, FLOPs a second, by the maker's data sheet; H100 and H200 are the SXM."""

_SAME_PEAK = {
    "A100": r"a100((sxm4?|pcie)(40gb|80gb)?|(40gb|80gb)(sxm4?|pcie)?)?",
    "H100": r"h100(sxm5?)?(80gb)?(hbm3)?",
    "H200": r"h200(sxm5?)?(141gb)?(hbm3e)?",
    "B200": r"b200",
    "RTX 4090": r"(rtx)?4090",
    "RTX 3090": r"(rtx)?3090",
    "L4": r"l4",
}
"""Spellings of one peak. An H100 PCIe or a 4090 D is slower: what is not here is unknown."""


def find_gpu(name: str) -> str | None:
    """Return the key of PEAKS that `name` means, or None; case and spacing do not matter."""
    plain = re.sub(r"[\s_-]+|nvidia|geforce|tesla", "", name.lower())
    return next((key for key, form in _SAME_PEAK.items() if re.fullmatch(form, plain)), None)


@dataclass(frozen=True)
class FormulaFlops:
    """6N + 12·L·H·Q·T: forward and backward, Q = C / H columns a head.

    Args:
        rule: which count N is.
        n_parameters: N.
        flops_per_token: the formula's value.
        flops_per_sequence: for T tokens.
        ratio_to_itemised: over the itemised count of the same sequence.
    """

    rule: str
    n_parameters: int
    flops_per_token: int
    flops_per_sequence: int
    ratio_to_itemised: float


@dataclass(frozen=True)
class FlopsReport:
    """FLOPs of one full sequence, two for each multiplication and its addition.

    Only matrix products count; norms, softmax and GELU are left out. The causal half of the
    scores that is thrown away is counted, as those who publish such figures do.

    Args:
        sequence_tokens: T, the block_size.
        qkv_flops: in one layer, as are the next six.
        head_flops: the logits of all T positions.
        forward_flops: all layers and the head.
        backward_flops: twice that.
        forward_backward_flops: both.
        formula: 6N + 12·L·H·Q·T with N as nanoGPT counts it (without wpe).
        formula_total: the same with all parameters as N, as the sizing notebook has it.
    """

    sequence_tokens: int
    qkv_flops: int
    scores_flops: int
    weighted_sum_flops: int
    out_proj_flops: int
    attention_flops: int
    mlp_flops: int
    block_flops: int
    blocks_flops: int
    head_flops: int
    forward_flops: int
    backward_flops: int
    forward_backward_flops: int
    formula: FormulaFlops
    formula_total: FormulaFlops


def count_flops(config: GPTConfig) -> FlopsReport:
    """Return what one sequence of block_size tokens costs.

    Source: nanoGPT's transformer_sizing notebook; arXiv:2204.02311, appendix B, for the formula.
    """
    T, C = config.block_size, config.n_embd
    qkv, scores, out_proj = 2 * T * C * 3 * C, 2 * T * T * C, 2 * T * C * C
    weighted_sum, mlp = scores, 2 * (2 * T * C * 4 * C)
    attention = qkv + scores + weighted_sum + out_proj
    blocks = config.n_layer * (attention + mlp)
    head = 2 * T * C * config.vocab_size
    forward = blocks + head
    counts = count_parameters(config)
    return FlopsReport(
        sequence_tokens=T,
        qkv_flops=qkv,
        scores_flops=scores,
        weighted_sum_flops=weighted_sum,
        out_proj_flops=out_proj,
        attention_flops=attention,
        mlp_flops=mlp,
        block_flops=attention + mlp,
        blocks_flops=blocks,
        head_flops=head,
        forward_flops=forward,
        backward_flops=2 * forward,
        forward_backward_flops=3 * forward,
        formula=_apply_formula(config, "nanogpt", counts.nanogpt, 3 * forward),
        formula_total=_apply_formula(config, "total", counts.total, 3 * forward),
    )


def _apply_formula(config: GPTConfig, rule: str, n: int, itemised: int) -> FormulaFlops:
    head_width = config.n_embd // config.n_head
    attention = 12 * config.n_layer * config.n_head * head_width * config.block_size
    per_token = 6 * n + attention
    per_sequence = per_token * config.block_size
    return FormulaFlops(rule, n, per_token, per_sequence, per_sequence / itemised)


@dataclass(frozen=True)
class Hardware:
    """The GPUs that a figure is for.

    Args:
        gpu: a key of PEAKS, or the user's own word for one that is not there, or None.
        gpus: how many.
        peak_flops_per_second: dense bfloat16, of one; None where it is not known.
    """

    gpu: str | None = None
    gpus: int = 1
    peak_flops_per_second: float | None = None


@dataclass(frozen=True)
class StepReport:
    """What a training step of a measured duration amounts to.

    Args:
        hardware: what it ran on.
        step_seconds: duration of a step.
        sequences: full sequences in a step, over all GPUs.
        tokens_per_second: over all GPUs.
        flops_per_second: by the formula with nanoGPT's N, over all GPUs.
        mfu: that over the peak, a fraction: what nanoGPT's `estimate_mfu` gives; None without one.
        mfu_itemised: the same from the itemised count, as in the sizing notebook.
    """

    hardware: Hardware
    step_seconds: float
    sequences: int
    tokens_per_second: float
    flops_per_second: float
    mfu: float | None
    mfu_itemised: float | None


def rate_step(
    config: GPTConfig, hardware: Hardware, step_seconds: float, sequences: int
) -> StepReport:
    """Return the throughput of a training step and, where the peak is known, its utilisation."""
    flops = count_flops(config)
    per_second = sequences / step_seconds
    peak = hardware.peak_flops_per_second
    whole = peak * hardware.gpus if peak else None
    achieved = flops.formula.flops_per_sequence * per_second
    return StepReport(
        hardware=hardware,
        step_seconds=step_seconds,
        sequences=sequences,
        tokens_per_second=config.block_size * per_second,
        flops_per_second=achieved,
        mfu=achieved / whole if whole else None,
        mfu_itemised=flops.forward_backward_flops * per_second / whole if whole else None,
    )


@dataclass(frozen=True)
class TrainingReport:
    """What training on a number of tokens takes.

    Args:
        tokens: D.
        training_flops: 6·N·D, N all parameters.
        hardware: what it is to run on.
        mfu: the utilisation assumed; None where the time comes from a measured step.
        days: how long; None where there is nothing to work it out from.
    """

    tokens: int
    training_flops: int
    hardware: Hardware
    mfu: float | None
    days: float | None


def estimate_training(
    config: GPTConfig,
    tokens: int,
    hardware: Hardware,
    mfu: float | None = None,
    step: StepReport | None = None,
) -> TrainingReport:
    """Return the cost of training on `tokens` tokens.

    The days follow from `mfu` and the peak; without an `mfu`, from the measured `step`.

    Source: arXiv:2001.08361 for 6·N·D.
    """
    flops = 6 * count_parameters(config).total * tokens
    seconds = None
    if mfu is not None and hardware.peak_flops_per_second:
        seconds = flops / (hardware.peak_flops_per_second * hardware.gpus * mfu)
    elif mfu is None and step is not None:
        seconds = tokens / step.tokens_per_second
    days = None if seconds is None else seconds / SECONDS_PER_DAY
    return TrainingReport(tokens, flops, hardware, mfu, days)
