"""Attention taken apart: the weights, and what each head hands on.

Weights come from the softmax written out, since fused kernels give none. One layer's maps are in
memory at a time; whoever is shown them decides what is kept. Axes as in model.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from nanogpt_cli.inspection.behaviour.trace import embed
from nanogpt_cli.model import GPT, CausalSelfAttention


@torch.inference_mode()
def walk_maps(model: GPT, idx: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Run the model with its attention written out, a layer a step; none is kept.

    Row t of a map is where position t looks: its entries sum to 1, and those after t are 0.

    Args:
        model: in eval mode; its own attention may be fused or not.
        idx: (1, T) int64, T at most block_size.

    Yields:
        Each layer's weights, (H, T, T), and the residual stream after its block, (1, T, C).

    Source: arXiv:1706.03762, equation 1.
    """
    token, position = embed(model, idx)
    x = token + position
    for block in model.blocks:
        weights, values = attend(block.attn, block.ln_1(x))
        mixed = (weights @ values).transpose(1, 2)  # (1, T, H, D)
        x = x + block.attn.c_proj(mixed.reshape(x.shape))
        x = x + block.mlp(block.ln_2(x))
        yield weights[0], x
        del weights  # or two layers' maps are alive while the next is made


def attend(attention: CausalSelfAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights, (B, H, T, T), and the values, (B, H, T, D), for x (B, T, C)."""
    B, T, C = x.size()
    heads = (B, T, attention.n_head, C // attention.n_head)
    parts = attention.c_attn(x).split(C, dim=2)
    q, k, v = (part.view(heads).transpose(1, 2) for part in parts)
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    later = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
    return scores.masked_fill_(later, float("-inf")).softmax(dim=-1), v


@torch.inference_mode()
def mix_values(attention: CausalSelfAttention, x: Tensor) -> Tensor:
    """Return what c_proj is given for x (B, T, C), by the model's own kernel.

    The heads' outputs side by side: (B, T, C), where head h has columns h * D to (h + 1) * D.
    """
    caught: list[Tensor] = []
    handle = attention.c_proj.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
    try:
        attention(x)
    finally:
        handle.remove()
    return caught[0]
