"""From an architecture to a GPT in memory: the heavy half of reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from nanogpt_cli.checkpoints.architecture import Architecture
from nanogpt_cli.checkpoints.stored_names import Weight
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.model import GPT

if TYPE_CHECKING:
    from torch import Tensor


def load_weights(architecture: Architecture, cls: type[GPT] = GPT) -> GPT:
    """Build the model around the file's own bytes, in float32 on the CPU.

    float32 tensors stored as nanoGPT stores them are mapped from the file, copy on write, and cost
    no memory of their own; others are converted one by one.

    Raises:
        UsageError: the number of heads is not known.
        CheckpointError: the file changed since it was described.
    """
    architecture.require_n_head()
    with torch.device("meta"), _WithoutDraws():
        model = cls(architecture.config)
    reader = TensorReader()
    state = {name: read_weight(reader, weight) for name, weight in architecture.weights.items()}
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
