"""What is asked of a conversion, and what its output is by its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from nanogpt_cli.config import ACTIVATIONS
from nanogpt_cli.conversion.report import Target
from nanogpt_cli.errors import UsageError

TARGETS: tuple[Target, ...] = get_args(Target)
DTYPES = ("float32", "bfloat16", "float16")

SUFFIXES: dict[str, Target] = {".pt": "nanogpt", ".pth": "nanogpt", ".safetensors": "safetensors"}
"""What an output's name says by its end; a name without an end is a Hugging Face folder's."""


@dataclass(frozen=True)
class ConversionSettings:
    """How to convert; what contradicts itself is refused when this is built.

    Args:
        to: "nanogpt", "hf" or "safetensors".
        dtype: of every weight in the output, or None to keep each one's own.
        weights_only: leave the optimizer and everything but the model's facts out.
        trim_vocab: drop the rows that the tokenizer lacks.
        activation: "gelu" or "gelu_tanh" in place of what the source says.
        fresh_optimizer: write an AdamW state that has taken no step.
        drop_zero_biases: write a model without biases where all of them are zero.

    Raises:
        UsageError: an unknown name, or flags that contradict each other.
    """

    to: Target
    dtype: str | None = None
    weights_only: bool = False
    trim_vocab: bool = False
    activation: str | None = None
    fresh_optimizer: bool = False
    drop_zero_biases: bool = False

    def __post_init__(self) -> None:
        _check_name("--to", self.to, TARGETS)
        _check_name("--dtype", self.dtype, DTYPES)
        _check_name("--activation", self.activation, ACTIVATIONS)
        if self.fresh_optimizer and self.weights_only:
            raise UsageError(
                "--fresh-optimizer and --weights-only contradict each other",
                hint="leave one of them out",
            )
        if self.fresh_optimizer and self.to != "nanogpt":
            raise UsageError(
                f"--fresh-optimizer has no place in the format {self.to!r}",
                hint="only --to nanogpt, a .pt file, holds an optimizer",
            )


def choose_target(output: Path, to: str | None) -> Target:
    """Return the format that is asked for, or that the output's name makes clear.

    Raises:
        UsageError: neither does, or a file is asked for where a folder is.
    """
    _check_name("--to", to, TARGETS)
    for target in TARGETS:
        if to == target:
            return target
    guessed = SUFFIXES.get(output.suffix.lower())
    if guessed is None and not output.suffix:
        guessed = "hf"
    if guessed is None:
        raise UsageError(
            f"the output's name {str(output)!r} does not say its format",
            hint=f"give --to {', --to '.join(TARGETS)}, or a name that ends in .pt or .safetensors",
        )
    return guessed


def _check_name(flag: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise UsageError(f"unknown {flag} {value!r}", hint=f"known are {', '.join(known)}")
