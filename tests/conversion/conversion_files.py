"""Hugging Face folders as others write them, and what comes of a conversion, read by strangers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers
from torch import Tensor

from nanogpt_cli.conversion import ConversionReport, ConversionSettings, convert

CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
GPT2_SIZES = {"vocab_size": 65, "n_positions": 16, "n_layer": 2, "n_head": 3, "n_embd": 24}


def build_gpt2(seed: int = 0, *, spread: float = 0.2, **config: Any) -> Any:
    """transformers' GPT-2 in eval mode, its weights spread so wide that no fault hides in them."""
    torch.manual_seed(seed)
    settings = {"bos_token_id": None, "eos_token_id": None, **GPT2_SIZES, **config}
    library: Any = transformers
    model = library.GPT2LMHeadModel(library.GPT2Config(**settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=spread)
    return model


def save_gpt2(folder: Path, model: Any, dtype: torch.dtype = torch.float32) -> Path:
    """Write the folder as transformers does."""
    model.to(dtype).save_pretrained(folder)
    return folder


def save_raw(folder: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> Path:
    """Write a folder from tensors and a config of one's own choosing."""
    folder.mkdir(parents=True, exist_ok=True)
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(contiguous, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def gpt2_config(**changed: Any) -> dict[str, Any]:
    """A config.json of a GPT-2 of GPT2_SIZES."""
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **GPT2_SIZES, **changed}


def to(source: Path | str, output: Path, **settings: Any) -> ConversionReport:
    """Convert to what the output's name says."""
    target = {".pt": "nanogpt", ".safetensors": "safetensors"}.get(output.suffix, "hf")
    options = {
        name: settings.pop(name) for name in ("n_head", "verify", "force", "dry_run", "meta")
        if name in settings
    }  # fmt: skip
    made = ConversionSettings(to=target, **settings)  # type: ignore[arg-type]
    return convert(str(source), output, made, **options)


def load_pt(path: Path) -> dict[str, Any]:
    """Read a torch file as stock code does."""
    loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return loaded


def load_hf(folder: Path) -> dict[str, Tensor]:
    """Read the tensors of a folder with the reference library."""
    tensors: dict[str, Tensor] = safetensors.torch.load_file(folder / "model.safetensors")
    return tensors


def run_hf(folder: Path, ids: Tensor) -> Tensor:
    """Return transformers' logits (T, V) in float32, of a folder as it loads it."""
    library: Any = transformers
    model = library.GPT2LMHeadModel.from_pretrained(folder, torch_dtype=torch.float32)
    with torch.no_grad():
        logits: Tensor = model(ids).logits[0]
    return logits


def same_tensors(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two state dicts have the same names, types and bits."""
    if one.keys() != other.keys():
        return False
    widths = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return all(
        tensor.dtype == other[name].dtype
        and torch.equal(
            tensor.contiguous().view(widths[tensor.element_size()]),
            other[name].contiguous().view(widths[tensor.element_size()]),
        )
        for name, tensor in one.items()
    )
