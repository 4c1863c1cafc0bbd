"""From a planned tensor to what a writer takes: turned, cast and cut while it is written."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from nanogpt_cli.checkpoints.contents import DTYPE_BYTES
from nanogpt_cli.checkpoints.plans import NewTensor, Stored
from nanogpt_cli.checkpoints.writing.remaking import CastLoss, remake
from nanogpt_cli.conversion.plan import PlannedTensor

if TYPE_CHECKING:
    from torch import Tensor


def stored(planned: PlannedTensor, loss: CastLoss | None = None) -> Stored:
    """Return what a writer needs to write a planned tensor.

    One that changes in nothing is copied from file to file and never comes near torch.

    Args:
        planned: the tensor.
        loss: where the cost of casts is counted.
    """
    row, weight = planned.row, planned.weight
    if weight is None:
        size = math.prod(row.shape) * DTYPE_BYTES[row.dtype]
        return NewTensor(row.dtype, row.shape, lambda: [bytes(size)])
    info = weight.info
    if not row.transposed and row.dtype == info.dtype and info.is_contiguous:
        return info if info.shape == row.shape else replace(info, shape=row.shape)

    def view(tensor: Tensor) -> Tensor:
        return (tensor.t() if row.transposed else tensor)[: row.shape[0]]

    return remake(info, view, dtype=row.dtype, name=row.name, loss=loss)
