"""Checkpoints that training can resume from, and trees compared bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from model_files import build, envelope

from nanogpt_cli.model import GPT


def batch(model: GPT, length: int | None = None, seed: int = 1) -> torch.Tensor:
    """Random ids, (2, T)."""
    generator = torch.Generator().manual_seed(seed)
    size = (2, length or model.config.block_size)
    return torch.randint(0, model.config.vocab_size, size, generator=generator)


def step(model: GPT, optimizer: torch.optim.Optimizer, idx: torch.Tensor) -> float:
    """Take one optimizer step; return the loss before it."""
    _, loss = model(idx, idx)
    assert loss is not None
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())


def adamw(model: GPT) -> torch.optim.AdamW:
    """The optimizer that train.py configures."""
    return model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")


def trained(**config: Any) -> tuple[GPT, torch.optim.AdamW]:
    """A model and its optimizer after two steps."""
    model = build(**config)
    optimizer = adamw(model)
    for seed in range(2):
        step(model, optimizer, batch(model, seed=seed))
    return model, optimizer


def save_training(path: Path, *, extra: dict[str, Any] | None = None, **config: Any) -> Path:
    """Write a checkpoint with an Adam state."""
    model, optimizer = trained(**config)
    settings = {"dataset": "letters", "batch_size": 4, "block_size": model.config.block_size}
    content = envelope(model, optimizer=optimizer.state_dict(), config=settings)
    torch.save(content | (extra or {}), path)
    return path


def load(path: Path, *, weights_only: bool = True) -> Any:
    """Read a file with torch itself."""
    return torch.load(path, weights_only=weights_only, map_location="cpu")


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return where two trees differ in type, shape, or a single bit."""
    if type(one) is not type(other):
        return [f"{path}: {type(one).__name__} {type(other).__name__}"]
    if isinstance(one, torch.Tensor):
        same = (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.stride() == other.stride()
            and one.requires_grad == other.requires_grad
            and raw(one) == raw(other)
        )
        return [] if same else [path]
    if isinstance(one, dict):
        if list(one) != list(other):
            return [f"{path}: {list(one)} {list(other)}"]
        pairs = [(key, one[key], other[key]) for key in one]
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            return [f"{path}: {len(one)} {len(other)}"]
        pairs = [(at, a, b) for at, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        return [] if one == other or repr(one) == repr(other) else [path]
    return [found for key, a, b in pairs for found in differences(a, b, f"{path}/{key}")]


def raw(tensor: torch.Tensor) -> bytes:
    """Return a tensor's elements as bytes, row by row."""
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy())
