"""The step in torch's own operations: where nothing is compiled, on a CPU or any other device.

Library products round differently with the number of rows, so a text's logits may depend, in the
last bits, on how many texts share the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn import functional as F

from nanogpt_cli.generation.steps.base import Step
from nanogpt_cli.generation.steps.products import Products, make_products
from nanogpt_cli.generation.steps.text_cache import TextCache
from nanogpt_cli.generation.steps.weights import Norm, Weights

if TYPE_CHECKING:
    from torch import Tensor

    Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
    """From a layer's number and its q, k, v, (N, H, D) each, to the attended values."""


class EagerStep(Step[TextCache]):
    """A model's weights and torch.

    Args:
        weights: on the device to compute on.
        dtype: what to compute in: float32 on the CPU.
    """

    name: ClassVar[str] = "eager"
    batch_invariant: ClassVar[bool] = False

    def __init__(self, weights: Weights, dtype: torch.dtype = torch.float32) -> None:
        self.weights, self.dtype = weights, dtype
        self.device = weights.wte.device
        self._products = make_products(weights, dtype)

    def open(self, capacity: int) -> TextCache:
        """Return an empty cache."""
        return TextCache.empty(self.weights.config, capacity, self.dtype, self.device)

    def fork(self, cache: TextCache, length: int, capacity: int) -> TextCache:
        """Return a new cache with the first `length` positions of another."""
        return cache.copy_into(self.open(capacity), length)

    @torch.inference_mode()
    def prefill(self, texts: Sequence[Sequence[int]], caches: Sequence[TextCache]) -> Tensor:
        """Run the first ids of each text by itself; return (B, V) logits of each one's last."""
        return torch.cat([self._prefill(*pair) for pair in zip(texts, caches, strict=True)])

    def _prefill(self, ids: Sequence[int], cache: TextCache) -> Tensor:
        T = len(ids)
        idx = torch.tensor(ids, dtype=torch.long, device=self.device)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.store[layer, 0, :, :T] = k.transpose(0, 1)
            cache.store[layer, 1, :, :T] = v.transpose(0, 1)
            return attend_causally(q, k, v)

        places = torch.arange(T, device=self.device)
        x = self.weights.embed(idx, places)
        x = forward(self.weights, self._products, self.dtype, x, attend)
        return read_out(self.weights, self._products, x[-1:])

    @torch.inference_mode()
    def decode(self, ids: Tensor, positions: Sequence[int], caches: Sequence[TextCache]) -> Tensor:
        """Run one more id of each text; return (B, V) logits."""

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = torch.empty_like(q)
            for row, (cache, position) in enumerate(zip(caches, positions, strict=True)):
                keys, values = cache.store[layer]  # (H, capacity, D) each
                keys[:, position], values[:, position] = k[row], v[row]
                end = position + 1
                scores = torch.bmm(keys[:, :end], q[row].unsqueeze(2)).squeeze(2)  # (H, end)
                weights = torch.softmax(scores.float() * (1 / math.sqrt(q.size(2))), dim=1)
                out[row] = torch.bmm(weights.to(q.dtype).unsqueeze(1), values[:, :end]).squeeze(1)
            return out

        x = self.weights.embed(ids, torch.tensor(positions, device=self.device))
        x = forward(self.weights, self._products, self.dtype, x, attend)
        return read_out(self.weights, self._products, x)


def forward(
    weights: Weights, products: Products, dtype: torch.dtype, x: Tensor, attend: Attend
) -> Tensor:
    """Run N embedded rows through the blocks, attention aside.

    Args:
        dtype: to compute in.
        x: (N, C) float32.
        attend: what mixes the rows.

    Returns:
        (N, C), before the final norm.
    """
    c = weights.config
    x = x.to(dtype)
    heads = (x.size(0), c.n_head, c.n_embd // c.n_head)
    gelu = "tanh" if c.activation == "gelu_tanh" else "none"
    for number, (layer, product) in enumerate(zip(weights.layers, products.layers, strict=True)):
        qkv = product.c_attn(_normalise(layer.ln_1, x))
        q, k, v = (part.reshape(heads) for part in qkv.chunk(3, dim=1))
        x = x + product.attn_proj(attend(number, q, k, v).reshape(x.shape))
        x = x + product.mlp_proj(F.gelu(product.c_fc(_normalise(layer.ln_2, x)), approximate=gelu))
    return x


def attend_causally(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Let each of T rows of one text see itself and those before it; all are (T, H, D)."""
    q, k, v = (part.transpose(0, 1).unsqueeze(0) for part in (q, k, v))  # (1, H, T, D)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1)


def read_out(weights: Weights, products: Products, x: Tensor) -> Tensor:
    """Return (N, V) float32 logits of N rows, (N, C), that `forward` gave."""
    return products.lm_head(_normalise(weights.ln_f, x)).float()


def _normalise(norm: Norm, x: Tensor) -> Tensor:
    weight = norm.weight.to(x.dtype)
    bias = None if norm.bias is None else norm.bias.to(x.dtype)
    return F.layer_norm(x, weight.shape, weight, bias, 1e-5)
