"""Planning a torch zip file: which storages it has, and its pickle, before anything is read.

Only bytes that some tensor shows are written: a slice does not drag its storage along, and what
was cut from a tensor is not in the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nanogpt_cli.checkpoints.contents import DTYPE_BYTES, TensorInfo
from nanogpt_cli.checkpoints.plans import Bytes, NewTensor, Stored, read_extent
from nanogpt_cli.checkpoints.torch_files.dump import Place, dump
from nanogpt_cli.checkpoints.torch_files.zip_write import ZipPlan, ZipRecord
from nanogpt_cli.pickles import Record

FOLDER = "archive"
"""What torch calls the archive's folder where the file has no name yet."""
VERSION = b"3\n"


@dataclass(eq=False)
class Storage:
    """A run of bytes of the file to be written.

    Args:
        source: the tensor made for it, or one of those copied.
        begin: where the bytes begin in the source's file; 0 for a made one.
        end: where they end.
        key: names it in the file.
    """

    source: Stored
    begin: int
    end: int
    key: str = ""

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.end - self.begin

    def chunks(self) -> Iterable[Bytes]:
        """Yield its bytes."""
        if isinstance(self.source, NewTensor):
            return self.source.chunks()
        return read_extent(self.source.path, self.begin, self.nbytes, self.source.member)


@dataclass
class Storages:
    """The storages that a number of tensors need.

    Args:
        listed: in the order of their first use.
        of: a tensor's id -> its storage.
    """

    listed: list[Storage] = field(default_factory=list)
    of: dict[int, Storage] = field(default_factory=dict)

    def place(self, tensor: Stored) -> Place:
        """Return where a tensor lies."""
        storage = self.of[id(tensor)]
        width = DTYPE_BYTES[tensor.dtype]
        offset = tensor.offset - storage.begin if isinstance(tensor, TensorInfo) else 0
        return Place(storage.key, storage.nbytes // width, offset // width)


def plan_torch(root: object) -> ZipPlan:
    """Return the plan of a `.pt` file that torch.load reads, with `weights_only` too.

    Tensors that overlap in their source, and a NewTensor that occurs twice, share a storage.
    Storages are tagged `cpu`, whatever device the source names.

    Args:
        root: see `dump.dump`.

    Raises:
        CheckpointError: a value that has no place in such a file.

    Source: torch/serialization.py, _save.
    """
    storages = plan_storages(list(tensors_in(root)))
    pickle = dump(root, storages.place)
    records = [
        _record("data.pkl", pickle),
        _record("byteorder", b"little"),
        *(
            ZipRecord(f"{FOLDER}/data/{storage.key}", storage.nbytes, storage.chunks)
            for storage in storages.listed
        ),
        _record("version", VERSION),
    ]
    identity = ZipRecord(f"{FOLDER}/.data/serialization_id", 40, lambda: [_identity(plan.crcs)])
    plan = ZipPlan([*records, identity])
    return plan


def _record(name: str, data: bytes) -> ZipRecord:
    return ZipRecord(f"{FOLDER}/{name}", len(data), lambda: [data])


def _identity(crcs: Sequence[int]) -> bytes:
    """Return 40 digits that tell contents apart."""
    digest = hashlib.sha256(repr(crcs).encode()).digest()
    return b"%040d" % (int.from_bytes(digest) % 10**40)


def tensors_in(value: object) -> Iterator[Stored]:
    """Yield the tensors of a tree in the order in which they are written, repeats too."""
    if isinstance(value, TensorInfo | NewTensor):
        yield value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from tensors_in(key)
            yield from tensors_in(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from tensors_in(entry)
    elif isinstance(value, set | frozenset):
        yield from tensors_in(sorted(value, key=repr))
    elif isinstance(value, Record):
        yield from tensors_in((value.args, value.items, value.state))


def plan_storages(tensors: Sequence[Stored]) -> Storages:
    """Return the storages that tensors need: runs of bytes, merged where they overlap."""
    merged = _merged([tensor for tensor in tensors if isinstance(tensor, TensorInfo)])
    storages = Storages()
    for tensor in tensors:
        if id(tensor) in storages.of:
            continue
        storage = (
            Storage(tensor, 0, tensor.nbytes)
            if isinstance(tensor, NewTensor)
            else merged[id(tensor)]
        )
        if not storage.key:
            storage.key = str(len(storages.listed))
            storages.listed.append(storage)
        storages.of[id(tensor)] = storage
    return storages


def _merged(tensors: Sequence[TensorInfo]) -> dict[int, Storage]:
    """Return a storage for each copied tensor, the same one for those that overlap."""
    of: dict[int, Storage] = {}
    last: tuple[object, Storage] | None = None
    for tensor in sorted(tensors, key=lambda info: (_storage_name(info), info.offset)):
        name = _storage_name(tensor)
        end = tensor.offset + extent_bytes(tensor)
        if last is not None and last[0] == name and tensor.offset < last[1].end:
            last[1].end = max(last[1].end, end)
        else:
            last = name, Storage(tensor, tensor.offset, end)
        of[id(tensor)] = last[1]
    return of


def _storage_name(info: TensorInfo) -> tuple[str, str, str]:
    # Two types cannot share a typed storage, so a viewed byte buffer is written once for each.
    return str(info.path), info.storage, info.dtype


def extent_bytes(info: TensorInfo) -> int:
    """Return the bytes from a tensor's first element to the end of its last."""
    if info.numel == 0:
        return 0
    steps = zip(info.shape, info.stride, strict=True)
    return (1 + sum((size - 1) * step for size, step in steps)) * DTYPE_BYTES[info.dtype]
