"""Linear layers as torch runs them fastest on a device: packed, plain, or widened on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

from nanogpt_cli.generation.steps.weights import Matrix, Weights

if TYPE_CHECKING:
    from torch import Tensor

Product = Callable[["Tensor"], "Tensor"]
"""From (N, in) to (N, out)."""

PACKED_TOLERANCE = 1e-4
"""Of the largest output: two float32 products of one matrix differ by far less."""


@dataclass(frozen=True)
class LayerProducts:
    """The linear layers of a block."""

    c_attn: Product
    attn_proj: Product
    c_fc: Product
    mlp_proj: Product


@dataclass(frozen=True)
class Products:
    """The linear layers of a model."""

    layers: tuple[LayerProducts, ...]
    lm_head: Product


def make_products(weights: Weights, dtype: torch.dtype) -> Products:
    """Return a model's linear layers, ready to compute in a dtype where the weights are."""
    make = _make_packed if _packs(weights, dtype) else _make_plain
    return Products(
        layers=tuple(
            LayerProducts(
                c_attn=make(layer.c_attn, dtype),
                attn_proj=make(layer.attn_proj, dtype),
                c_fc=make(layer.c_fc, dtype),
                mlp_proj=make(layer.mlp_proj, dtype),
            )
            for layer in weights.layers
        ),
        lm_head=make(weights.lm_head, dtype),
    )


def _make_plain(matrix: Matrix, dtype: torch.dtype) -> Product:
    bias = None if matrix.bias is None else matrix.bias.to(dtype)
    if matrix.scale is None:
        weight = matrix.weight.to(dtype)
        return lambda x: F.linear(x, weight, bias)
    if matrix.weight.device.type == "cpu":
        dense = matrix.dense().to(dtype)
        return lambda x: F.linear(x, dense, bias)
    small, scale = matrix.weight, matrix.scale.to(dtype)
    zeros = torch.zeros((), dtype=dtype, device=small.device) if bias is None else bias
    return lambda x: F.linear(x, small.to(dtype)) * scale + zeros


def _make_packed(matrix: Matrix, _dtype: torch.dtype) -> Product:
    packed = _ops().mkldnn._reorder_linear_weight(matrix.dense().contiguous(), 1)
    bias = matrix.bias

    def product(x: Tensor) -> Tensor:
        rows = x.size(0)
        # Two rows take oneDNN's matrix path, which is faster than its path for one.
        wide = x.expand(2, -1) if rows == 1 else x
        y: Tensor = _ops().mkldnn._linear_pointwise(wide.contiguous(), packed, bias, "none", [], "")
        return y[:rows]

    return product


def _packs(weights: Weights, dtype: torch.dtype) -> bool:
    """Say whether oneDNN's packed product, private to torch, is there and right."""
    head = weights.lm_head
    if dtype != torch.float32 or head.weight.device.type != "cpu":
        return False
    some = Matrix(head.weight[:64], None if head.scale is None else head.scale[:64], None)
    x = torch.ones(3, head.weight.size(1))
    try:
        packed = _make_packed(some, dtype)(x)
    except (AttributeError, RuntimeError):
        return False
    plain = F.linear(x, some.dense())
    limit = PACKED_TOLERANCE * plain.abs().max().clamp(min=1.0)
    return bool((packed - plain).abs().max() <= limit)


def _ops() -> Any:
    return torch.ops
