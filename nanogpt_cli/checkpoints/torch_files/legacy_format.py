"""torch's format before 1.6: four pickles in a row, then every storage's length and bytes.

The object's pickle comes before the list that says where its storages lie, so it is read twice:
once for the types of the storages, once with their places.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from nanogpt_cli import pickles
from nanogpt_cli.checkpoints.contents import Contents
from nanogpt_cli.checkpoints.files import errors_name, map_file, read_start
from nanogpt_cli.checkpoints.torch_files.rebuild import (
    TORCH_CALLS,
    TORCH_CONSTANTS,
    Storage,
    element_bytes,
    is_count,
    notes_on,
    read_identity,
)
from nanogpt_cli.errors import CheckpointError

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
_HEAD = 64


class TorchLegacy:
    """The FORMATS entry for what torch.save wrote before 1.6, whatever the file is called.

    Source: torch/serialization.py, _legacy_save.
    """

    name = "torch-legacy"

    def sniff(self, path: Path) -> bool:
        """Return whether a file begins with the pickle of torch's magic number."""
        start = read_start(path, _HEAD)
        try:
            made, _ = pickles.load_at(start, 0)
        except CheckpointError:
            return False
        return made.value == MAGIC

    def describe(self, path: Path) -> Contents:
        """Return what a file holds: its values, with a TensorInfo in place of each tensor.

        Raises:
            CheckpointError: damaged, cut, or a pickle that would call what is not on the written
                list.
        """
        with errors_name(path), map_file(path) as data:
            made = _read(data, path)
        return Contents(
            path=path,
            format=self.name,
            container="torch legacy file",
            files=(path,),
            root=made.value,
            globals=made.globals,
            notes=notes_on(made),
        )


def find_object(data: pickles.Buffer) -> int:
    """Return where the object's pickle begins, after the three that say who wrote the file.

    Raises:
        CheckpointError: another version, or a machine with the other byte order.
    """
    magic, at = pickles.load_at(data, 0, name="the magic number")
    version, at = pickles.load_at(data, at, name="the version")
    system, at = pickles.load_at(data, at, name="the system's facts")
    if magic.value != MAGIC or version.value != PROTOCOL:
        raise CheckpointError(f"its version is not {PROTOCOL}, the one that is known")
    if not isinstance(system.value, dict) or system.value.get("little_endian") is not True:
        raise CheckpointError(
            "it was written on a big-endian machine, and only little-endian files can be read"
        )
    return at


@dataclass
class _Storages:
    """The storages that the object's pickle speaks of; their places come second."""

    path: Path
    found: dict[str, Storage]
    are_placed: bool = False

    def persist(self, identity: object) -> object:
        """Return the storage, or the part of it, that a persistent id names."""
        if isinstance(identity, tuple) and len(identity) == 4 and identity[0] == "module":
            if not isinstance(identity[1], pickles.Global):
                raise pickles.Malformed("a module without its class")
            return identity[1]
        kind, key, numel, rest = read_identity(identity, 6)
        width = element_bytes(kind.dtype)
        storage = Storage(key, kind.dtype, self.path, 0, numel * width)
        known = self.found.get(key)
        if known is None and self.are_placed:
            raise pickles.Malformed(f"a storage {key[:40]!r} that the file lacks")
        if known is None:
            self.found[key] = known = storage
        if (known.dtype, known.nbytes) != (storage.dtype, storage.nbytes):
            raise pickles.Malformed(f"a storage {key[:40]!r} of two types or sizes")
        assert isinstance(rest, tuple), "the rest of a tuple"
        return known if rest[0] is None else _view(known, rest[0], width)


def _view(root: Storage, view: object, width: int) -> Storage:
    """Return the part of a storage that (key, offset, elements) describes."""
    if not isinstance(view, tuple) or len(view) != 3 or not all(map(is_count, view[1:])):
        raise pickles.Malformed("a view of a storage without its offset and length")
    begin, nbytes = view[1] * width, view[2] * width
    if begin + nbytes > root.nbytes:
        raise pickles.Malformed(f"a view that ends at byte {begin + nbytes:,} of {root.nbytes:,}")
    return replace(root, offset=root.offset + begin, nbytes=nbytes)


def _read(data: pickles.Buffer, path: Path) -> pickles.Pickle:
    start = find_object(data)
    storages = _Storages(path, {})
    _, after = _load_object(data, start, storages)
    keys, after = pickles.load_at(data, after, name="the list of storages")
    storages.found = _place(data, after, _names(keys.value), storages.found)
    storages.are_placed = True
    made, _ = _load_object(data, start, storages)
    return made


def _names(keys: object) -> list[str]:
    names = [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
    if not isinstance(keys, list) or len(names) != len(keys) or len(set(names)) != len(names):
        raise CheckpointError(
            "its list of storages is damaged, or names one twice", pickles.DAMAGED
        )
    return names


def _load_object(
    data: pickles.Buffer, start: int, storages: _Storages
) -> tuple[pickles.Pickle, int]:
    return pickles.load_at(
        data,
        start,
        name="the object's pickle",
        persistent=storages.persist,
        calls=TORCH_CALLS,
        constants=TORCH_CONSTANTS,
    )


def _place(
    data: pickles.Buffer, at: int, keys: list[str], found: dict[str, Storage]
) -> dict[str, Storage]:
    """Return the storages with their places, having walked over all of them to the file's end."""
    placed = {}
    for key in keys:
        storage = found.get(key)
        if storage is None:
            raise CheckpointError(f"no tensor says the type of storage {key[:40]!r}")
        numel = int.from_bytes(data[at : at + 8], "little", signed=True)
        width = element_bytes(storage.dtype)
        end = at + 8 + storage.nbytes
        if end > len(data):
            raise CheckpointError(
                f"the file is cut: {len(data):,} bytes, and storage {key[:40]!r} ends at {end:,}",
                pickles.DAMAGED,
            )
        if numel * width != storage.nbytes:
            raise CheckpointError(
                f"storage {key[:40]!r} has {storage.nbytes:,} bytes for its tensors and "
                f"{numel * width:,} at byte {at:,}",
                pickles.DAMAGED,
            )
        placed[storage.key] = replace(storage, offset=at + 8)
        at = end
    if at != len(data):
        raise CheckpointError(f"{len(data) - at:,} bytes follow the last storage", pickles.DAMAGED)
    return placed
