"""Whether two checkpoints are one model: their logits on fixed ids, side by side. The heavy half.

Both models pass through the same few buffers, a block at a time: neither is held whole, and equal
weights give equal logits to the last bit, wherever they lie in their files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from nanogpt_cli.checkpoints.architecture import Architecture
from nanogpt_cli.checkpoints.loading import read_weight
from nanogpt_cli.checkpoints.stored_names import HEAD, WPE, WTE
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.model import Block

SEED = 1337
ROWS = 4096
"""Rows of the head that are multiplied at once."""


@dataclass(frozen=True)
class Agreement:
    """How two models' logits compare.

    Args:
        positions: how many were compared, each over the whole vocabulary.
        largest_difference: absolute; infinity where a number stands beside none.
        largest_logit: the first model's largest absolute logit.
        top_1_agreement: share of positions at which both have the same likeliest id.
    """

    positions: int
    largest_difference: float
    largest_logit: float
    top_1_agreement: float


def compare_logits(one: Architecture, other: Architecture, positions: int) -> Agreement:
    """Return how the float32 logits of two models agree on a fixed sequence of random ids.

    Both are taken to have `one`'s number of heads and activation, so that only weights count.

    Args:
        one: a model with at least `positions` positions.
        other: another of the same sizes; its block_size may differ.
        positions: T, the length of the sequence.
    """
    pair = (_Half(one), _Half(other))
    generator = torch.Generator().manual_seed(SEED)
    idx = torch.randint(one.config.vocab_size, (positions,), generator=generator)  # (T)
    with torch.inference_mode():
        buffer = torch.empty(min(ROWS, one.config.vocab_size), one.config.n_embd)
        streams = [half.embed(idx) for half in pair]
        block = _empty_block(one)
        for layer in range(one.config.n_layer):
            streams = [
                half.run_block(block, layer, x) for half, x in zip(pair, streams, strict=True)
            ]
        streams = [half.normalise(x) for half, x in zip(pair, streams, strict=True)]
        return _compare_heads(pair, streams, buffer)


class _Half:
    """One of the two models."""

    def __init__(self, architecture: Architecture) -> None:
        self._weights = architecture.weights
        self._reader = TensorReader()
        self._head = HEAD if HEAD in architecture.weights else WTE

    def _weight(self, name: str) -> Tensor:
        return read_weight(self._reader, self._weights[name])

    def _rows(self, name: str, rows: slice | Tensor) -> Tensor:
        """Return some rows of a matrix in float32."""
        return self._reader.read(self._weights[name].info)[rows].to(torch.float32)

    def embed(self, idx: Tensor) -> Tensor:
        """Return what enters the first block, (1, T, C)."""
        return (self._rows(WTE, idx) + self._rows(WPE, slice(len(idx)))).unsqueeze(0)

    def run_block(self, block: Block, layer: int, x: Tensor) -> Tensor:
        """Return what leaves a block, whose buffers take this model's weights."""
        for name, parameter in block.named_parameters():
            parameter.copy_(self._weight(f"transformer.h.{layer}.{name}"))
        out: Tensor = block(x)
        return out

    def normalise(self, x: Tensor) -> Tensor:
        """Return what enters the head, (T, C)."""
        bias = "transformer.ln_f.bias"
        shift = self._weight(bias).clone() if bias in self._weights else None
        scale = self._weight("transformer.ln_f.weight").clone()
        return F.layer_norm(x, scale.shape, scale, shift, 1e-5)[0]

    def logits(self, x: Tensor, rows: slice, buffer: Tensor) -> Tensor:
        """Return the logits (T, rows) of some ids; `buffer` takes their rows of the head."""
        part = self._rows(self._head, rows)
        return x @ buffer[: len(part)].copy_(part).t()


def _empty_block(architecture: Architecture) -> Block:
    config = replace(architecture.config, attention="sdpa")
    with torch.device("meta"):
        block = Block(config)
    return block.to_empty(device="cpu").eval()


def _compare_heads(pair: tuple[_Half, _Half], streams: list[Tensor], buffer: Tensor) -> Agreement:
    T, V = len(streams[0]), pair[0]._weights[WTE].shape[0]
    difference = torch.zeros(())
    largest = torch.zeros(())
    best = [torch.full((T,), -torch.inf) for _ in pair]
    ids = [torch.zeros(T, dtype=torch.long) for _ in pair]
    for start in range(0, V, len(buffer)):
        rows = slice(start, start + len(buffer))
        logits = [half.logits(x, rows, buffer) for half, x in zip(pair, streams, strict=True)]
        difference = torch.maximum(difference, _distance(*logits).max())
        largest = torch.maximum(largest, logits[0].nan_to_num(0.0).abs().max())
        for at, part in enumerate(logits):
            values, found = part.max(dim=1)
            better = values > best[at]
            ids[at] = torch.where(better, found + start, ids[at])
            best[at] = torch.where(better, values, best[at])
    agreement = (ids[0] == ids[1]).to(torch.float64).mean().item()
    return Agreement(T, difference.item(), largest.item(), agreement)


def _distance(one: Tensor, other: Tensor) -> Tensor:
    """Return absolute differences: 0 where both are the same, no number among them."""
    same = (one == other) | (one.isnan() & other.isnan())
    return torch.where(same, 0.0, (one - other).abs().nan_to_num(torch.inf, torch.inf))
