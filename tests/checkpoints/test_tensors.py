"""The reader of tensors: maps where it can, copies where it must, and trusts no old description."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_files import infos, rezip, save, unzip, write

from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.checkpoints.torch_files.legacy_format import TorchLegacy
from nanogpt_cli.checkpoints.torch_files.zip_format import TorchZip
from nanogpt_cli.errors import CheckpointError


def place(path: Path, offset: int, shape: tuple[int, ...], dtype: str = "float32") -> TensorInfo:
    """Return a contiguous tensor's place in a plain file."""
    stride = tuple(torch.empty(shape, device="meta").stride())
    return TensorInfo(dtype, shape, stride, path, offset, "s", path.stat().st_size)


@pytest.fixture
def floats(tmp_path: Path) -> Path:
    """Return a file of 0.0 to 63.0."""
    return write(tmp_path, struct.pack("<64f", *range(64)), "floats")


def test_any_offset_of_any_file(floats: Path) -> None:
    reader = TensorReader()
    assert reader.read(place(floats, 8, (2, 3))).tolist() == [[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]
    assert reader.read(place(floats, 252, ())).item() == 63.0
    assert reader.read(place(floats, 0, (64,))).sum().item() == 2016.0


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_unaligned_tensors_are_copied(tmp_path: Path, shift: int) -> None:
    path = write(tmp_path, bytes(shift) + struct.pack("<4f", 1, 2, 3, 4))
    read = TensorReader().read(place(path, shift, (4,)))
    assert read.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert read.data_ptr() % 4 == 0


def test_strides_overlaps_and_repeats(floats: Path) -> None:
    reader = TensorReader()
    column = TensorInfo("float32", (4,), (8,), floats, 4, "s", 256)
    windows = TensorInfo("float32", (3, 4), (1, 1), floats, 0, "s", 256)
    repeated = TensorInfo("float32", (2, 3), (0, 0), floats, 12, "s", 256)
    assert reader.read(column).tolist() == [1.0, 9.0, 17.0, 25.0]
    assert reader.read(windows)[2].tolist() == [2.0, 3.0, 4.0, 5.0]
    assert reader.read(repeated).tolist() == [[3.0] * 3] * 2
    assert reader.read(repeated).stride() == (0, 0)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_tensors_need_no_bytes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = write(tmp_path, b"")
    read = TensorReader().read(place(path, 0, shape, "bfloat16"))
    assert (read.shape, read.dtype) == (torch.Size(shape), torch.bfloat16)


def test_tensors_of_one_place_share_bytes_and_the_file_stays(floats: Path) -> None:
    before = floats.read_bytes()
    reader = TensorReader()
    one, other = reader.read(place(floats, 0, (8,))), reader.read(place(floats, 16, (2, 2)))
    one[4] = -1.0
    assert other[0, 0].item() == -1.0
    assert TensorReader().read(place(floats, 0, (8,)))[4].item() == 4.0
    assert floats.read_bytes() == before


def test_a_tensor_outlives_its_reader_and_its_file(floats: Path) -> None:
    read = TensorReader().read(place(floats, 0, (64,)))
    floats.unlink()
    assert read.sum().item() == 2016.0


def test_a_saved_tensor_does_not_drag_the_file_along(tmp_path: Path) -> None:
    path = write(tmp_path, struct.pack("<99999f", *range(99999)), "floats")
    assert len(save(TensorReader().read(place(path, 4, (10,))))) < 2000


def test_mapping_costs_no_memory(tmp_path: Path) -> None:
    size = 256 << 20
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(size)
    read = TensorReader().read(place(path, 0, (size // 4,)))
    before = anonymous_bytes()
    assert not read.any()
    assert anonymous_bytes() - before < 16 << 20


def anonymous_bytes() -> int:
    """Return the memory of this process that no file stands behind."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc/self/status here")
    line = next(line for line in status.read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def test_a_file_that_shrank_is_an_error(floats: Path) -> None:
    reader = TensorReader()
    info = place(floats, 0, (64,))
    kept = place(floats, 0, (8,))
    reader.read(info)
    os.truncate(floats, 128)
    for candidate in (reader, TensorReader()):
        with pytest.raises(CheckpointError, match="has 128 bytes, and a tensor ends at byte 256"):
            candidate.read(info)
        assert candidate.read(kept)[7].item() == 7.0
    os.truncate(floats, 0)
    for candidate in (reader, TensorReader()):
        with pytest.raises(CheckpointError, match="has 0 bytes"):
            candidate.read(kept)


def test_a_file_that_grew_is_mapped_as_it_was(floats: Path) -> None:
    reader = TensorReader()
    reader.read(place(floats, 0, (64,)))
    with floats.open("ab") as file:
        file.write(struct.pack("<f", 64))
    with pytest.raises(CheckpointError, match="has 260 bytes, and a tensor ends at byte 260"):
        reader.read(place(floats, 256, (1,)))
    assert TensorReader().read(place(floats, 256, (1,))).item() == 64.0


def test_a_file_that_vanished_is_an_error(floats: Path) -> None:
    info = place(floats, 0, (64,))
    floats.unlink()
    with pytest.raises(CheckpointError, match="No such file or directory"):
        TensorReader().read(info)


def test_compressed_members(tmp_path: Path) -> None:
    value = {"a": torch.arange(50.0), "b": torch.arange(30, dtype=torch.int16), "c": torch.ones(3)}
    value["d"] = value["a"][7:9]
    path = write(tmp_path, rezip(unzip(save(value)), compressed=True))
    reader = TensorReader()
    for _ in range(2):
        for info, expected in zip(
            infos(TorchZip().describe(path).root), value.values(), strict=True
        ):
            assert info.member
            assert torch.equal(reader.read(info), expected)


def test_a_compressed_member_that_changed_is_an_error(tmp_path: Path) -> None:
    members = unzip(save({"a": torch.arange(50.0)}))
    path = write(tmp_path, rezip(members, compressed=True))
    (info,) = infos(TorchZip().describe(path).root)
    for raw in (bytes(100), bytes(400)):
        write(tmp_path, rezip({**members, "archive/data/0": raw}, compressed=True))
        with pytest.raises(CheckpointError, match="archive/data/0"):
            TensorReader().read(info)
    write(tmp_path, rezip({"archive/version": b"3"}, compressed=True))
    with pytest.raises(CheckpointError, match="it lacks 'archive/data/0'"):
        TensorReader().read(info)
    path.unlink()
    with pytest.raises(CheckpointError, match="No such file or directory"):
        TensorReader().read(info)


def test_many_files_at_once(tmp_path: Path) -> None:
    reader = TensorReader()
    paths = [write(tmp_path, save(torch.full((3,), float(i))), f"{i}.pt") for i in range(20)]
    tensors = [reader.read(infos(TorchZip().describe(path).root)[0]) for path in paths]
    assert [tensor[0].item() for tensor in tensors] == [float(i) for i in range(20)]


def test_legacy_files_of_odd_offsets(tmp_path: Path) -> None:
    for length in range(1, 9):
        value = {"k" * length: torch.arange(4.0), "b": torch.arange(3), "c": torch.tensor(True)}
        path = write(tmp_path, save(value, legacy=True))
        read = [TensorReader().read(info) for info in infos(TorchLegacy().describe(path).root)]
        assert [tensor.tolist() for tensor in read] == [[0.0, 1.0, 2.0, 3.0], [0, 1, 2], True]


def test_requires_grad_is_the_callers_business(floats: Path) -> None:
    info = replace(place(floats, 0, (4,)), requires_grad=True)
    assert not TensorReader().read(info).requires_grad
