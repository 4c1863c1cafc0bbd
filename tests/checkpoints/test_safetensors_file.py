"""The header reader against files that the safetensors library writes, and against damaged ones."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.safetensors_files.format import DTYPES, HEADER_LIMIT, SafetensorsFile
from nanogpt_cli.errors import CheckpointError, NanoGPTError

FORMAT = SafetensorsFile()


def write(path: Path, header: object, data: bytes = b"") -> Path:
    """Write a file whose header is `header`, as JSON unless it is bytes already."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def line(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def tensors(path: Path) -> dict[str, TensorInfo]:
    root = FORMAT.describe(path).root
    assert isinstance(root, dict)
    return root


def refusal(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        FORMAT.describe(path)
    return caught.value


@pytest.mark.parametrize("dtype", sorted(set(DTYPES.values())))
def test_a_tensor_of_every_type_is_found_where_it_lies(tmp_path: Path, dtype: str) -> None:
    value = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    path = tmp_path / "a.safetensors"
    save_file({"first": value, "second": value.flip(0).contiguous()}, path)
    found = tensors(path)
    assert set(found) == {"first", "second"}
    info = found["second"]
    assert (info.dtype, info.shape, info.stride) == (dtype, (2, 3), (3, 1))
    assert info.path == path
    assert info.nbytes == info.storage_bytes == value.numel() * value.element_size()
    with path.open("rb") as file:
        file.seek(info.offset)
        stored = torch.frombuffer(bytearray(file.read(info.nbytes)), dtype=value.dtype)
    assert torch.equal(stored.reshape(2, 3), value.flip(0))


def test_scalars_empty_tensors_and_metadata(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file(
        {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4)}, path, metadata={"format": "pt"}
    )
    contents = FORMAT.describe(path)
    found = tensors(path)
    assert (contents.format, contents.container) == ("safetensors", "safetensors")
    assert contents.metadata == {"format": "pt"}
    assert contents.files == (path,)
    assert (found["scalar"].shape, found["scalar"].stride, found["scalar"].nbytes) == ((), (), 4)
    assert (found["empty"].shape, found["empty"].nbytes) == ((0, 4), 0)


def test_a_file_without_tensors_and_a_padded_header(tmp_path: Path) -> None:
    assert tensors(write(tmp_path / "none", {})) == {}
    padded = json.dumps({"a": line("U8", [1], 0, 1)}).encode() + b"   "
    assert set(tensors(write(tmp_path / "padded", padded, b"x"))) == {"a"}


def test_the_content_tells_and_not_the_name(tmp_path: Path) -> None:
    header = json.dumps({"a": line("U8", [1], 0, 1), "__metadata__": {"p": "x" * 36}}).encode()
    header += b" " * (0x80 - len(header))
    path = write(tmp_path / "pickle.pt", header, b"x")
    assert path.read_bytes()[:2] == b"\x80\x00"  # 0x80 opens a pickle too
    assert FORMAT.sniff(path)
    assert set(tensors(path)) == {"a"}


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"\x02\0\0\0\0\0\0\0",
        b"\x02\0\0\0\0\0\0\0[]",
        b"PK\x03\x04{{{{{{{{",
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9{",
        struct.pack("<Q", HEADER_LIMIT + 1) + b"{}",
        b"version https://git-lfs",
    ],
)
def test_other_files_are_not_taken(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(start)
    assert not FORMAT.sniff(path)


def test_a_folder_and_a_missing_file_are_not_taken(tmp_path: Path) -> None:
    assert not FORMAT.sniff(tmp_path)
    assert not FORMAT.sniff(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("header", "data", "said"),
    [
        (
            {"a": line("F32", [2], 0, 7)},
            7,
            "tensor 'a' has 7 bytes at 0 to 7: float32 of shape [2] needs 8",
        ),
        ({"a": line("F32", [2], 8, 0)}, 8, "tensor 'a' has -8 bytes at 8 to 0"),
        (
            {"a": line("F32", [2], 0, 8)},
            6,
            "tensor 'a' ends at byte 8 of the data, and the file has 6",
        ),
        ({"a": line("F32", [2], 0, 8)}, 9, "1 bytes follow the last tensor"),
        ({}, 3, "3 bytes follow the last tensor"),
        (
            {"a": line("U8", [4], 0, 4), "b": line("U8", [4], 3, 7)},
            7,
            "tensor 'b' begins at 3, inside tensor 'a', which ends at 4",
        ),
        (
            {"a": line("U8", [4], 0, 4), "b": line("U8", [4], 0, 4)},
            4,
            "tensor 'b' begins at 0, inside tensor 'a', which ends at 4",
        ),
        (
            {"a": line("U8", [4], 0, 4), "b": line("U8", [4], 6, 10)},
            10,
            "a hole of 2 bytes lies before tensor 'b', which begins at 6",
        ),
        ({"a": line("U8", [4], 1, 5)}, 5, "a hole of 1 bytes lies before tensor 'a'"),
        ({"w": line("F8_E4M3", [1], 0, 1)}, 1, "tensor 'w' has dtype 'F8_E4M3': known are F64"),
        ({"w": line("U16", [1], 0, 2)}, 2, "tensor 'w' has dtype 'U16'"),
        ({"w": {**line("F32", [1], 0, 4), "dtype": ["F32"]}}, 4, "tensor 'w' has dtype ['F32']"),
        ({"w": line("F32", [-1, -1], 0, 4)}, 4, "tensor 'w' has a shape that no tensor can have"),
        ({"w": line("F32", [True], 0, 4)}, 4, "tensor 'w' has a shape"),
        ({"w": line("F32", [2**63], 0, 4)}, 4, "tensor 'w' has a shape"),
        ({"w": line("U8", [1] * 65, 0, 1)}, 1, "tensor 'w' has a shape"),
        ({"w": {**line("F32", [1], 0, 4), "shape": 1}}, 4, "tensor 'w' has a shape"),
        ({"w": {**line("F32", [1], 0, 4), "data_offsets": [0]}}, 4, "tensor 'w' has data_offsets"),
        ({"w": line("F32", [1], -4, 0)}, 4, "tensor 'w' has data_offsets"),
        (
            {"w": {"dtype": "F32", "shape": [1]}},
            4,
            "tensor 'w' needs dtype, shape and data_offsets",
        ),
        ({"w": {**line("F32", [1], 0, 4), "x": 1}}, 4, "tensor 'w' needs dtype, shape"),
        ({"w": 3}, 0, "tensor 'w' needs dtype, shape"),
        ({"__metadata__": {"a": 1}}, 0, "its __metadata__ has 'a': 1"),
        ({"__metadata__": "pt"}, 0, "its __metadata__ is not a map of strings"),
        (b'{"a": 1, "b": 2, "a": 3}', 0, "its header names 'a' more than once"),
        (b'{"w": {"dtype": "U8", "dtype": "U8"}}', 0, "its header names 'dtype' more than once"),
        (b'{"a"', 0, "its header is not valid JSON"),
        (b'{"a\xff": 1}', 0, "its header is not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", 0, "its header is not valid JSON"),
        (b'{"a": ' + b"[" * 100_000 + b"}", 0, "JSON nested too deeply"),
        (b"[]", 0, "its header is not a JSON object"),
    ],
)
def test_a_header_that_lies_is_refused(
    tmp_path: Path, header: object, data: int, said: str
) -> None:
    path = write(tmp_path / "bad.safetensors", header, b"x" * data)
    error = refusal(path)
    assert error.message.startswith(f"cannot read {str(path)!r}: ")
    assert said in error.message
    assert error.exit_code == 1


def test_a_cut_file_is_recognised_and_said_to_be_cut(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    save_file({"a": torch.zeros(8)}, whole)
    size = whole.stat().st_size
    for kept in (9, 30, size - 1):
        path = tmp_path / f"cut-{kept}"
        path.write_bytes(whole.read_bytes()[:kept])
        assert FORMAT.sniff(path)
        assert refusal(path).hint == "the file is cut short: copy or download it again"


def test_a_claimed_header_is_never_allocated(tmp_path: Path) -> None:
    path = tmp_path / "claims.safetensors"
    path.write_bytes(struct.pack("<Q", 99_000_000) + b"{}")
    assert "99000000 bytes are claimed, 2 follow" in refusal(path).message
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    assert f"the limit is {HEADER_LIMIT}" in refusal(path).message


def mutate(draw: Callable[..., int], whole: bytes) -> bytes:
    position = draw(st.integers(0, len(whole) - 1))
    return whole[:position] + bytes([draw(st.integers(0, 255))]) + whole[position + 1 :]


@given(data=st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_byte_is_changed_to(tmp_path: Path, data: st.DataObject) -> None:
    """We take only what the reference library takes, and never fail otherwise than by name."""
    path = tmp_path / "mutated"
    whole = tmp_path / "whole"
    save_file({"a": torch.zeros(3), "b": torch.ones(2, 2)}, whole, metadata={"k": "v"})
    path.write_bytes(mutate(data.draw, whole.read_bytes()))
    try:
        found = tensors(path)
    except NanoGPTError:
        return
    try:
        with safe_open(path, "pt") as reference:
            assert set(reference.keys()) == set(found)
            assert {key: tuple(reference.get_slice(key).get_shape()) for key in found} == {
                key: info.shape for key, info in found.items()
            }
    except SafetensorError as error:
        pytest.fail(f"we took what safetensors refuses: {error}")
