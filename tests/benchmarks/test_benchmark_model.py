"""The harness's random model: one set of weights in every file that is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("benchmarks.shapes", reason="only in a checkout")

from benchmarks.random_model import draw_model, ensure_model
from benchmarks.shapes import TINY
from benchmarks.workers.gguf_file import LINEARS, is_reduced, list_tensors, write_gguf
from benchmarks.workers.hf_tensors import HFTensors
from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.config import GPTConfig

WIDE = GPTConfig(
    block_size=16, vocab_size=67, n_layer=2, n_head=2, n_embd=64, activation="gelu_tanh"
)
"""Q8_0 takes 32 columns at a time."""


def test_both_files_hold_the_same_model(tmp_path: Path) -> None:
    folder = ensure_model(tmp_path, "tiny", TINY)
    drawn = draw_model(TINY)
    for path in (folder / "ckpt.pt", folder / "hf"):
        read = load_model(open_checkpoint(str(path)))
        assert read.config == TINY
        for name, value in drawn.state_dict().items():
            assert torch.equal(read.state_dict()[name], value), name
    before = (folder / "ckpt.pt").stat().st_mtime_ns
    assert ensure_model(tmp_path, "tiny", TINY) == folder
    assert (folder / "ckpt.pt").stat().st_mtime_ns == before


def test_greedy_ids_vary() -> None:
    ids = draw_model(TINY).generate(torch.tensor([[1, 2, 3]]), 48, temperature=0)[0].tolist()
    assert len(set(ids)) >= 8


def test_gguf_names_hold_the_models_tensors(tmp_path: Path) -> None:
    tensors = dict(list_tensors(HFTensors(ensure_model(tmp_path, "wide", WIDE))))
    model = draw_model(WIDE).state_dict()
    assert len(tensors) == 4 + 12 * WIDE.n_layer
    assert sum(array.size for array in tensors.values()) == draw_model(WIDE).get_num_params(False)
    for theirs, ours in LINEARS.items():
        expected = model[f"transformer.h.1.{theirs}.weight"].numpy()
        assert (tensors[f"blk.1.{ours}.weight"] == expected).all()
    assert (tensors["output_norm.bias"] == model["transformer.ln_f.bias"].numpy()).all()
    reduced = [name for name, array in tensors.items() if is_reduced(name, array)]
    assert len(reduced) == 1 + 4 * WIDE.n_layer
    assert "position_embd.weight" not in reduced


@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 0.0), ("f16", 2e-4), ("q8_0", 3e-3)])
def test_a_gguf_file_is_read_back(tmp_path: Path, dtype: str, tolerance: float) -> None:
    gguf: Any = pytest.importorskip("gguf")
    tensors = HFTensors(ensure_model(tmp_path, "wide", WIDE))
    write_gguf(tensors, tmp_path / "model.gguf", dtype)
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    read = {tensor.name: tensor for tensor in reader.tensors}
    expected = dict(list_tensors(tensors))
    assert read.keys() == expected.keys()
    for name, array in expected.items():
        found = gguf.quants.dequantize(read[name].data, read[name].tensor_type)
        error = abs(found.reshape(array.shape) - array).max()
        assert error <= (tolerance if is_reduced(name, array) else 0.0), name
