"""One digest for one set of weights, whatever file holds them."""

from __future__ import annotations

import hashlib

from nanogpt_cli.checkpoints.architecture import Architecture
from nanogpt_cli.checkpoints.loading import read_weight
from nanogpt_cli.checkpoints.tensors import TensorReader

HEADER = b"nanogpt weights 1\n"


def fingerprint(architecture: Architecture) -> str:
    """Return the SHA-256 of a model's weights, in hexadecimal.

    It covers each weight's nanoGPT name, its shape and its float32 values, in named_parameters
    order and nanoGPT's layout. Prefixes, order, container, layout and masks leave it alone, and so
    does a head that repeats wte; biases of zero count as absent, since some formats must store
    them. A file in bfloat16 has the fingerprint of its own, rounded values.
    """
    digest = hashlib.sha256(HEADER)
    for name, weight in architecture.weights.items():
        tensor = read_weight(TensorReader(), weight)
        if name.endswith(".bias") and not tensor.any():
            continue
        digest.update(f"{name} {list(tensor.shape)}\n".encode())
        digest.update(memoryview(tensor.numpy()).cast("B"))  # type: ignore[arg-type]
    return digest.hexdigest()
