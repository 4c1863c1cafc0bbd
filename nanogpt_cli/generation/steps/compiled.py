"""The step compiled for this machine's CPU (native/step.cpp), called with plain pointers.

Every number of a text is computed from that text alone, in an order fixed at compile time:
prefill and decode agree bit for bit, whatever shares the batch.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import torch

from nanogpt_cli.generation.steps.base import Step
from nanogpt_cli.generation.steps.text_cache import TextCache
from nanogpt_cli.generation.steps.weights import Layer, Matrix, Norm, Weights

if TYPE_CHECKING:
    from torch import Tensor

STORED_TYPES = {"float32": 0, "float16": 1, "bfloat16": 2, "int8": 3}
PREFILL_ROWS = 512
"""More are run in parts of this size, which changes nothing but the memory it takes."""

Pointer, Size = ctypes.c_void_p, ctypes.c_int64


class _Matrix(ctypes.Structure):
    _fields_ = (
        ("weight", Pointer),
        ("scale", Pointer),
        ("bias", Pointer),
        ("out", Size),
        ("in", Size),
    )


class _Norm(ctypes.Structure):
    _fields_ = (("weight", Pointer), ("bias", Pointer))


class _Layer(ctypes.Structure):
    _fields_ = (
        ("ln_1", _Norm),
        ("ln_2", _Norm),
        ("c_attn", _Matrix),
        ("attn_proj", _Matrix),
        ("c_fc", _Matrix),
        ("mlp_proj", _Matrix),
    )


class _Model(ctypes.Structure):
    _fields_ = (
        ("n_layer", Size),
        ("n_head", Size),
        ("n_embd", Size),
        ("gelu_tanh", Size),
        ("layers", ctypes.POINTER(_Layer)),
        ("ln_f", _Norm),
        ("lm_head", _Matrix),
    )


class _Rows(ctypes.Structure):
    _fields_ = (
        ("count", Size),
        ("x", Pointer),
        ("position", Pointer),
        ("cache", Pointer),
        ("capacity", Pointer),
        ("wanted_count", Size),
        ("wanted", Pointer),
        ("logits", Pointer),
        ("scratch", Pointer),
        ("longest", Size),
    )


class CompiledStep(Step[TextCache]):
    """A model's weights and the library that runs them.

    Args:
        weights: on the CPU; kept alive here, and read where they lie.
        library: built from native/step.cpp.
        threads: CPU threads.
    """

    name: ClassVar[str] = "compiled"
    batch_invariant: ClassVar[bool] = True

    def __init__(self, weights: Weights, library: ctypes.CDLL, threads: int) -> None:
        self.weights, self.library, self.threads = weights, library, threads
        self.device = torch.device("cpu")
        self._type = STORED_TYPES[weights.stored]
        self._step = library.nanogpt_step
        self._step.argtypes = (Pointer, Pointer, ctypes.c_int, ctypes.c_int)
        self._step.restype = None
        self._scratch_floats = library.nanogpt_scratch_floats
        self._scratch_floats.argtypes = (Size, Size, Size, ctypes.c_int)
        self._scratch_floats.restype = Size
        library.nanogpt_read.argtypes = (Pointer, Size, ctypes.c_int)
        library.nanogpt_read.restype = ctypes.c_float
        config = weights.config
        self._layers = (_Layer * config.n_layer)(*map(_describe_layer, weights.layers))
        self._model = _Model(
            config.n_layer,
            config.n_head,
            config.n_embd,
            config.activation == "gelu_tanh",
            self._layers,
            _describe_norm(weights.ln_f),
            _describe_matrix(weights.lm_head),
        )
        self._scratch = torch.empty(0)

    def open(self, capacity: int) -> TextCache:
        """Return an empty cache."""
        return TextCache.empty(self.weights.config, capacity, torch.float32, self.device)

    def fork(self, cache: TextCache, length: int, capacity: int) -> TextCache:
        """Return a new cache with the first `length` positions of another."""
        return cache.copy_into(self.open(capacity), length)

    @torch.inference_mode()
    def prefill(self, texts: Sequence[Sequence[int]], caches: Sequence[TextCache]) -> Tensor:
        """Run the first ids of each text; return (B, V) logits of each one's last."""
        ids = [token for text in texts for token in text]
        positions = [position for text in texts for position in range(len(text))]
        owners = [
            cache for text, cache in zip(texts, caches, strict=True) for _ in range(len(text))
        ]
        ends = set(itertools.accumulate(map(len, texts)))
        parts = []
        for start in range(0, len(ids), PREFILL_ROWS):
            part = slice(start, start + PREFILL_ROWS)
            count = len(ids[part])
            wanted = [row for row in range(count) if start + row + 1 in ends]
            idx = torch.tensor(ids[part], dtype=torch.long)
            parts.append(self._run(idx, positions[part], owners[part], wanted))
        return torch.cat(parts)

    @torch.inference_mode()
    def decode(self, ids: Tensor, positions: Sequence[int], caches: Sequence[TextCache]) -> Tensor:
        """Run one more id of each text; return (B, V) logits."""
        return self._run(ids, positions, caches, range(len(positions)))

    def _run(
        self,
        ids: Tensor,
        positions: Sequence[int],
        caches: Sequence[TextCache],
        wanted: Sequence[int],
    ) -> Tensor:
        """Return (len(wanted), V) logits of chosen rows."""
        count, config = len(positions), self.weights.config
        longest = max(positions) + 1
        x = self.weights.embed(ids, torch.tensor(positions))
        logits = torch.empty(len(wanted), config.vocab_size)
        needed = self._scratch_floats(count, config.n_embd, longest, self.threads)
        if self._scratch.numel() < needed:
            self._scratch = torch.empty(needed)
        many = Size * count
        places = many(*positions)
        addresses = many(*(cache.store.data_ptr() for cache in caches))
        capacities = many(*(cache.capacity for cache in caches))
        chosen = (Size * len(wanted))(*wanted)
        rows = _Rows(
            count=count,
            x=x.data_ptr(),
            position=ctypes.addressof(places),
            cache=ctypes.addressof(addresses),
            capacity=ctypes.addressof(capacities),
            wanted_count=len(wanted),
            wanted=ctypes.addressof(chosen),
            logits=logits.data_ptr(),
            scratch=self._scratch.data_ptr(),
            longest=longest,
        )
        self._step(ctypes.byref(self._model), ctypes.byref(rows), self._type, self.threads)
        return logits


def _describe_layer(layer: Layer) -> _Layer:
    return _Layer(
        _describe_norm(layer.ln_1),
        _describe_norm(layer.ln_2),
        _describe_matrix(layer.c_attn),
        _describe_matrix(layer.attn_proj),
        _describe_matrix(layer.c_fc),
        _describe_matrix(layer.mlp_proj),
    )


def _describe_matrix(matrix: Matrix) -> _Matrix:
    out, columns = matrix.weight.shape
    return _Matrix(
        matrix.weight.data_ptr(), _pointer(matrix.scale), _pointer(matrix.bias), out, columns
    )


def _describe_norm(norm: Norm) -> _Norm:
    return _Norm(norm.weight.data_ptr(), _pointer(norm.bias))


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
