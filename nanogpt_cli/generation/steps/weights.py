"""A model's weights as a step streams them: as they are, in 16 bits, or in 8 with scales."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

from nanogpt_cli.config import GPTConfig
from nanogpt_cli.model import GPT, LayerNorm

if TYPE_CHECKING:
    from torch import Tensor, nn

INT8_MAX = 127


@dataclass(frozen=True)
class Matrix:
    """The weights of a linear layer, [out, in] as stored.

    Args:
        weight: float32, float16, bfloat16 or int8.
        scale: (out,) float32, what a row of int8 weights is multiplied by; else None.
        bias: (out,) float32, or None.
    """

    weight: Tensor
    scale: Tensor | None
    bias: Tensor | None

    def to(self, device: torch.device) -> Matrix:
        """Return the same on a device."""
        return Matrix(*(_to(part, device) for part in (self.weight, self.scale, self.bias)))

    def dense(self) -> Tensor:
        """Return float32 weights: these, or a widened copy."""
        wide = self.weight.to(torch.float32)
        return wide if self.scale is None else wide.mul_(self.scale.unsqueeze(1))


@dataclass(frozen=True)
class Norm:
    """A LayerNorm's float32 weight and bias, (C,) each, the bias or None."""

    weight: Tensor
    bias: Tensor | None

    def to(self, device: torch.device) -> Norm:
        """Return the same on a device."""
        return Norm(*(_to(part, device) for part in (self.weight, self.bias)))


@dataclass(frozen=True)
class Layer:
    """The weights of a block."""

    ln_1: Norm
    ln_2: Norm
    c_attn: Matrix
    attn_proj: Matrix
    c_fc: Matrix
    mlp_proj: Matrix


@dataclass(frozen=True)
class Weights:
    """All weights of a model, those of linear layers in one stored type.

    Args:
        stored: "float32", "float16", "bfloat16" or "int8".
        wte: (V, C), of the stored type, but float32 beside an int8 head.
        wpe: (block_size, C), as wte.
    """

    config: GPTConfig
    stored: str
    wte: Tensor
    wpe: Tensor
    layers: tuple[Layer, ...]
    ln_f: Norm
    lm_head: Matrix

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Return (N, C) float32 for N ids at their positions."""
        tokens = F.embedding(ids, self.wte).to(torch.float32)
        return tokens + F.embedding(positions, self.wpe)

    def to(self, device: torch.device) -> Weights:
        """Return the same on a device, a matrix that is shared still shared."""
        if device == self.wte.device:
            return self
        head = self.lm_head.to(device)
        tied = self.wte is self.lm_head.weight
        layers = (
            Layer(**{field.name: getattr(layer, field.name).to(device) for field in fields(Layer)})
            for layer in self.layers
        )
        return replace(
            self,
            wte=head.weight if tied else self.wte.to(device),
            wpe=self.wpe.to(device),
            layers=tuple(layers),
            ln_f=self.ln_f.to(device),
            lm_head=head,
        )

    @property
    def matrix_bytes(self) -> int:
        """What a step reads of the linear layers."""
        layers = [
            matrix
            for layer in self.layers
            for matrix in (layer.c_attn, layer.attn_proj, layer.c_fc, layer.mlp_proj)
        ]
        return sum(matrix.weight.nbytes for matrix in (*layers, self.lm_head))


def store_weights(model: GPT, stored: str) -> Weights:
    """Return a model's weights in a stored type; the float32 matrices are the model's own.

    In the other types nothing is, so the model may then be mapped from a file that changes later.

    Args:
        model: float32, in eval mode.
        stored: "float32", "float16", "bfloat16" or "int8".
    """
    with torch.inference_mode():
        return _store(model, stored)


def _store(model: GPT, stored: str) -> Weights:
    transformer, head = model.transformer, model.lm_head
    lookup = torch.float32 if stored == "int8" else getattr(torch, stored)
    lm_head = _matrix(head, stored)
    tied = transformer.wte.weight is head.weight and lm_head.weight.dtype == lookup
    return Weights(
        config=model.config,
        stored=stored,
        wte=lm_head.weight if tied else _table(transformer.wte, stored, lookup),
        wpe=_table(transformer.wpe, stored, lookup),
        layers=tuple(
            Layer(
                ln_1=_norm(block.ln_1, lookup),
                ln_2=_norm(block.ln_2, lookup),
                c_attn=_matrix(block.attn.c_attn, stored),
                attn_proj=_matrix(block.attn.c_proj, stored),
                c_fc=_matrix(block.mlp.c_fc, stored),
                mlp_proj=_matrix(block.mlp.c_proj, stored),
            )
            for block in model.blocks
        ),
        ln_f=_norm(transformer.ln_f, lookup),
        lm_head=lm_head,
    )


def _table(embedding: nn.Embedding, stored: str, dtype: torch.dtype) -> Tensor:
    return embedding.weight.data.to(dtype, copy=stored != "float32")


def _matrix(linear: nn.Linear, stored: str) -> Matrix:
    weight, bias = linear.weight.data, linear.bias
    if stored == "int8":
        scale = weight.abs().amax(dim=1) / INT8_MAX
        steps = weight / scale.unsqueeze(1)
        # In a row of zeros, 0 / 0 is 0; where a weight is NaN, so is the scale, and all of the row.
        small = steps.round_().nan_to_num_(0.0).clamp_(-INT8_MAX, INT8_MAX).to(torch.int8)
        return Matrix(small, scale, _rounded(bias, torch.float32))
    dtype = getattr(torch, stored)
    return Matrix(weight.to(dtype).contiguous(), None, _rounded(bias, dtype))


def _to(tensor: Tensor | None, device: torch.device) -> Any:
    return None if tensor is None else tensor.to(device)


def _norm(norm: LayerNorm, dtype: torch.dtype) -> Norm:
    weight = _rounded(norm.weight, dtype)
    assert weight is not None, "a LayerNorm has a weight"
    return Norm(weight, _rounded(norm.bias, dtype))


def _rounded(vector: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Round to a type, and keep as float32: what is small is not worth widening each step."""
    return None if vector is None else vector.data.to(dtype).to(torch.float32, copy=True)
