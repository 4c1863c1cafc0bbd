"""Files that others made: every tensor and value as torch.load gives them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_files import assert_same, infos

from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.checkpoints.torch_files.legacy_format import TorchLegacy
from nanogpt_cli.checkpoints.torch_files.zip_format import TorchZip
from nanogpt_cli.errors import NanoGPTError

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


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    name=st.sampled_from(["minGPT-adder/model.pt", "makemore-names/model.pt"]),
    changes=st.lists(st.tuples(st.integers(-9000, 9000), st.integers(0, 255)), max_size=5),
    cut=st.integers(0, 500),
)
def test_broken_copies_of_real_files(
    zoo: Path, tmp_path: Path, name: str, changes: list[tuple[int, int]], cut: int
) -> None:
    # The pickle lies at the beginning and the directory at the end; weights have no wrong bytes.
    data = bytearray((zoo / name).read_bytes())
    for place, value in changes:
        data[place] = value
    path = tmp_path / "model.pt"
    path.write_bytes(data[: len(data) - max(0, cut - 400)])
    try:
        for info in infos(TorchZip().describe(path).root):
            TensorReader().read(info).sum()
    except NanoGPTError as error:
        assert str(path) in error.message  # noqa: PT017
