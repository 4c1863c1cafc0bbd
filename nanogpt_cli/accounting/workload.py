"""Time: what GPUs make of the FLOPs, in a measured step and over a whole training run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nanogpt_cli.accounting.compute import count_flops
from nanogpt_cli.accounting.parameters import count_parameters
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.errors import UsageError

SECONDS_PER_DAY = 86_400

MOST, MOST_TOKENS = 2**31 - 1, 10**18
"""More of anything is a slip of the finger, and would overflow a float further on."""

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
class Hardware:
    """The GPUs that a figure is for.

    Args:
        gpu: a key of PEAKS, or the user's own word for one that is not there, or None.
        gpus: how many.
        peak_flops_per_second: dense bfloat16, of one; None where it is not known.

    Raises:
        UsageError: no GPUs, or a peak that is no positive number.
    """

    gpu: str | None = None
    gpus: int = 1
    peak_flops_per_second: float | None = None

    def __post_init__(self) -> None:
        _check_count("the number of GPUs", self.gpus, hint="--gpus 8 is eight of them")
        _check_positive(
            "the GPU's peak in FLOPs a second",
            self.peak_flops_per_second,
            hint="--peak-tflops 312 is an A100's",
        )


def name_hardware(
    gpu: str | None, gpus: int = 1, peak_flops_per_second: float | None = None
) -> Hardware:
    """Return the hardware that a name means, with its peak from PEAKS unless one is given."""
    key = None if gpu is None else find_gpu(gpu)
    if peak_flops_per_second is None and key is not None:
        peak_flops_per_second = PEAKS[key]
    return Hardware(key or gpu, gpus, peak_flops_per_second)


@dataclass(frozen=True)
class Workload:
    """What a model is to be put to; what is None is not reported on.

    Args:
        batch_size: sequences that the KV cache is for.
        step_seconds: measured duration of a training step.
        sequences: full sequences in that step over all GPUs; None means `batch_size`.
        tokens: to train on.
        mfu: utilisation to assume for that, a fraction.
        hardware: what it runs on.

    Raises:
        UsageError: a value that cannot be meant.
    """

    batch_size: int = 1
    step_seconds: float | None = None
    sequences: int | None = None
    tokens: int | None = None
    mfu: float | None = None
    hardware: Hardware = field(default_factory=Hardware)

    def __post_init__(self) -> None:
        _check_count("the batch size", self.batch_size, hint="--batch-size 1 is one text")
        _check_count(
            "the number of sequences in a step",
            self.sequences,
            hint="--sequences 480 is nanoGPT's 12 times 40",
        )
        _check_count(
            "the number of training tokens",
            self.tokens,
            MOST_TOKENS,
            hint="--tokens 300B is 300 billion",
        )
        _check_positive(
            "the duration of a step in seconds",
            self.step_seconds,
            hint="--step-time 0.25 is a quarter of a second",
        )
        _check_positive("the MFU", self.mfu, hint="--mfu 0.3 is a usual one")
        if self.mfu is not None and self.mfu > 1:
            raise UsageError(
                f"the MFU is {self.mfu!r}: it is a fraction and at most 1",
                hint="37 percent is 0.37",
            )


def _check_count(what: str, count: int | None, most: int = MOST, *, hint: str) -> None:
    if count is not None and not 1 <= count <= most:
        raise UsageError(f"{what} is {count}: it must be 1 to {most:,}", hint=hint)


def _check_positive(what: str, value: float | None, *, hint: str) -> None:
    if value is not None and not 1e-9 <= value <= 1e30:
        raise UsageError(f"{what} is {value!r}: it must be a positive number", hint=hint)


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
