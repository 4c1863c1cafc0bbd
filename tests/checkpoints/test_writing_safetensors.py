"""Safetensors files that we write, as the reference library sees them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from nanogpt_cli.checkpoints import describe
from nanogpt_cli.checkpoints.contents import DTYPE_BYTES, TensorInfo
from nanogpt_cli.checkpoints.plans import Stored
from nanogpt_cli.checkpoints.safetensors_files import write
from nanogpt_cli.checkpoints.safetensors_files.write import SafetensorsPlan
from nanogpt_cli.checkpoints.writing.atomic import write_file
from nanogpt_cli.checkpoints.writing.remaking import CastLoss, remake
from nanogpt_cli.errors import CheckpointError

TENSORS = {
    "odd": torch.arange(3, dtype=torch.uint8),
    "half": torch.randn(5).to(torch.bfloat16),
    "matrix": torch.randn(4, 6),
    "count": torch.tensor(7),
    '\u00e9 "quoted"': torch.randn(1, 1, 2, 2, dtype=torch.float64),
    "nothing": torch.zeros(0, 2),
    "flag": torch.tensor([True]),
}


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Stored]:
    save_file(TENSORS, tmp_path / "source.safetensors")
    root = describe(tmp_path / "source.safetensors").root
    assert isinstance(root, dict)
    return root


def test_every_type_comes_back_with_its_metadata(tmp_path: Path, source: dict[str, Stored]) -> None:
    path = tmp_path / "x.safetensors"
    plan = SafetensorsPlan(source, {"format": "pt", "who": "\u00e9"})
    write_file(path, plan)
    assert path.stat().st_size == plan.total_bytes
    back = load_file(path)
    assert set(back) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt", "who": "\u00e9"}
    root = describe(path).root
    assert isinstance(root, dict)
    assert {info.offset % DTYPE_BYTES[info.dtype] for info in root.values()} == {0}


def test_no_tensors_and_no_metadata(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_file(path, SafetensorsPlan({}, {}))
    assert load_file(path) == {}


def test_a_header_that_no_reader_takes_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "HEADER_LIMIT", 64)
    with pytest.raises(CheckpointError, match="a header of 80 bytes: the limit is 64"):
        SafetensorsPlan({}, {"k": "v" * 50})
    assert SafetensorsPlan({}, {"k": "v" * 39}).total_bytes == 72


def test_remade_tensors_stream_in(tmp_path: Path, source: dict[str, Stored]) -> None:
    info = source["matrix"]
    assert isinstance(info, TensorInfo)
    loss = CastLoss()
    tensors: dict[str, Stored] = {
        "transposed": remake(info, lambda matrix: matrix.t()),
        "cut": remake(info, lambda matrix: matrix[1:3, :2]),
        "cast": remake(info, dtype="float16", name="cast", loss=loss),
        "element": remake(info, lambda matrix: matrix[0, 0]),
    }
    path = tmp_path / "x.safetensors"
    write_file(path, SafetensorsPlan(tensors, {}))
    back, matrix = load_file(path), TENSORS["matrix"]
    assert torch.equal(back["transposed"], matrix.t())
    assert torch.equal(back["cut"], matrix[1:3, :2])
    assert torch.equal(back["cast"], matrix.to(torch.float16))
    assert torch.equal(back["element"], matrix[0, 0])
    changed = (matrix.to(torch.float16).float() - matrix).abs()
    assert (loss.cast, loss.changed) == (24, int((changed > 0).sum()))
    assert (loss.largest, loss.where) == (changed.max().item(), "cast")


def test_a_large_transposed_matrix_is_made_a_few_rows_at_a_time(tmp_path: Path) -> None:
    matrix = torch.randn(700, 900)
    save_file({"w": matrix}, tmp_path / "source.safetensors")
    info = describe(tmp_path / "source.safetensors").root["w"]  # type: ignore[index]
    made = remake(info, lambda tensor: tensor.t())
    sizes = [len(chunk) for chunk in made.chunks()]
    assert len(sizes) > 2
    assert sum(sizes) == made.nbytes
    assert max(sizes) <= 1 << 20
    joined = torch.frombuffer(bytearray(b"".join(made.chunks())), dtype=torch.float32)
    assert torch.equal(joined.view(900, 700), matrix.t())


def test_a_row_that_is_longer_than_a_chunk_is_a_chunk(tmp_path: Path) -> None:
    matrix = torch.randn(2, (1 << 18) + 1)
    save_file({"w": matrix}, tmp_path / "source.safetensors")
    info = describe(tmp_path / "source.safetensors").root["w"]  # type: ignore[index]
    chunks = [bytes(chunk) for chunk in remake(info).chunks()]
    assert chunks == [row.numpy().tobytes() for row in matrix]
