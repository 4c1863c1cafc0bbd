"""Files that people bring, as `nanogpt inspect` sees them: each an answer, none a traceback."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Outcome, Run
from model_files import build, envelope, save_nanogpt

CONV1D = ("attn.c_attn.weight", "c_proj.weight", "c_fc.weight")


@dataclass
class TrainerConfig:
    """A config object as build-nanogpt pickles it."""

    block_size: int = 16
    vocab_size: int = 65
    n_layer: int = 2
    n_head: int = 3
    n_embd: int = 24


def lines(outcome: Outcome) -> list[str]:
    return [" ".join(line.split()) for line in outcome.out.splitlines()]


def save(path: Path, **changed: Any) -> Path:
    torch.save({**envelope(build()), **changed}, path)
    return path


def hf_state() -> dict[str, torch.Tensor]:
    """The weights as Hugging Face stores them: Conv1D matrices, no head."""
    return {
        name: tensor.t().contiguous() if name.endswith(CONV1D) else tensor
        for name, tensor in build().state_dict().items()
        if name != "lm_head.weight"
    }


def test_a_pickled_config_is_kept_as_data(nanogpt: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    saved = {
        "model": build().state_dict(),
        "config": TrainerConfig(),
        "step": 7,
        "val_loss": np.float64(3.25),
    }
    torch.save(saved, path)
    outcome = nanogpt("inspect", path)
    shown = lines(outcome)
    assert outcome.code == 0
    assert any(line.startswith(f"{__name__}.TrainerConfig inert ") for line in shown)
    assert "n_head 3 the file" in shown
    assert "activation gelu_tanh assumed: the file does not say" in shown
    assert "iter_num 7" in shown
    assert any(
        line.startswith("best_val_loss 3.2500 the last, maybe not the best: the file stores")
        for line in shown
    )


def test_a_renamed_pytorch_model_bin(nanogpt: Run, tmp_path: Path) -> None:
    torch.save(hf_state(), tmp_path / "ckpt.pt")
    outcome = nanogpt("inspect", tmp_path / "ckpt.pt", "--n-head", 3)
    assert outcome.code == 0
    assert "n_head 3 a flag" in lines(outcome)
    assert "Conv1D weights without a config: taken as GPT-2's, with the tanh GELU" in outcome.err
    sizes = {"n_layer": 2, "n_head": 3, "n_embd": 24, "n_positions": 16, "vocab_size": 65}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    outcome = nanogpt("inspect", tmp_path / "ckpt.pt")
    assert "n_head 3 config.json" in lines(outcome)


def test_a_tensorflow_shard(nanogpt: Run, tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    path.write_bytes(b"\x0b\xf3\xd1\x3c" * 500)
    outcome = nanogpt("inspect", path)
    assert outcome.code == 1
    assert "is not a PyTorch checkpoint" in outcome.err
    assert "nanogpt convert gpt2" in outcome.err
    assert lines(outcome)[1] == "not opened, nothing was run, 2.0 kB (2,000 bytes)"


def test_storages_of_a_gpu(nanogpt: Run, tmp_path: Path) -> None:
    path = save_nanogpt(tmp_path / "ckpt.pt", build())
    data = path.read_bytes()
    moved = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00gpu")
    assert moved != data
    path.write_bytes(moved)
    assert nanogpt("inspect", path).code == 0


def test_no_head_is_a_tied_one(nanogpt: Run, tmp_path: Path) -> None:
    state = dict(build().state_dict())
    del state["lm_head.weight"]
    outcome = nanogpt("inspect", save(tmp_path / "ckpt.pt", model=state))
    assert outcome.code == 0
    assert "head absent tied: no head is stored, wte serves" in lines(outcome)
    assert outcome.err.count("note:") == 1


def test_a_vocabulary_that_disagrees(nanogpt: Run, tmp_path: Path) -> None:
    args = {**envelope(build())["model_args"], "vocab_size": 70}
    outcome = nanogpt("inspect", save(tmp_path / "ckpt.pt", model_args=args))
    assert outcome.code == 1
    for part in ("'transformer.wte.weight'", "[65, 24]", "[70, 24]", "1 tensor of 28"):
        assert part in outcome.err
    assert "model.transformer.wte.weight [65, 24] float32" in lines(outcome)


def test_missing_weights_are_counted_and_five_named(nanogpt: Run, tmp_path: Path) -> None:
    state = {name: each for name, each in build().state_dict().items() if ".h.1." not in name}
    outcome = nanogpt("inspect", save(tmp_path / "ckpt.pt", model=state))
    assert outcome.code == 1
    assert "missing 12 weight" in outcome.err.replace("12 missing", "missing 12")
    assert "and 7 more" in outcome.err


def test_a_prefix_that_nobody_knows(nanogpt: Run, tmp_path: Path) -> None:
    state = {f"trainer_net.{name}": each for name, each in build().state_dict().items()}
    outcome = nanogpt("inspect", save(tmp_path / "ckpt.pt", model=state))
    assert outcome.code == 1
    assert "'trainer_net.'" in outcome.err
    assert outcome.err.count("trainer_net.") == 1


def test_a_folder(nanogpt: Run, tmp_path: Path) -> None:
    save_nanogpt(tmp_path / "ckpt.pt", build())
    assert lines(nanogpt("inspect", tmp_path))[0] == str(tmp_path / "ckpt.pt")


@pytest.mark.parametrize("name", ["ckpt.pt", "weights.bin", "noextension"])
def test_content_decides_and_never_the_name(nanogpt: Run, tmp_path: Path, name: str) -> None:
    path = save_nanogpt(tmp_path / name, build())
    assert nanogpt("inspect", path).code == 0


@pytest.mark.real
def test_every_real_file(nanogpt: Run, zoo: Path) -> None:
    for name in ("nanogpt-char", "minGPT-adder", "makemore-names", "hf-tiny-21", "hf-legacy-bin"):
        for view in ((), ("--tensors",), ("--check",), ("--stats",)):
            outcome = nanogpt("inspect", zoo / name, *view)
            assert outcome.code == 0, (name, view, outcome.err)


@pytest.mark.real
def test_a_real_file_cut_at_every_997th_byte(nanogpt: Run, zoo: Path, tmp_path: Path) -> None:
    whole = (zoo / "minGPT-adder" / "model.pt").read_bytes()
    path = tmp_path / "ckpt.pt"
    for length in range(0, len(whole), 997):
        path.write_bytes(whole[:length])
        outcome = nanogpt("inspect", path, "-q")
        assert outcome.code == 1
        assert outcome.err.count("error: ") == 1
        assert len(outcome.err.splitlines()) <= 2
