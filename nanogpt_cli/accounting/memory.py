"""Bytes: the weights by dtype, what training adds, causal masks, and the KV cache."""

from __future__ import annotations

from dataclasses import dataclass

from nanogpt_cli.accounting.parameters import count_parameters
from nanogpt_cli.config import GPTConfig

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
"""Bytes an element, by torch's dtype name."""

CACHE_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class StoredBytes:
    """What a checkpoint file really holds.

    Args:
        weights_bytes: of the parameters, a shared storage once, by dtype.
        masks_bytes: of causal masks; 0 where none are stored.
        optimizer_bytes: of the optimizer's tensors; 0 where there are none.
    """

    weights_bytes: dict[str, int]
    masks_bytes: int
    optimizer_bytes: int


@dataclass(frozen=True)
class MemoryReport:
    """Bytes that the model takes, a tied head once; activations are not in here.

    Args:
        weights_bytes: by dtype.
        gradients_bytes: float32, one a parameter.
        adam_moments_bytes: float32, two a parameter.
        weights_and_adam_bytes: float32 weights and the moments: what a training checkpoint holds.
        training_bytes: float32 weights, gradients and moments.
        masks_bytes: of one float32 causal mask a layer, which files of old store.
    """

    weights_bytes: dict[str, int]
    gradients_bytes: int
    adam_moments_bytes: int
    weights_and_adam_bytes: int
    training_bytes: int
    masks_bytes: int


def measure_memory(config: GPTConfig) -> MemoryReport:
    """Return what the weights and training's state take."""
    total = count_parameters(config).total
    weights = {dtype: total * size for dtype, size in ELEMENT_BYTES.items()}
    gradients, moments = weights["float32"], 2 * weights["float32"]
    return MemoryReport(
        weights_bytes=weights,
        gradients_bytes=gradients,
        adam_moments_bytes=moments,
        weights_and_adam_bytes=weights["float32"] + moments,
        training_bytes=weights["float32"] + gradients + moments,
        masks_bytes=config.n_layer * config.block_size**2 * ELEMENT_BYTES["float32"],
    )


@dataclass(frozen=True)
class CacheReport:
    """Bytes of the KV cache, by dtype: 2·L·C elements a token, whatever the number of heads.

    Args:
        batch_size: sequences in `batch_bytes`.
        per_token_bytes: for one token of one sequence.
        full_context_bytes: for one sequence of block_size tokens.
        batch_bytes: for `batch_size` of those.
    """

    batch_size: int
    per_token_bytes: dict[str, int]
    full_context_bytes: dict[str, int]
    batch_bytes: dict[str, int]


def measure_cache(config: GPTConfig, batch_size: int = 1) -> CacheReport:
    """Return what the keys and values of every layer take."""
    elements = 2 * config.n_layer * config.n_embd
    per_token = {dtype: elements * ELEMENT_BYTES[dtype] for dtype in CACHE_DTYPES}
    full = {dtype: size * config.block_size for dtype, size in per_token.items()}
    batch = {dtype: size * batch_size for dtype, size in full.items()}
    return CacheReport(batch_size, per_token, full, batch)
