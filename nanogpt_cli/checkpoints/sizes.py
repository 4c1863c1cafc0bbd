"""Which config a file has: what it states, else what its shapes say, else what its family has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from nanogpt_cli.checkpoints.contents import Contents, TensorInfo
from nanogpt_cli.checkpoints.envelope import Envelope
from nanogpt_cli.checkpoints.fitting import TWO_MODELS
from nanogpt_cli.checkpoints.hugging_face.config import gpt2_settings
from nanogpt_cli.checkpoints.raw import read_scalar
from nanogpt_cli.checkpoints.stored_names import (
    WPE,
    WTE,
    Weight,
)
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.errors import CheckpointError, UsageError

SIZES = ("block_size", "vocab_size", "n_layer", "n_head", "n_embd")

NO_CARRIED_MODEL = "nanogpt reads nanoGPT, GPT-2, minGPT and build-nanogpt weights"


def settle_sizes(
    contents: Contents, envelope: Envelope, weights: Mapping[str, Weight], n_head: int | None
) -> tuple[GPTConfig, dict[str, str]]:
    sizes, sources = _sizes_from_shapes(weights), dict.fromkeys(SIZES, "shapes")
    stated = dict(envelope.model_args)
    if contents.hf_config is not None:
        settings = gpt2_settings(contents.hf_config)
        stated = {name: getattr(settings, name) for name in SIZES}
        if not contents.path.is_dir():  # a config.json beside the file, which may have been cropped
            del stated["block_size"]
    for name in SIZES:
        if (value := _stated_size(stated, name)) is not None:
            sizes[name], sources[name] = value, "file"
    if sizes["n_layer"] > len(weights):
        raise CheckpointError(
            f"the file's n_layer is {sizes['n_layer']}, and it holds {len(weights)} weights in all",
            hint=TWO_MODELS,
        )
    if n_head is not None:
        if "n_head" in sizes and sizes["n_head"] != n_head:
            raise UsageError(
                f"--n-head {n_head} contradicts the file, which says n_head {sizes['n_head']}",
                hint="leave --n-head out",
            )
        if n_head < 1 or sizes["n_embd"] % n_head:
            raise UsageError(
                f"--n-head {n_head} does not divide the model's {sizes['n_embd']} columns",
                hint="every head has an equal share of them",
            )
        sizes["n_head"], sources["n_head"] = n_head, "flag"
    elif "n_head" not in sizes:
        sizes["n_head"], sources["n_head"] = 1, "unknown"
    bias = "transformer.ln_f.bias" in weights
    dropout = stated.get("dropout")
    is_share = isinstance(dropout, int | float) and 0.0 <= dropout <= 1.0
    sources["bias"] = "shapes"
    config = GPTConfig(
        sizes["block_size"],
        sizes["vocab_size"],
        sizes["n_layer"],
        sizes["n_head"],
        sizes["n_embd"],
        dropout=float(cast(float, dropout)) if is_share else 0.0,
        bias=bias,
    )
    return config, sources


def _sizes_from_shapes(weights: Mapping[str, Weight]) -> dict[str, int]:
    for name in (WTE, WPE):
        if name not in weights:
            raise CheckpointError(
                f"missing weight {name!r}: it gives the model's sizes",
                hint="save the whole model's state_dict(), embeddings too",
            )
        if len(weights[name].shape) != 2:
            found = list(weights[name].shape)
            raise CheckpointError(
                f"{name!r} has shape {found}: it must have two axes", hint=NO_CARRIED_MODEL
            )
    layers = {
        part
        for name in weights
        if name.startswith("transformer.h.") and (part := name.split(".")[2]).isdecimal()
    }
    return {
        "vocab_size": weights[WTE].shape[0],
        "n_embd": weights[WTE].shape[1],
        "block_size": weights[WPE].shape[0],
        "n_layer": len(layers) or 1,
    }


def _stated_size(stated: Mapping[str, object], name: str) -> int | None:
    value = stated.get(name)
    if value is None:
        return None
    if isinstance(value, TensorInfo):
        if value.numel != 1:
            raise CheckpointError(
                f"the file's {name} is a tensor of shape {list(value.shape)}, not an integer",
                hint="save it as a plain number in model_args",
            )
        value = read_scalar(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CheckpointError(
            f"the file's {name} is {value!r}: it must be an integer",
            hint="save it as a plain number in model_args",
        )
    return value


def settle_activation(
    contents: Contents, envelope: Envelope, *, conv1d: bool, untied: bool, notes: list[str]
) -> tuple[str, str]:
    """Return the activation and where it came from; what no file says goes by its family."""
    if contents.hf_config is not None:
        return gpt2_settings(contents.hf_config).activation, "file"
    if (own := envelope.own.get("activation")) is not None:
        return cast(str, own), "file"
    if conv1d:
        notes.append("Conv1D weights without a config: taken as GPT-2's, with the tanh GELU")
        return "gelu_tanh", "assumed"
    if envelope.family == "build-nanogpt":
        return "gelu_tanh", "assumed"
    if envelope.family == "bare" and untied:
        notes.append("a bare file with an untied head: taken as minGPT's, with the tanh GELU")
        return "gelu_tanh", "assumed"
    return "gelu", "assumed"
