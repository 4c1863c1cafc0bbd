"""A two-layer model with an induction head, its weights set by hand.

The residual stream has three parts of 32: which token this is (wte), where it stands (wpe), and
which token stood before. Head 1 of block 0 looks at the previous position and copies its token
into the third part; head 2 of block 1 looks for the place whose previous token is the present one
and adds the token there to the first part, from which the tied head reads the next token. Head 0
of block 0 looks at the same token, and writes nothing. All else is zero.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nanogpt_cli.model import GPT, Block, GPTConfig

SIZE = 32
"""Tokens, positions, and the width of a head."""

TOKEN, PLACE, BEFORE = (slice(start, start + SIZE) for start in range(0, 3 * SIZE, SIZE))

CERTAIN = 50.0
"""A score so far above 0 that the softmax is 1."""

LOUD = 6.0


class Head(NamedTuple):
    """What a head asks for, (SIZE, C), which part it looks at, and which it copies where."""

    number: int
    asks: Tensor
    looks_at: slice
    copies: slice
    into: slice
    loudness: float


def build_induction() -> GPT:
    """Return the model, in eval mode."""
    config = GPTConfig(block_size=SIZE, vocab_size=SIZE, n_layer=2, n_head=3, n_embd=3 * SIZE)
    model = GPT(config).eval()
    one = torch.eye(SIZE)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if ".ln_" in name and name.endswith("weight") else 0.0)
        model.transformer.wte.weight[:, TOKEN] = one
        model.transformer.wpe.weight[:, PLACE] = one
        previous = one.roll(1, dims=1)  # from place t, ask for t - 1
        previous[-1, 0], previous[0, 0] = 0.0, 1.0  # none is before the first: it asks for itself
        first, second = model.blocks
        _set_head(first, Head(0, _read(TOKEN), TOKEN, TOKEN, BEFORE, 0.0), ones=2)
        _set_head(first, Head(1, _read(PLACE, previous), PLACE, TOKEN, BEFORE, 1.0), ones=2)
        _set_head(second, Head(2, _read(TOKEN), BEFORE, TOKEN, TOKEN, LOUD), ones=3)
    return model


def _read(part: slice, matrix: Tensor | None = None) -> Tensor:
    """Return what reads a part of the stream, (SIZE, C), and turns it."""
    reading = torch.zeros(SIZE, 3 * SIZE)
    reading[:, part] = torch.eye(SIZE) if matrix is None else matrix
    return reading


def _set_head(block: Block, head: Head, ones: int) -> None:
    """Write a head into a block that reads streams of so many ones, else zeros."""
    C = 3 * SIZE
    rows = slice(head.number * SIZE, (head.number + 1) * SIZE)
    reads = [head.asks * CERTAIN * math.sqrt(SIZE), _read(head.looks_at), _read(head.copies)]
    mean = ones / C
    spread = math.sqrt(mean - mean**2 + 1e-5)
    for third, matrix in enumerate(reads):
        # ln_1 takes the mean away and divides by the spread; this puts both back.
        place = slice(third * C + rows.start, third * C + rows.stop)
        block.attn.c_attn.weight[place] = matrix * spread
        block.attn.c_attn.bias[place] = matrix.sum(dim=1) * mean
    block.attn.c_proj.weight[head.into, rows] = torch.eye(SIZE) * head.loudness
