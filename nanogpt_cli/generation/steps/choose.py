"""Which step serves a model: compiled where it can be and pays, else in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.steps.base import Step
from nanogpt_cli.generation.steps.compiled import CompiledStep
from nanogpt_cli.generation.steps.eager import EagerStep
from nanogpt_cli.generation.steps.graphed import GraphedStep
from nanogpt_cli.generation.steps.library import load_library
from nanogpt_cli.generation.steps.weights import Weights, store_weights
from nanogpt_cli.model import GPT

Compile = Literal["auto"] | bool

QUANTIZATIONS = ("int8",)

BUILD_SECONDS = 8.0
"""What the first compilation takes at most on a usual machine; no run pays it twice."""

EAGER_LAYER_SECONDS = 1e-4
"""What torch's operations cost a token and layer, beside the weights they read."""

EAGER_PARAMETER_SECONDS = 2.9e-10
"""What they cost a token and parameter, whatever the stored type: 36 ms for 124 million."""

READ_SECONDS_PER_BYTE = 1 / 30e9
"""What the compiled step costs: reading the stored weights."""


@dataclass(frozen=True)
class StepChoice:
    """How to compute, as a user asks for it.

    Args:
        quantize: "int8" for 8-bit weights with a scale a row, or None.
        compile: whether to use the compiled step; "auto" takes one that is there, and builds one
            for a run that is long enough to earn it.
        threads: of the CPU; None for torch's own choice, the physical cores.
        folder: where compiled steps are kept; None keeps none.

    Raises:
        UsageError: an unknown quantization.
    """

    quantize: str | None = None
    compile: Compile = "auto"
    threads: int | None = None
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.quantize is not None and self.quantize not in QUANTIZATIONS:
            raise UsageError(
                f"unknown quantization {self.quantize!r}", hint=f"give {', '.join(QUANTIZATIONS)}"
            )


def make_step(
    model: GPT,
    dtype: torch.dtype,
    choice: StepChoice,
    new_tokens: float,
    device: torch.device | None = None,
    notify: Callable[[str], None] = lambda _note: None,
) -> tuple[Step[Any], tuple[str, ...]]:
    """Return the step that serves a model, and notes on what could not be had.

    Args:
        model: in eval mode, float32.
        dtype: of the weights; on the CPU the arithmetic is float32 whatever it is.
        choice: the user's.
        new_tokens: how many the run may make, over all samples.
        device: to compute on; None for the model's.
        notify: is told what is found out only on the way.
    """
    device = device or model.lm_head.weight.device
    stored = choice.quantize or str(dtype).removeprefix("torch.")
    # Made where the model is, which need not be in the device's memory beside them.
    weights = store_weights(model, stored).to(device)
    if device.type == "cuda" and choice.compile:
        return GraphedStep(weights, dtype, notify), ()
    if device.type != "cpu":
        return EagerStep(weights, dtype), ()
    notes: tuple[str, ...] = ()
    if choice.compile:
        build = choice.compile is True or pays(weights, new_tokens)
        library, note = load_library(choice.folder, build=build)
        notes = () if note is None else (note,)
        if library is not None:
            threads = choice.threads or torch.get_num_threads()
            return CompiledStep(weights, library, threads), notes
    return EagerStep(weights), notes


def pays(weights: Weights, new_tokens: float) -> bool:
    """Return whether a run of so many tokens earns the compilation it would begin with."""
    c = weights.config
    parameters = 12 * c.n_layer * c.n_embd**2 + c.vocab_size * c.n_embd
    eager = EAGER_LAYER_SECONDS * c.n_layer + EAGER_PARAMETER_SECONDS * parameters
    compiled = READ_SECONDS_PER_BYTE * weights.matrix_bytes
    return new_tokens * (eager - compiled) > BUILD_SECONDS
