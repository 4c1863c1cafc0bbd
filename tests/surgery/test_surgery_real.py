"""Crops of checkpoints that others made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from crop_files import batch, differences, load, step

from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.model import GPT, GPTConfig
from nanogpt_cli.surgery import crop

pytestmark = pytest.mark.real

WPE = "transformer.wpe.weight"


def test_a_stock_training_run_keeps_its_logits_and_resumes(zoo: Path, tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    shutil.copy(zoo / "nanogpt-char" / "ckpt.pt", path)
    source = open_checkpoint(str(path))
    report = crop(source, 32)
    assert report.verification is not None
    assert (report.verification.positions, report.verification.largest_difference) == (32, 0)
    before, after = load(path), load(tmp_path / "ckpt-32.pt")
    assert set(differences(before, after)) == {
        f"/model/{WPE}",
        "/optimizer/state/1/exp_avg",
        "/optimizer/state/1/exp_avg_sq",
        "/model_args/block_size",
        "/config/block_size",
    }
    whole = load_model(source).eval()
    cropped = load_model(open_checkpoint(str(tmp_path / "ckpt-32.pt"))).eval()
    idx = batch(cropped)
    with torch.no_grad():
        assert torch.equal(whole(idx, idx)[0], cropped(idx, idx)[0])
    model = GPT(GPTConfig(**after["model_args"]))
    model.load_state_dict(after["model"])
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")
    optimizer.load_state_dict(after["optimizer"])
    assert step(model, optimizer, idx) > step(model, optimizer, idx)


@pytest.mark.parametrize(
    ("name", "block_size"),
    [
        ("minGPT-adder/model.pt", 4),
        ("makemore-names/model.pt", 9),
        ("hf-tiny-21", 100),
        ("hf-legacy-bin", 100),
    ],
)
def test_what_others_made_keeps_its_logits(
    zoo: Path, tmp_path: Path, name: str, block_size: int
) -> None:
    source = open_checkpoint(str(zoo / name))
    report = crop(source, block_size, output=tmp_path / "cropped")
    assert report.verification is not None
    assert report.verification.largest_difference == 0
    cropped = open_checkpoint(report.output)
    assert cropped.config.block_size == block_size
    assert cropped.architecture.masks.keys() == source.architecture.masks.keys()
