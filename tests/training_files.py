"""Training checkpoints as nanoGPT's train.py writes them, after a few real steps."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import torch
from model_files import envelope

from nanogpt_cli.model import GPT, GPTConfig

SIZES = {"block_size": 16, "vocab_size": 65, "n_layer": 2, "n_head": 3, "n_embd": 24}
SETTINGS: dict[str, Any] = {
    "always_save_checkpoint": True,
    "init_from": "scratch",
    "dataset": "letters",
    "gradient_accumulation_steps": 5,
    "batch_size": 4,
    "learning_rate": 1e-3,
    "max_iters": 100,
    "decay_lr": True,
    "warmup_iters": 10,
    "lr_decay_iters": 100,
    "min_lr": 1e-4,
    "dtype": "float32",
}


def train(
    model: GPT, steps: int, *, positions: int = 16, ids: int = 65, rate: float = 1e-3
) -> torch.optim.Optimizer:
    """Take some steps on random text of so many positions and ids; return the optimizer."""
    optimizer = model.configure_optimizers(0.1, rate, (0.9, 0.95), "cpu")
    generator = torch.Generator().manual_seed(1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is too small to share out
    for _ in range(steps):
        idx = torch.randint(ids, (4, positions + 1), generator=generator)
        _, loss = model(idx[:, :-1], idx[:, 1:].contiguous())
        assert loss is not None
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.set_num_threads(threads)
    return optimizer


def build_trained(
    steps: int = 3, *, positions: int = 16, ids: int = 65, rate: float = 1e-3, **config: Any
) -> tuple[GPT, dict[str, Any]]:
    """Return a model drawn as nanoGPT draws it, trained, and what train.py would save."""
    return copy.deepcopy(_train_once(steps, positions, ids, rate, tuple(config.items())))


@cache
def _train_once(
    steps: int, positions: int, ids: int, rate: float, changed: tuple[tuple[str, Any], ...]
) -> tuple[GPT, dict[str, Any]]:
    config = dict(changed)
    torch.manual_seed(0)
    model = GPT(GPTConfig(**{**SIZES, "bias": False, **config}))
    optimizer = train(model, steps, positions=positions, ids=ids, rate=rate)
    sizes = {name: getattr(model.config, name) for name in (*SIZES, "bias", "dropout")}
    sizes.pop("vocab_size")
    saved = envelope(
        model,
        optimizer=optimizer.state_dict(),
        iter_num=steps,
        best_val_loss=torch.tensor(2.5),
        config={**SETTINGS, **sizes},
    )
    return model, saved


def save_trained(path: Path, steps: int = 3, **config: Any) -> Path:
    """Write a training checkpoint after so many steps; further arguments as in `build_trained`."""
    _, saved = build_trained(steps, **config)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(saved, path)
    return path
