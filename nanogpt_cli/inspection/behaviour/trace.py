"""One forward pass, step by step: the residual stream, and what each layer writes to it.

The model's own modules are called in the model's own order; its code is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nanogpt_cli.model import GPT, Block

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Step:
    """The residual stream after the embedding or after a block, and how it came about.

    Args:
        label: "embed", "block 0", ...
        layer: the block's number, or None for the embedding.
        residual: (B, T, C), after it.
        attention: (B, T, C) that the block's attention added, or None.
        units: (B, T, 4C) the MLP's hidden units before the GELU, or None.
        mlp: (B, T, C) that the block's MLP added, or None.
    """

    label: str
    layer: int | None
    residual: Tensor
    attention: Tensor | None = None
    units: Tensor | None = None
    mlp: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """All steps of a pass over one sequence; memory grows with L·T·C.

    Args:
        token_embedding: (T, C), wte's rows.
        position_embedding: (T, C), wpe's rows.
        residual: (L + 1, T, C), after the embedding and after each block.
        attention: (L, T, C) that each block's attention added.
        mlp: (L, T, C) that each block's MLP added.
    """

    token_embedding: Tensor
    position_embedding: Tensor
    residual: Tensor
    attention: Tensor
    mlp: Tensor


def row_labels(n_layer: int) -> list[str]:
    """Return the names of the n_layer + 1 places in the residual stream."""
    return ["embed", *(f"block {layer}" for layer in range(n_layer))]


@torch.inference_mode()
def walk(model: GPT, idx: Tensor) -> Iterator[Step]:
    """Yield the n_layer + 1 steps of a pass, each when it is made; none is kept.

    Args:
        model: in eval mode.
        idx: (B, T) int64, T at most block_size.
    """
    token, position = embed(model, idx)
    x = token + position
    yield Step("embed", None, x)
    for layer, block in enumerate(model.blocks):
        step = _pass_block(block, x, layer)
        x = step.residual
        yield step


@torch.inference_mode()
def embed(model: GPT, idx: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of wte, (B, T, C), and of wpe, (T, C), whose sum the first block reads."""
    places = torch.arange(idx.size(1), device=idx.device)
    token: Tensor = model.transformer.wte(idx)
    position: Tensor = model.transformer.wpe(places)
    return token, position


def _pass_block(block: Block, x: Tensor, layer: int) -> Step:
    attention = block.attn(block.ln_1(x))
    x = x + attention
    units = block.mlp.c_fc(block.ln_2(x))
    mlp = block.mlp.c_proj(block.mlp.gelu(units))
    return Step(f"block {layer}", layer, x + mlp, attention, units, mlp)


@torch.inference_mode()
def trace(model: GPT, idx: Tensor) -> Trace:
    """Return every step of a pass over one sequence, idx (1, T)."""
    token, position = embed(model, idx)
    steps = list(walk(model, idx))
    return Trace(
        token_embedding=token[0],
        position_embedding=position,
        residual=torch.cat([step.residual for step in steps]),
        attention=torch.cat([step.attention for step in steps[1:] if step.attention is not None]),
        mlp=torch.cat([step.mlp for step in steps[1:] if step.mlp is not None]),
    )


@torch.inference_mode()
def last_residual(model: GPT, idx: Tensor) -> Tensor:
    """Return the residual stream after the last block, (B, T, C)."""
    x = sum(embed(model, idx))
    for block in model.blocks:
        x = block(x)
    assert isinstance(x, torch.Tensor), "embeddings are tensors"
    return x


@torch.inference_mode()
def unembed(model: GPT, residual: Tensor) -> Tensor:
    """Return logits (..., V) of a residual stream (..., C): ln_f, once, then the head."""
    logits: Tensor = model.lm_head(model.transformer.ln_f(residual))
    return logits
