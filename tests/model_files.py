"""Small models and the files that strangers' programs would write of them."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nanogpt_cli.model import GPT, GPTConfig

SIZES = {"block_size": 16, "vocab_size": 65, "n_layer": 2, "n_head": 3, "n_embd": 24}
MODEL_ARGS = (*SIZES, "bias", "dropout")
ALPHABET = "\n" + "".join(chr(code) for code in range(32, 96))


def build(seed: int = 0, *, spread: float = 0.2, **config: Any) -> GPT:
    """A GPT in eval mode whose weights are spread wide enough that its choices are no near-ties."""
    torch.manual_seed(seed)
    model = GPT(GPTConfig(**{**SIZES, **config})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=spread)
    return model


def envelope(model: GPT, /, **extra: Any) -> dict[str, Any]:
    """What nanoGPT's train.py saves, without an optimizer."""
    config = asdict(model.config)
    return {
        "model": model.state_dict(),
        "model_args": {name: config[name] for name in MODEL_ARGS},
        "iter_num": 250,
        "best_val_loss": torch.tensor(2.5),
        "config": {"dataset": "letters", "batch_size": 4},
        **extra,
    }


def save_nanogpt(path: Path, model: GPT, /, **extra: Any) -> Path:
    """Write a ckpt.pt as nanoGPT does, into a folder or under a name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(envelope(model, **extra), path)
    return path


def save_meta(folder: Path, alphabet: str = ALPHABET) -> Path:
    """Write the meta.pkl of a character-level dataset."""
    folder.mkdir(parents=True, exist_ok=True)
    stoi = {char: i for i, char in enumerate(alphabet)}
    itos = dict(enumerate(alphabet))
    path = folder / "meta.pkl"
    path.write_bytes(pickle.dumps({"vocab_size": len(alphabet), "itos": itos, "stoi": stoi}))
    return path
