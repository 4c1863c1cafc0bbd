"""Tensors made from others while they are written: cut, transposed, cast. The heavy half.

What is read is mapped and what is made is made a few rows at a time: no tensor is held whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.plans import CHUNK_BYTES, Bytes, NewTensor
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.errors import CheckpointError


@dataclass
class CastLoss:
    """What casting has cost so far, over all tensors; it grows while they are written.

    Args:
        cast: how many elements were cast.
        changed: how many of them have another value than before.
        vanished: how many of those became zero.
        largest: the largest absolute difference.
        where: name of the tensor that has it.
    """

    cast: int = 0
    changed: int = 0
    vanished: int = 0
    largest: float = 0.0
    where: str = field(default="")

    def note(self, name: str, before: Tensor, after: Tensor) -> None:
        """Count what a cast of a few elements changed.

        Raises:
            CheckpointError: a finite number became infinite.
        """
        if before.dtype == after.dtype:
            return
        overflown = after.isinf() & before.isfinite()
        if overflown.any():
            largest = before[overflown].abs().max().item()
            dtype = str(after.dtype).removeprefix("torch.")
            raise CheckpointError(
                f"{name!r} holds {largest:g}: {dtype} ends at {torch.finfo(after.dtype).max:g}",
                hint="cast to bfloat16 or float32",
            )
        self.cast += before.numel()
        difference = (after.to(torch.float64) - before.to(torch.float64)).abs()
        difference = difference.nan_to_num(0.0, 0.0, 0.0)  # what was no number stays none
        self.changed += int((difference > 0).sum())
        self.vanished += int(((after == 0) & (before != 0)).sum())
        largest = difference.max().item() if difference.numel() else 0.0
        if largest > self.largest:
            self.largest, self.where = largest, name


def remake(
    info: TensorInfo,
    view: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    *,
    dtype: str | None = None,
    name: str = "",
    loss: CastLoss | None = None,
) -> NewTensor:
    """Return a tensor to be made from one in a file.

    Args:
        info: the tensor in the file.
        view: gives a view of it, of which the new one is a contiguous copy; it reads no element.
        dtype: the new one's type, None for the same.
        name: what messages call it.
        loss: where the cost of a cast is counted; a cast without is counted nowhere.
    """
    with torch.device("meta"):
        shape = view(torch.empty_strided(info.shape, info.stride)).shape
    target = dtype or info.dtype
    counted = CastLoss() if loss is None else loss
    return NewTensor(
        target,
        tuple(shape),
        lambda: _chunks(view(TensorReader().read(info)), target, name, counted),
        requires_grad=info.requires_grad,
    )


def _chunks(tensor: Tensor, dtype: str, name: str, loss: CastLoss) -> Iterator[Bytes]:
    kind: torch.dtype = getattr(torch, dtype)
    for before in _slices(tensor):
        after = before.to(kind).contiguous()
        if kind != before.dtype:
            loss.note(name, before, after)
        yield tensor_bytes(after)


def _slices(tensor: Tensor) -> Iterator[Tensor]:
    """Yield a tensor in order, a few of its rows at a time."""
    while tensor.dim() > 1 and tensor.shape[0] == 1:
        tensor = tensor[0]
    if tensor.dim() == 0:
        tensor = tensor.unsqueeze(0)
    if tensor.numel() == 0:
        return
    row_bytes = tensor[0].numel() * max(tensor.element_size(), 4)
    step = max(1, CHUNK_BYTES // row_bytes)
    for start in range(0, tensor.shape[0], step):
        yield tensor[start : start + step]


def tensor_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor, a view as long as it lives."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().data
