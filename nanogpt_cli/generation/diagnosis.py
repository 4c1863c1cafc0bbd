"""Where numbers first went wrong in a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.model import GPT

if TYPE_CHECKING:
    from torch import Tensor


def name_bad_tensor(model: GPT, idx: Tensor) -> str:
    """Name the first weight, or else the first module's output, that holds NaN or infinity.

    Args:
        model: whose logits are not finite.
        idx: (B, T) int64, what it was run on.
    """
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"the weight {name!r}"
    found: list[str] = []

    def watch(name: str) -> Any:
        def hook(_module: torch.nn.Module, _input: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and not torch.isfinite(output).all():
                found.append(name)

        return hook

    handles = [m.register_forward_hook(watch(name)) for name, m in model.named_modules() if name]
    try:
        with torch.inference_mode():
            model(idx)
    finally:
        for handle in handles:
            handle.remove()
    return f"the output of {found[0]!r}" if found else "the logits"


def check_finite(model: GPT, logits: Tensor, texts: Sequence[tuple[list[int], int]]) -> None:
    """Raise NanoGPTError, with the first bad tensor's name, where logits are NaN or infinite.

    Args:
        model: which gave them.
        logits: (B, V).
        texts: B, the ids they followed and the number of the new token.
    """
    if torch.isfinite(logits.sum()):  # a tenth of the time that looking at each would take
        return
    finite = torch.isfinite(logits)
    if finite.all():
        return
    ids, step = texts[int((~finite.all(dim=-1)).nonzero()[0])]
    window = torch.tensor([ids[-model.config.block_size :]], device=model.lm_head.weight.device)
    where = name_bad_tensor(model, window)
    raise NanoGPTError(
        f"the model's logits are not finite at step {step}: the first bad tensor is {where}",
        hint="a checkpoint that diverged in training cannot be sampled; "
        "with --dtype float16, try bfloat16 or float32",
    )


def check_ids(ids: Sequence[int], vocab_size: int, step: int, device: torch.device) -> None:
    """Raise NanoGPTError for a drawn id outside the vocabulary."""
    for token in ids:
        if not 0 <= token < vocab_size:
            raise NanoGPTError(
                f"drew id {token} at step {step} on {device}: ids end at {vocab_size - 1}",
                hint="this is a fault of the device or its driver: try --device cpu",
            )
