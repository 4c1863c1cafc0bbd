"""Which biases count as zero: those without a bit set, read where they lie."""

from __future__ import annotations

import struct
from pathlib import Path

from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.zero_biases import first_nonzero


def bias(path: Path, *, stride: int = 1) -> TensorInfo:
    return TensorInfo(
        dtype="float32",
        shape=(2,),
        stride=(stride,),
        path=path,
        offset=0,
        storage="0",
        storage_bytes=12,
    )


def test_zeros_are_zeros_and_a_last_minus_zero_is_none(tmp_path: Path) -> None:
    zeros, minus = tmp_path / "zeros", tmp_path / "minus"
    zeros.write_bytes(bytes(12))
    minus.write_bytes(struct.pack("<3f", 0.0, -0.0, 0.0))
    assert first_nonzero({"a": bias(zeros), "b": bias(zeros)}) is None
    assert first_nonzero({"a": bias(zeros), "b": bias(minus)}) == "b"


def test_what_does_not_lie_in_a_row_is_not_taken_for_zero(tmp_path: Path) -> None:
    path = tmp_path / "spread"
    path.write_bytes(struct.pack("<3f", 0.0, 0.0, 1.0))
    assert first_nonzero({"a": bias(path, stride=2)}) == "a"
