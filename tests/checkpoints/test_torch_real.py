"""Files that others made: every tensor and value as torch.load gives them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_files import assert_same

from nanogpt_cli.checkpoints.survey import survey
from nanogpt_cli.checkpoints.torch_legacy import TorchLegacy
from nanogpt_cli.checkpoints.torch_zip import TorchZip

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("name", "format_", "tensors"),
    [
        ("nanogpt-char/ckpt.pt", TorchZip(), 110),
        ("minGPT-adder/model.pt", TorchZip(), 44),
        ("makemore-names/model.pt", TorchZip(), 57),
        ("hf-legacy-bin/pytorch_model.bin", TorchLegacy(), 33),
    ],
)
def test_real_files(zoo: Path, name: str, format_: TorchZip | TorchLegacy, tensors: int) -> None:
    path = zoo / name
    assert [entry.name for entry in (TorchZip(), TorchLegacy()) if entry.sniff(path)] == [
        format_.name
    ]
    contents = format_.describe(path)
    assert assert_same(contents, torch.load(path, weights_only=True)) == tensors
    assert {use.verdict for use in contents.globals} == {"known"}
    assert survey(path).globals == contents.globals
