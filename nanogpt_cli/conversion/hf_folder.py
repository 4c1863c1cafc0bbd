"""The output `hf`: a folder that transformers' GPT2LMHeadModel loads, nothing missing or left."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.conversion.plan import ModelPlan

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
RECORD = "conversion.json"

ACTIVATION_NAMES = {"gelu_tanh": "gelu_new", "gelu": "gelu"}
"""Our names -> transformers'."""

SIZES = ("block_size", "vocab_size", "n_layer", "n_head", "n_embd")
WIDTHS = ("float64", "float32")


def config_json(
    model: ModelPlan, checkpoint: Checkpoint, end_of_text: int | None
) -> dict[str, object]:
    """Return what config.json says.

    Args:
        model: the output's.
        checkpoint: the source; a Hugging Face one keeps its own ids of begin and end.
        end_of_text: the tokenizer's id of it, or None.
    """
    config = model.config
    begin, end = _special_ids(checkpoint, config, end_of_text)
    dtype = widest(model.dtypes)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.n_embd,
        "n_positions": config.block_size,
        "n_ctx": config.block_size,
        "n_inner": None,
        "vocab_size": config.vocab_size,
        "activation_function": ACTIVATION_NAMES[config.activation],
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": config.tied_head,
        "attn_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "bos_token_id": begin,
        "eos_token_id": end,
        "torch_dtype": dtype,
        "dtype": dtype,
        "nanogpt": {
            "bias": config.bias,
            "activation": config.activation,
            "sizes": {name: getattr(config, name) for name in SIZES},
        },
    }


def generation_config_json(config: Mapping[str, object]) -> dict[str, object]:
    """Return what generation_config.json says beside a config.json."""
    ids = {name: config[name] for name in ("bos_token_id", "eos_token_id")}
    return {"_from_model_config": True, **ids}


def to_text(content: Mapping[str, object]) -> bytes:
    """Return JSON as it stands in a file."""
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def widest(dtypes: Iterable[str]) -> str:
    """Return the type that holds every value of these types."""
    found = set(dtypes)
    for wide in WIDTHS:
        if wide in found:
            return wide
    return found.pop() if len(found) == 1 else "float32"


def _special_ids(
    checkpoint: Checkpoint, config: GPTConfig, end_of_text: int | None
) -> tuple[object, object]:
    """Return the ids that begin and end a text; null where the vocabulary has none."""
    source = checkpoint.contents.hf_config or {}
    ids = []
    for name in ("bos_token_id", "eos_token_id"):
        given = source.get(name)
        known = type(given) is int and 0 <= given < config.vocab_size
        ids.append(given if known else end_of_text)
    return ids[0], ids[1]
