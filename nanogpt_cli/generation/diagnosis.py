"""Where numbers first went wrong in a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

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
