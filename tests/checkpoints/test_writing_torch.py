"""Torch files that we write, as torch, zipfile and our own reader see them."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nanogpt_cli.checkpoints import describe
from nanogpt_cli.checkpoints.plans import Bytes, NewTensor, Stored
from nanogpt_cli.checkpoints.torch_files.dump import Called, Place, dump, ordered
from nanogpt_cli.checkpoints.torch_files.write import plan_torch
from nanogpt_cli.checkpoints.torch_files.zip_write import ALIGNMENT, ZipPlan, ZipRecord
from nanogpt_cli.checkpoints.torch_files.zips import read_directory
from nanogpt_cli.checkpoints.writing.atomic import write_file
from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.pickles import Global, Record


class Memory:
    """A sink in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: Bytes) -> None:
        self.data += data

    def patch(self, position: int, data: bytes) -> None:
        self.data[position : position + len(data)] = data


def written(root: object) -> bytes:
    plan, sink = plan_torch(root), Memory()
    plan.write_to(sink)
    assert len(sink.data) == plan.total_bytes
    return bytes(sink.data)


def loaded(root: object, **options: Any) -> Any:
    return torch.load(io.BytesIO(written(root)), **{"weights_only": True, **options})


def made(tensor: torch.Tensor, parts: int = 3) -> NewTensor:
    data = bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    step = len(data) // parts + 1
    dtype = str(tensor.dtype).removeprefix("torch.")
    chunks = [data[at : at + step] for at in range(0, len(data), step)]
    return NewTensor(dtype, tuple(tensor.shape), lambda: chunks)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.tuples(inner, inner)
        | st.sets(st.integers())
    ),
    max_leaves=20,
)


@given(plain)
def test_plain_values_come_back(value: Any) -> None:
    assert loaded({"value": value}) == {"value": value}


def test_half_a_pair_of_surrogates_comes_back() -> None:
    assert loaded(["\ud800"]) == ["\ud800"]


def test_equal_texts_are_written_alike_whether_or_not_one_object() -> None:
    texts = [chr(955) * 2 for _ in range(2)]
    assert dump(texts, no_place) == dump(texts[:1] * 2, no_place)


def no_place(tensor: Stored) -> Place:
    raise AssertionError(tensor)


def test_long_lists_and_dicts_come_back() -> None:
    value = {"list": list(range(5000)), "dict": {str(n): n for n in range(5000)}}
    assert loaded(value) == value


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4),
        torch.randn(5, dtype=torch.float64),
        torch.randn(2, 3).to(torch.bfloat16),
        torch.randn(7).to(torch.float16),
        torch.arange(6).view(2, 3),
        torch.arange(5, dtype=torch.uint8),
        torch.tensor([True, False]),
        torch.tensor(2.5),
        torch.zeros(0, 3),
    ],
    ids=lambda tensor: f"{tensor.dtype} {list(tensor.shape)}",
)
def test_a_made_tensor_comes_back(tensor: torch.Tensor) -> None:
    back = loaded([made(tensor)])[0]
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)


def test_one_made_tensor_under_two_names_is_one_storage() -> None:
    tensor = made(torch.randn(100, 100))
    state = loaded({"one": tensor, "other": tensor})
    assert state["one"].data_ptr() == state["other"].data_ptr()
    assert len(written({"one": tensor, "other": tensor})) < 42_000


def test_shared_values_stay_shared() -> None:
    inner = [1]
    back = loaded({"a": inner, "b": inner, "c": [1]})
    assert back["a"] is back["b"]
    assert back["a"] is not back["c"]


def test_a_state_dict_can_be_an_ordered_dict() -> None:
    back = loaded({"model": ordered({"w": made(torch.ones(2))})})
    assert type(back["model"]) is OrderedDict


def test_requires_grad_is_kept() -> None:
    tensor = NewTensor("float32", (1,), lambda: [b"\0\0\0\0"], requires_grad=True)
    assert loaded([tensor])[0].requires_grad


def test_objects_and_names_are_written_by_name_alone() -> None:
    record = Record("no.such.module.Thing", state={"x": 1})
    path = Called("pathlib.PurePosixPath", args=("a", "b"))
    with zipfile.ZipFile(io.BytesIO(written([record, path, Global("os.sep")]))) as archive:
        pickle = archive.read("archive/data.pkl")
    assert b"cno.such.module\nThing\n" in pickle
    assert b"cpathlib\nPurePosixPath\n" in pickle
    assert b"cos\nsep\n" in pickle


@pytest.mark.parametrize("name", ["os.system\nx", "a.b\nR.", "x\x00.y"])
def test_a_name_cannot_smuggle_opcodes_in(name: str) -> None:
    with pytest.raises(CheckpointError, match="has the name"):
        plan_torch([Record(name)])


def test_a_value_without_a_place_is_an_error() -> None:
    with pytest.raises(CheckpointError, match="a value of type object cannot be written"):
        plan_torch([object()])


def test_records_are_aligned_stored_and_readable_by_every_reader(tmp_path: Path) -> None:
    root = {"a": made(torch.randn(3)), "b": made(torch.randn(5, 5)), "n": 1}
    path = tmp_path / "x.pt"
    write_file(path, plan_torch(root))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            *("archive/data.pkl", "archive/byteorder", "archive/data/0", "archive/data/1"),
            *("archive/version", "archive/.data/serialization_id"),
        ]
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.read("archive/version") == b"3\n"
        assert archive.read("archive/byteorder") == b"little"
        assert archive.read("archive/.data/serialization_id").isdigit()
        data = path.read_bytes()
        for info in archive.infolist():  # as readers of streams see it
            local = struct.unpack_from("<3I", data, info.header_offset + 14)
            assert local == (info.CRC, info.file_size, info.file_size)
    assert {member.start % ALIGNMENT for member in read_directory(path).values()} == {0}
    assert describe(path).container == "torch zip, version 3"
    mapped = torch.load(path, mmap=True, weights_only=True)
    assert torch.equal(mapped["b"], loaded(root)["b"])


def test_what_a_tensor_is_copied_from_may_change_no_more(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"a": torch.randn(100_000)}, path)
    plan = plan_torch(describe(path).root)
    os.truncate(path, 200_000)
    with pytest.raises(CheckpointError, match="bytes too early"):
        write_file(tmp_path / "y.pt", plan)
    assert [each.name for each in tmp_path.iterdir()] == ["x.pt"]


def test_tensors_that_overlap_in_part_share_one_storage(tmp_path: Path) -> None:
    base = torch.arange(10.0)
    views = {"a": base[:4], "b": base[3:6], "c": base[5:8], "t": base[:4].view(2, 2)}
    views |= {"d": base[9:], "e": base[8:9]}  # these touch, and share no byte
    path = tmp_path / "x.pt"
    torch.save(views, path)
    back = loaded(describe(path).root)
    for name, view in views.items():
        assert torch.equal(back[name], view)
    start = back["a"].data_ptr()
    assert [back[name].data_ptr() - start for name in "abct"] == [0, 12, 20, 0]
    assert back["a"].untyped_storage().nbytes() == 32
    assert back["d"].untyped_storage().nbytes() == back["e"].untyped_storage().nbytes() == 4


def test_expanded_and_transposed_tensors_keep_their_strides(tmp_path: Path) -> None:
    base = torch.arange(6.0).view(2, 3)
    path = tmp_path / "x.pt"
    torch.save([base.t(), base[:1].expand(4, 3), base[:, 1]], path)
    back = loaded(describe(path).root)
    assert [tensor.stride() for tensor in back] == [(1, 3), (0, 1), (3,)]
    assert torch.equal(back[0], base.t())
    assert torch.equal(back[1], base[:1].expand(4, 3))
    assert torch.equal(back[2], base[:, 1])


def test_storages_from_a_gpu_become_the_cpus(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save([torch.ones(2)], path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            on_gpu = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            archive.writestr(name, on_gpu)
    assert torch.equal(loaded(describe(path).root)[0], torch.ones(2))


def repeated(byte: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield byte * 100


@pytest.mark.parametrize("wide_from", [1000, 5000])  # a size that is the limit is wide
def test_wide_fields_where_sizes_or_offsets_need_them(tmp_path: Path, wide_from: int) -> None:
    records = [
        ZipRecord("archive/small", 3, lambda: [b"abc"]),
        ZipRecord("archive/large", 5000, lambda: repeated(b"x", 50)),
        ZipRecord("archive/late", 2, lambda: [b"yz"]),
    ]
    plan, sink = ZipPlan(records, wide_from=wide_from), Memory()
    plan.write_to(sink)
    assert len(sink.data) == plan.total_bytes
    path = tmp_path / "x.zip"
    path.write_bytes(sink.data)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.read("archive/large") == b"x" * 5000
        assert archive.read("archive/late") == b"yz"
    members = read_directory(path)
    assert [members[f"archive/{name}"].size for name in ("small", "large", "late")] == [3, 5000, 2]
    assert {member.start % ALIGNMENT for member in members.values()} == {0}
