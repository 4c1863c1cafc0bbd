"""Biases that are there for a format's sake: formats that want them get zeros, taken out here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.raw import read_bytes

T = TypeVar("T")


def first_nonzero(biases: Mapping[str, TensorInfo]) -> str | None:
    """Return the name of the first tensor with a bit set, or None where all are zero.

    Minus zero counts as a value, so that nothing is lost where zeros are written back.
    """
    for name, info in biases.items():
        if not info.is_contiguous or any(read_bytes(info)):
            return name
    return None


def is_bias(name: str) -> bool:
    """Return whether a weight's name is a bias's."""
    return name.endswith(".bias")


def without_biases(weights: Mapping[str, T]) -> dict[str, T]:
    """Return the weights that are no biases."""
    return {name: weight for name, weight in weights.items() if not is_bias(name)}
