"""From an architecture to a GPT in memory: the heavy half of reading."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from nanogpt_cli.checkpoints.architecture import Architecture
from nanogpt_cli.checkpoints.stored_names import Weight
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.model import GPT

if TYPE_CHECKING:
    from torch import Tensor


READERS = 4
"""Threads that read tensors, at most; a core each can be kept busy with it."""


def load_weights(architecture: Architecture, cls: type[GPT] = GPT, *, mapped: bool = False) -> GPT:
    """Build the model from the file's weights, in float32 on the CPU.

    Args:
        architecture: of the file.
        cls: GPT, or a class made from it.
        mapped: leave float32 tensors that lie as nanoGPT stores them in the file, copy on write:
            they cost no memory of their own, and last as long as the file stays as it is.

    Raises:
        UsageError: the number of heads is not known.
        CheckpointError: the file changed since it was described.
    """
    architecture.require_n_head()
    with torch.device("meta"), _WithoutDraws():
        model = cls(architecture.config)
    reader, weights = TensorReader(copies=not mapped), architecture.weights
    is_alone = mapped or any(weight.info.member for weight in weights.values())
    with ThreadPoolExecutor(1 if is_alone else min(READERS, os.cpu_count() or 1)) as pool:
        read = pool.map(partial(read_weight, reader), weights.values())
        state = dict(zip(weights, read, strict=True))
    state |= _masks(model)
    if architecture.config.tied_head:
        state["lm_head.weight"] = state["transformer.wte.weight"]
    model.load_state_dict(state, assign=True)
    if architecture.config.tied_head:
        model.transformer.wte.weight = model.lm_head.weight
    return model


class _WithoutDraws(TorchFunctionMode):
    """Leave new tensors undrawn: drawing on the meta device first imports 70 MB of torch."""

    def __torch_function__(
        self,
        func: Any,
        _types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if getattr(func, "__module__", None) == torch.nn.init.__name__:
            return named["tensor"] if "tensor" in named else args[0]
        return func(*args, **named)


def fill_weights(model: GPT, architecture: Architecture) -> None:
    """Copy the file's weights into a model that was built, and drawn, before."""
    reader = TensorReader()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in architecture.weights.items():
            parameters[name].copy_(read_weight(reader, weight))


def read_weight(reader: TensorReader, weight: Weight) -> Tensor:
    """Return one weight in nanoGPT's layout, contiguous float32."""
    tensor = reader.read(weight.info)
    if weight.transposed:
        tensor = tensor.t()
    return tensor.to(torch.float32).contiguous()


def _masks(model: GPT) -> dict[str, Tensor]:
    return {
        name: torch.tril(torch.ones(buffer.shape, dtype=buffer.dtype))
        for name, buffer in model.named_buffers()
    }
