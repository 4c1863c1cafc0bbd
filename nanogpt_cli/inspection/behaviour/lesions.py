"""What a text costs when a part of the model is silent: the arithmetic of ablation.

Silent means zero: a head's columns before c_proj (whose bias stays), or all that a layer's
attention or MLP would have written (bias included), or both. What comes after is computed afresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import Tensor
from torch.nn import functional as F

from nanogpt_cli.inspection.behaviour.attention_maps import mix_values
from nanogpt_cli.inspection.behaviour.trace import embed, unembed
from nanogpt_cli.model import GPT, Block

TOKENS_AT_ONCE = 4096
"""Of all lesions in a batch together: bounds the activations."""

LOGITS_AT_ONCE = 1 << 24
"""Elements: 64 MB of float32."""

WHOLE_LAYER = 3
"""Lesions of a layer after those of its heads: its attention, its MLP, both."""


def count_lesions(n_layer: int, n_head: int) -> int:
    """Return how many lesions `sum_losses` tries."""
    return n_layer * (n_head + WHOLE_LAYER)


@torch.inference_mode()
def sum_losses(
    model: GPT, idx: Tensor, targets: Tensor, progress: Callable[[int], None]
) -> tuple[Tensor, Tensor]:
    """Return what a sequence costs as the model is, and with each lesion.

    What precedes a lesion is computed once; the lesions of a layer go through the rest together,
    as many at once as memory is meant for.

    Args:
        model: in eval mode.
        idx: (1, T) int64, T at most block_size.
        targets: (T,) int64, the next tokens.
        progress: told how many lesions have just been tried.

    Returns:
        The summed loss in nats, (), and by lesion, (L, H + 3): the heads, then the layer's
        attention, its MLP, both; float64 on the CPU.
    """
    batch = max(1, TOKENS_AT_ONCE // idx.size(1))
    token, position = embed(model, idx)
    x, rows = token + position, []
    for layer, block in enumerate(model.blocks):
        lesions, losses = _cut_block(block, x), []
        while some := list(islice(lesions, batch)):
            losses.append(_finish(model, torch.cat(some), layer + 1, targets))
            progress(len(some))
        rows.append(torch.cat(losses))
        x = block(x)
    return _finish(model, x, len(rows), targets)[0], torch.stack(rows)


def _cut_block(block: Block, x: Tensor) -> Iterator[Tensor]:
    """Yield what the block makes of x (1, T, C) with each of its lesions."""
    mixed = mix_values(block.attn, block.ln_1(x))
    for columns in torch.arange(x.size(2), device=x.device).chunk(block.attn.n_head):
        silenced = mixed.index_fill(2, columns, 0.0)
        yield _add_mlp(block, x + block.attn.c_proj(silenced))
    yield _add_mlp(block, x)
    yield x + block.attn.c_proj(mixed)
    yield x


def _add_mlp(block: Block, x: Tensor) -> Tensor:
    added: Tensor = block.mlp(block.ln_2(x))
    return x + added


def _finish(model: GPT, x: Tensor, layer: int, targets: Tensor) -> Tensor:
    """Return the summed losses, (B,) float64 on the CPU, of streams (B, T, C) before a layer."""
    for block in model.blocks[layer:]:
        x = block(x)
    return torch.stack([_sum_loss(model, stream, targets) for stream in x])


def _sum_loss(model: GPT, stream: Tensor, targets: Tensor) -> Tensor:
    rows = max(1, LOGITS_AT_ONCE // model.config.vocab_size)
    losses = [
        F.cross_entropy(unembed(model, x), y, reduction="none")
        for x, y in zip(torch.split(stream, rows), torch.split(targets, rows), strict=True)
    ]
    return torch.cat(losses).double().sum().cpu()
