"""Which parts of a model put a logit where it is: direct logit attribution, the arithmetic.

The residual stream is a sum of what each part writes, and with ln_f's scale held at the value it
has, the way from the stream to a logit is linear: every part has its share, and the shares sum to
the logit. Effects by way of later layers are no part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nanogpt_cli.inspection.behaviour.attention_maps import mix_values
from nanogpt_cli.inspection.behaviour.trace import embed, unembed, walk
from nanogpt_cli.model import GPT, Block

LN_EPSILON = 1e-5

ROWS_AT_ONCE = 4096
"""Of lm_head, widened to float64."""


@dataclass(frozen=True)
class Write:
    """What one part adds to the residual stream at one position.

    Args:
        kind: "token embedding", "position embedding", "head", "attention bias" or "mlp".
        layer: its block, or None.
        head: its number, or None.
        vector: (C,) float64, on the CPU.
    """

    kind: str
    layer: int | None
    head: int | None
    vector: Tensor


@dataclass(frozen=True)
class Decomposition:
    """The residual stream at one position, as a sum.

    Args:
        writes: its parts, in the model's order.
        final: (C,) float64, the stream itself as the model computed it.
        logits: (V,) float32 on the CPU, as the model computed them.
    """

    writes: tuple[Write, ...]
    final: Tensor
    logits: Tensor


@torch.inference_mode()
def decompose(model: GPT, idx: Tensor, position: int) -> Decomposition:
    """Return the parts of the residual stream at `position`, for idx (1, T).

    A head's part is its columns through c_proj, without c_proj's bias, which is a part of its
    own; an MLP's part has its bias in it.
    """
    idx = idx[:, : position + 1]  # what comes later has no effect
    token, place = embed(model, idx)
    writes = [
        Write("token embedding", None, None, _exact(token[0, -1])),
        Write("position embedding", None, None, _exact(place[-1])),
    ]
    before = token + place
    for step in walk(model, idx):
        if step.layer is not None and step.mlp is not None:
            writes += _attention_writes(model.blocks[step.layer], step.layer, before)
            writes.append(Write("mlp", step.layer, None, _exact(step.mlp[0, -1])))
        before = step.residual
    logits = unembed(model, before[0, -1])
    return Decomposition(tuple(writes), _exact(before[0, -1]), logits.cpu())


def _attention_writes(block: Block, layer: int, x: Tensor) -> Iterator[Write]:
    proj, n_head = block.attn.c_proj, block.attn.n_head
    mixed = _exact(mix_values(block.attn, block.ln_1(x))[0, -1]).view(n_head, -1)
    weight = _exact(proj.weight).view(-1, n_head, mixed.size(1))  # (C, H, D)
    for head, vector in enumerate(torch.einsum("chd,hd->hc", weight, mixed)):
        yield Write("head", layer, head, vector)
    if proj.bias is not None:
        yield Write("attention bias", layer, None, _exact(proj.bias))


def _exact(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double()


@dataclass(frozen=True)
class Shares:
    """How a sum of logits splits over the parts.

    Args:
        writes: one share a write, in the same order.
        ln_f_bias: the final norm's bias; None in a model without.
    """

    writes: tuple[float, ...]
    ln_f_bias: float | None

    @property
    def total(self) -> float:
        """The sum of all shares."""
        return sum(self.writes) + (self.ln_f_bias or 0.0)


@torch.inference_mode()
def share_out(model: GPT, decomposition: Decomposition, direction: Tensor) -> Shares:
    """Return each part's share of the stream's product with a direction.

    Args:
        model: gives ln_f's weight and bias.
        decomposition: of the stream; ln_f's scale is held at the value it has there.
        direction: (C,) float64 on the CPU, such as a row of lm_head, or one minus another.
    """
    ln_f = model.transformer.ln_f
    final = decomposition.final
    scale = (final.var(unbiased=False) + LN_EPSILON).sqrt()
    weighted = _exact(ln_f.weight) * direction
    # Taking the mean from a stream, then a product, is the product with this one less its mean.
    reading = (weighted - weighted.mean()) / scale
    vectors = torch.stack([write.vector for write in decomposition.writes])  # (P, C)
    bias = None if ln_f.bias is None else (_exact(ln_f.bias) @ direction).item()
    return Shares(tuple((vectors @ reading).tolist()), bias)


@torch.inference_mode()
def mean_row(model: GPT, known: list[int]) -> Tensor:
    """Return the mean of lm_head's rows for `known` ids, (C,) float64 on the CPU."""
    weight = model.lm_head.weight
    pieces = torch.split(torch.as_tensor(known, device=weight.device), ROWS_AT_ONCE)
    sums = [_exact(weight[rows]).sum(dim=0) for rows in pieces]
    return torch.stack(sums).sum(dim=0) / len(known)
