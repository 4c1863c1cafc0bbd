"""A training that saves its next checkpoint while the last one is being rewritten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from model_files import build, envelope

from nanogpt_cli import surgery
from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.conversion import ConversionSettings, convert
from nanogpt_cli.errors import CheckpointError

Tell = Callable[[int, int], None]


def crop(source: Path, out: Path, tell: Tell, verify: bool) -> None:
    opened = open_checkpoint(str(source))
    surgery.crop(opened, 8, output=out, verify=verify, progress=tell)


def to_file(source: Path, out: Path, tell: Tell, verify: bool) -> None:
    settings = ConversionSettings(to="safetensors")
    convert(str(source), out, settings, verify=verify, progress=tell)


def to_folder(source: Path, out: Path, tell: Tell, verify: bool) -> None:
    convert(str(source), out, ConversionSettings(to="hf"), verify=verify, progress=tell)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("work", [crop, to_file, to_folder])
def test_nothing_is_made_of_two_checkpoints(
    work: Callable[[Path, Path, Tell, bool], None], verify: bool, tmp_path: Path
) -> None:
    source, out = tmp_path / "ckpt.pt", tmp_path / "out.x"
    torch.save(envelope(build(block_size=16)), source)
    whole = source.read_bytes()

    def save_again(_done: int, _total: int) -> None:
        with source.open("r+b") as file:  # the bytes may be the same: who can tell
            file.write(whole)

    with pytest.raises(CheckpointError, match=r"ckpt.pt' was written again while it was read"):
        work(source, out, save_again, verify)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt.pt"]
