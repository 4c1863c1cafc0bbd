"""Hugging Face's config.json: whether it is one, and what it asks of a GPT-2.

What our architecture cannot carry is refused here by field and value, before any weight is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.checkpoints.files import DAMAGED
from nanogpt_cli.config import ACTIVATIONS
from nanogpt_cli.errors import CheckpointError, name_some

CONFIG_NAME = "config.json"
CONFIG_LIMIT = 10_000_000

ACTIVATION_NAMES = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu": "gelu",
    "gelu_python": "gelu",
}
"""transformers' names -> ours: several spellings of two functions, apart by rounding alone."""

ARCHITECTURES = frozenset(
    prefix + name for prefix in ("", "TF", "Flax") for name in ("GPT2Model", "GPT2LMHeadModel")
)

SIZES = {
    "n_layer": ("num_hidden_layers", 12),
    "n_head": ("num_attention_heads", 12),
    "n_embd": ("hidden_size", 768),
    "n_positions": ("max_position_embeddings", 1024),
    "vocab_size": ("vocab_size", 50257),
}
"""Field -> transformers' other name of it, and the value it takes where the file has neither."""

FORBIDDEN: dict[str, tuple[object, ...]] = {
    "scale_attn_weights": (True, None),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "pruned_heads": ({}, None),
}
"""Field -> the values that leave the model a plain GPT-2. `reorder_and_upcast_attn` is not here:
it orders the float32 sums of half-precision attention and changes nothing in float32."""


@dataclass(frozen=True)
class HFSettings:
    """What a Hugging Face config.json says of a GPT-2, in our names.

    Args:
        activation: "gelu" or "gelu_tanh".
        tied_head: whether the head is wte, as `tie_word_embeddings` says.
        nanogpt: our own entry of the file (`bias`, `activation`, `sizes`), or None.
    """

    n_layer: int
    n_head: int
    n_embd: int
    block_size: int
    vocab_size: int
    activation: str
    tied_head: bool
    nanogpt: dict[str, object] | None = None


def read_hf_config(folder: Path) -> dict[str, object] | None:
    """Return the folder's config.json where it is Hugging Face's, else None.

    A file that names no `model_type` counts if it has GPT-2's sizes in Hugging Face's words.

    Raises:
        CheckpointError: a config.json that cannot be read or is not JSON.
    """
    path = folder / CONFIG_NAME
    if not path.is_file():
        return None
    config = load_json(path, CONFIG_LIMIT)
    return config if is_hf_config(config) else None


def is_hf_config(config: Mapping[str, object]) -> bool:
    """Return whether the keys of a config.json are Hugging Face's."""
    if isinstance(config.get("model_type"), str) or isinstance(config.get("architectures"), list):
        return True
    has_sizes = all(name in config for name in ("n_layer", "n_head", "n_embd"))
    return has_sizes and ("n_positions" in config or "n_ctx" in config)


def load_json(path: Path, limit: int) -> dict[str, object]:
    """Return the JSON object in a file of at most `limit` bytes.

    Raises:
        CheckpointError: a file that cannot be read, is longer, or holds no JSON object.
    """
    try:
        size = path.stat().st_size
        if size > limit:
            raise CheckpointError(f"{str(path)!r} has {size} bytes: the limit is {limit}", DAMAGED)
        text = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {str(path)!r}: {error.strerror}") from error
    try:
        # A ValueError of this call is about the text: bad JSON, bad UTF-8, a number too long.
        value = json.loads(text)
    except RecursionError:
        raise CheckpointError(
            f"{str(path)!r} is not valid: JSON nested too deeply", DAMAGED
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{str(path)!r} is not valid JSON: {error}", DAMAGED) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{str(path)!r} does not hold a JSON object", DAMAGED)
    return value


def gpt2_settings(config: Mapping[str, object]) -> HFSettings:
    """Return what a Hugging Face config says of a GPT-2.

    Raises:
        CheckpointError: another model type, or a field whose value our architecture cannot have;
            field and value are named.

    Source: transformers, models/gpt2/configuration_gpt2.py and modeling_gpt2.py (5.24).
    """
    _check_kind(config)
    sizes = _sizes(config)
    for field, allowed in FORBIDDEN.items():
        if config.get(field) not in allowed:
            raise _refusal(field, config[field], f"only {json.dumps(allowed[0])} is GPT-2's")
    _check_inner(config, sizes["n_embd"])
    epsilon = config.get("layer_norm_epsilon", 1e-5)
    # As float32 holds it: writers that take it from a tensor say 9.999999747378752e-06.
    if not isinstance(epsilon, float) or not math.isclose(epsilon, 1e-5, rel_tol=2**-24):
        raise _refusal("layer_norm_epsilon", epsilon, "only 1e-05 is carried")
    nanogpt = _own_entry(config)
    return HFSettings(
        n_layer=sizes["n_layer"],
        n_head=sizes["n_head"],
        n_embd=sizes["n_embd"],
        block_size=sizes["n_positions"],
        vocab_size=sizes["vocab_size"],
        activation=_activation(config, nanogpt),
        tied_head=_flag(config, "tie_word_embeddings", True),
        nanogpt=nanogpt,
    )


def _refusal(field: str, value: object, limit: str) -> CheckpointError:
    return CheckpointError(
        f"config.json has {field} {value!r}: {limit}",
        hint="plain GPT-2 models alone are run: where config.json is wrong, correct it",
    )


def _check_kind(config: Mapping[str, object]) -> None:
    model_type = config.get("model_type")
    architectures = config.get("architectures") or []
    named = architectures if isinstance(architectures, list) else [architectures]
    if model_type is not None and model_type != "gpt2":
        raise CheckpointError(
            f"config.json has model_type {model_type!r}: only 'gpt2' is this architecture",
            hint="nanogpt runs GPT-2 and nanoGPT models alone",
        )
    foreign = [name for name in map(str, named) if name not in ARCHITECTURES]
    if foreign:
        raise CheckpointError(
            f"config.json has architectures {name_some(foreign)}: only GPT2LMHeadModel and "
            "GPT2Model are language models of this architecture",
            hint="a model with another head on top has no text to give",
        )
    quantization = config.get("quantization_config")
    if quantization:
        method = (
            quantization.get("quant_method") if isinstance(quantization, dict) else quantization
        )
        raise CheckpointError(
            f"config.json has quantization_config ({method!r}): quantized weights are not read",
            hint="use the model it was made from, in float32, float16 or bfloat16",
        )


def _sizes(config: Mapping[str, object]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for field, (alias, default) in SIZES.items():
        names = [name for name in (field, alias) if config.get(name) is not None]
        if field == "n_positions" and not names and config.get("n_ctx") is not None:
            names = ["n_ctx"]
        name = names[0] if names else field
        value = config[name] if names else default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise _refusal(name, value, "it must be an integer of at least 1")
        sizes[field] = value
    return sizes


def _check_inner(config: Mapping[str, object], n_embd: int) -> None:
    n_inner = config.get("n_inner")
    if n_inner is not None and (n_inner != 4 * n_embd or isinstance(n_inner, bool)):
        raise _refusal("n_inner", n_inner, f"only 4 x n_embd = {4 * n_embd} is carried")


def _activation(config: Mapping[str, object], nanogpt: Mapping[str, object] | None) -> str:
    name = config.get("activation_function", "gelu_new")
    ours = ACTIVATION_NAMES.get(name) if isinstance(name, str) else None
    if ours is None:
        known = ", ".join(ACTIVATION_NAMES)
        raise _refusal("activation_function", name, f"known are {known}")
    declared = nanogpt.get("activation") if nanogpt else None
    if declared is not None and declared != ours:
        raise _refusal("nanogpt.activation", declared, f"its activation_function is {name!r}")
    return ours


def _own_entry(config: Mapping[str, object]) -> dict[str, object] | None:
    entry = config.get("nanogpt")
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise _refusal("nanogpt", entry, "it must be an object")
    bias, activation = entry.get("bias"), entry.get("activation")
    if bias is not None and not isinstance(bias, bool):
        raise _refusal("nanogpt.bias", bias, "it must be true or false")
    if activation not in (*ACTIVATIONS, None):
        raise _refusal("nanogpt.activation", activation, f"known are {', '.join(ACTIVATIONS)}")
    return entry


def _flag(config: Mapping[str, object], field: str, default: bool) -> bool:
    value = config.get(field)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _refusal(field, value, "it must be true or false")
    return value
