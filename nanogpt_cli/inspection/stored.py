"""Every tensor of a file by name, what it is for, and which bytes are its own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.checkpoints import Checkpoint, Contents, TensorInfo
from nanogpt_cli.checkpoints.contents import DTYPE_BYTES
from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.pickles import Record

SECTIONS = ("weights", "head", "masks", "adam_m", "adam_v", "other")
"""What a tensor can be for; bytes that several share are counted for the first of these."""

MAX_TENSORS = 100_000

_MOMENTS = {"exp_avg": "adam_m", "exp_avg_sq": "adam_v"}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file.

    Args:
        name: as stored; outside of the state dict, the keys that lead to it, joined by dots.
        canonical: nanoGPT's name for it, or "".
        section: one of SECTIONS; "head" is a head that the model takes from wte.
        info: where it lies.
    """

    name: str
    canonical: str
    section: str
    info: TensorInfo


def list_stored(checkpoint: Checkpoint) -> list[StoredTensor]:
    """Return every tensor of a checkpoint, the state dict's first, in the file's order."""
    architecture = checkpoint.architecture
    envelope = architecture.envelope
    found = []
    for key, info in envelope.weights.items():
        canonical = architecture.names.get(key, "")
        if key in architecture.masks:
            section = "masks"
        elif canonical in architecture.weights:
            section = "weights"
        else:
            section = "head" if info == architecture.head else "other"
        found.append(StoredTensor(key, canonical, section, info))
    return found + list_others(checkpoint.contents, envelope.key)


def list_others(contents: Contents, key: str | None) -> list[StoredTensor]:
    """Return the tensors outside of the state dict.

    Args:
        contents: what the file holds.
        key: the entry that is the state dict; "" where the file is one; None where there is none.
    """
    root: object = contents.root
    if isinstance(root, Record):
        root = root.fields
    if key is not None and isinstance(root, dict):
        inside = key == ""
        root = {
            name: value
            for name, value in root.items()
            if name != key and not (inside and isinstance(value, TensorInfo))
        }
    return [
        StoredTensor(name, "", _MOMENTS.get(name.rpartition(".")[2], "other"), info)
        for name, info in _walk(root)
    ]


def _walk(root: object) -> Iterator[tuple[str, TensorInfo]]:
    """Yield the tensors below `root` with their paths; a container in two places counts once."""
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [("", root)]
    count = 0
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, TensorInfo):
            count += 1
            if count > MAX_TENSORS:
                raise CheckpointError(
                    f"the file holds more than {MAX_TENSORS:,} tensors",
                    hint="a GPT has some hundreds: the file was not written by a trainer",
                )
            yield path, value
            continue
        children = _children(value)
        if children is not None and id(value) not in seen:
            seen.add(id(value))
            below = [(f"{path}.{key}" if path else key, child) for key, child in children]
            waiting += reversed(below)


def _children(value: object) -> list[tuple[str, object]] | None:
    """Return what a container holds that may lead to a tensor, by name."""
    if isinstance(value, Mapping):
        pairs = [(str(key)[:200], child) for key, child in value.items()]
    elif isinstance(value, list | tuple):
        pairs = [(str(place), child) for place, child in enumerate(value)]
    elif isinstance(value, Record):
        pairs = [("state", value.state), ("args", value.args), ("items", value.items)]
    else:
        return None
    return [(key, child) for key, child in pairs if isinstance(child, _LEADING)]


_LEADING = (TensorInfo, Mapping, list, tuple, Record)


@dataclass(frozen=True)
class Section:
    """The bytes of one kind of tensor.

    Args:
        name: one of SECTIONS.
        tensors: how many there are.
        stored_bytes: bytes of theirs that no section before this one has.
    """

    name: str
    tensors: int
    stored_bytes: int


@dataclass(frozen=True)
class ByteCount:
    """Where every byte of the files went.

    Args:
        sections: all of SECTIONS, in order.
        unused_bytes: of storages, used by no tensor: what a saved slice drags along.
        tensor_bytes: the sections and the unused bytes together; shared bytes once.
        rest_bytes: the files' bytes that are none of these: names, padding, directories. Negative
            where tensors are compressed.
        file_bytes: the files together.
    """

    sections: tuple[Section, ...]
    unused_bytes: int
    tensor_bytes: int
    rest_bytes: int
    file_bytes: int

    def __post_init__(self) -> None:
        summed = sum(section.stored_bytes for section in self.sections) + self.unused_bytes
        assert summed == self.tensor_bytes, f"sections sum to {summed}, not {self.tensor_bytes}"
        assert self.tensor_bytes + self.rest_bytes == self.file_bytes, "rows sum to the files"


def count_bytes(stored: list[StoredTensor], file_bytes: int) -> ByteCount:
    """Return where the bytes of a file went, shared ones counted once."""
    covers: dict[tuple[Path, str], _Cover] = {}
    counts = dict.fromkeys(SECTIONS, 0)
    sizes = dict.fromkeys(SECTIONS, 0)
    for tensor in sorted(stored, key=lambda each: SECTIONS.index(each.section)):
        info = tensor.info
        cover = covers.setdefault((info.path, info.member), _Cover())
        counts[tensor.section] += 1
        sizes[tensor.section] += cover.add(info.offset, info.offset + extent_bytes(info))
    storages = {
        (info.path, info.member, info.storage): info.storage_bytes
        for info in (tensor.info for tensor in stored)
    }
    used = sum(sizes.values())
    unused = max(0, sum(storages.values()) - used)
    return ByteCount(
        sections=tuple(Section(name, counts[name], sizes[name]) for name in SECTIONS),
        unused_bytes=unused,
        tensor_bytes=used + unused,
        rest_bytes=file_bytes - used - unused,
        file_bytes=file_bytes,
    )


def extent_bytes(info: TensorInfo) -> int:
    """Return the bytes from a tensor's first element to the end of its last."""
    if info.numel == 0:
        return 0
    last = sum((size - 1) * step for size, step in zip(info.shape, info.stride, strict=True))
    return (last + 1) * DTYPE_BYTES[info.dtype]


class _Cover:
    """A set of bytes, as sorted intervals that do not touch."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, begin: int, end: int) -> int:
        """Add the bytes from `begin` to before `end`; return how many were new."""
        if begin == end:
            return 0
        first = bisect_left(self._ends, begin)
        last = first
        overlap = 0
        low, high = begin, end
        while last < len(self._begins) and self._begins[last] <= end:
            overlap += max(0, min(end, self._ends[last]) - max(begin, self._begins[last]))
            low, high = min(low, self._begins[last]), max(high, self._ends[last])
            last += 1
        self._begins[first:last] = [low]
        self._ends[first:last] = [high]
        return end - begin - overlap
