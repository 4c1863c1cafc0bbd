"""A model with random weights of a named shape, as a nanoGPT file and as a Hugging Face folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from nanogpt_cli.checkpoints.envelope import OWN_KEY
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.model import GPT

SEED = 2
"""Part of the folder's name: to be raised when the weights are drawn another way."""

TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
MODEL_ARGS = ("n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size", "dropout")


def ensure_model(cache: Path, name: str, config: GPTConfig) -> Path:
    """Return the folder of the shape's model, with `ckpt.pt` and `hf` in it, written at first."""
    folder = cache / "models" / f"{name}-{SEED}"
    if folder.is_dir():
        return folder
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / "hf").mkdir(parents=True)
    model = draw_model(config)
    torch.save(nanogpt_file(model), unfinished / "ckpt.pt")
    save_file(hf_tensors(model), unfinished / "hf" / "model.safetensors", {"format": "pt"})
    (unfinished / "hf" / "config.json").write_text(json.dumps(hf_config(config), indent=2))
    unfinished.rename(folder)
    return folder


def draw_model(config: GPTConfig) -> GPT:
    """Return a model whose blocks outweigh its embeddings.

    nanoGPT's own first weights repeat one token for ever, which hides faults; so do norms of one
    and biases of zero.
    """
    torch.manual_seed(SEED)
    model = GPT(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.normal_(1.0 if name.endswith("weight") else 0.0, 0.02)
            elif ".h." in name:
                parameter.normal_(0.0, parameter.size(1) ** -0.5)
    return model


def nanogpt_file(model: GPT) -> dict[str, object]:
    """Return what nanoGPT's train.py saves, without an optimizer."""
    config = model.config
    return {
        "model": model.state_dict(),
        "model_args": {name: getattr(config, name) for name in MODEL_ARGS},
        "iter_num": 0,
        "best_val_loss": 1e9,
        "config": {},
        OWN_KEY: {"activation": config.activation},
    }


def hf_tensors(model: GPT) -> dict[str, Tensor]:
    """Return GPT2LMHeadModel's tensors: Conv1D matrices lie the other way round."""
    return {
        name: (value.t() if name.endswith(TRANSPOSED) else value).contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }


def hf_config(config: GPTConfig) -> dict[str, object]:
    """Return the folder's config.json."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.n_embd,
        "n_positions": config.block_size,
        "n_ctx": config.block_size,
        "vocab_size": config.vocab_size,
        "layer_norm_epsilon": 1e-5,
        "bos_token_id": config.vocab_size - 1,
        "eos_token_id": config.vocab_size - 1,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
