"""Planning a safetensors file: its header is settled first, tensors stream in after it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from nanogpt_cli.checkpoints.contents import DTYPE_BYTES, TensorInfo
from nanogpt_cli.checkpoints.plans import Bytes, NewTensor, Sink, Stored, read_extent
from nanogpt_cli.checkpoints.safetensors_files.format import DTYPES, HEADER_LIMIT
from nanogpt_cli.errors import CheckpointError

_CODES = {dtype: code for code, dtype in DTYPES.items()}


class SafetensorsPlan:
    """A safetensors file.

    The widest types come first, as the reference library lays them out, so that every tensor is
    aligned.

    Args:
        tensors: by name; contiguous, none of them the same bytes as another.
        metadata: its string map; `{"format": "pt"}` is what transformers asks for.

    Source: https://github.com/huggingface/safetensors, section "Format".
    """

    def __init__(self, tensors: Mapping[str, Stored], metadata: Mapping[str, str]) -> None:
        self._tensors = dict(sorted(tensors.items(), key=lambda item: -DTYPE_BYTES[item[1].dtype]))
        header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
        at = 0
        for name, tensor in self._tensors.items():
            assert isinstance(tensor, NewTensor) or tensor.is_contiguous, f"{name} has no gaps"
            header[name] = {
                "dtype": _CODES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [at, at + tensor.nbytes],
            }
            at += tensor.nbytes
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > HEADER_LIMIT:
            raise CheckpointError(f"a header of {len(text):,} bytes: the limit is {HEADER_LIMIT:,}")
        self._head = len(text).to_bytes(8, "little") + text
        self.total_bytes = len(self._head) + at

    def write_to(self, sink: Sink) -> None:
        """Write the file, asking each tensor for its data in turn."""
        sink.write(self._head)
        for name, tensor in self._tensors.items():
            written = 0
            for chunk in _chunks(tensor):
                written += len(chunk)
                sink.write(chunk)
            assert written == tensor.nbytes, f"{name} has its planned size"


def _chunks(tensor: Stored) -> Iterable[Bytes]:
    if isinstance(tensor, TensorInfo):
        return read_extent(tensor.path, tensor.offset, tensor.nbytes, tensor.member)
    return tensor.chunks()
