"""GPT-2 as a GGUF file, written from the very weights that the other engines read.

Source: the `gguf` package's names for the architecture "gpt2", and its own Q8_0.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.workers.hf_tensors import HFTensors

LINEARS = {
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
NORMS = {"ln_1": "attn_norm", "ln_2": "ffn_norm"}


def list_tensors(tensors: HFTensors) -> Iterator[tuple[str, Any]]:
    """Yield GGUF's names with float32 arrays; the head is left out, since it is tied."""
    yield "token_embd.weight", tensors["wte.weight"]
    yield "position_embd.weight", tensors["wpe.weight"]
    yield "output_norm.weight", tensors["ln_f.weight"]
    yield "output_norm.bias", tensors["ln_f.bias"]
    for number in range(tensors.config["n_layer"]):
        for theirs, ours in NORMS.items():
            for part in ("weight", "bias"):
                yield f"blk.{number}.{ours}.{part}", tensors[f"h.{number}.{theirs}.{part}"]
        for theirs, ours in LINEARS.items():
            matrix, bias = tensors.linear(f"h.{number}.{theirs}")
            yield f"blk.{number}.{ours}.weight", matrix
            yield f"blk.{number}.{ours}.bias", bias


def is_reduced(name: str, array: Any) -> bool:
    """Whether a tensor takes the file's type: the matrices do, save the positions."""
    return array.ndim == 2 and name != "position_embd.weight"


def write_gguf(tensors: HFTensors, path: Path, dtype: str) -> None:
    """Write the file.

    Args:
        tensors: of GPT-2.
        path: to write.
        dtype: "f32", "f16" or "q8_0", of the matrices; the rest is float32.

    Raises:
        KeyError: another dtype.
    """
    gguf: Any = importlib.import_module("gguf")
    kind = gguf.GGMLQuantizationType[dtype.upper()]
    config = tensors.config
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_name("random weights")
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_block_count(config["n_layer"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    # Ids go in and ids come out: no tokenizer is needed, only how many ids there are.
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(config["vocab_size"])
    for name, array in list_tensors(tensors):
        if is_reduced(name, array):
            writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
