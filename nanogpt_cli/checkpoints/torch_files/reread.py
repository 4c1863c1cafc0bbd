"""Reading a torch file so that it can be written again as it was.

`describe` makes plain values of what a pickle calls: an OrderedDict becomes a dict, a path a str,
a numpy scalar a number. Here every such call is kept as one, by name and arguments, so that
`dump` writes it back. Nothing is executed or looked up, here as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli import pickles
from nanogpt_cli.checkpoints.contents import DTYPE_BYTES, Contents, TensorInfo
from nanogpt_cli.checkpoints.files import map_file
from nanogpt_cli.checkpoints.torch_files.dump import ORDERED_DICT, Called, Constant, Size
from nanogpt_cli.checkpoints.torch_files.legacy_format import TorchLegacy, find_object
from nanogpt_cli.checkpoints.torch_files.rebuild import (
    OTHER_DTYPES,
    TORCH_CALLS,
    TORCH_CONSTANTS,
    Storage,
    element_bytes,
    read_identity,
)
from nanogpt_cli.checkpoints.torch_files.write import tensors_in
from nanogpt_cli.checkpoints.torch_files.zip_format import PICKLE
from nanogpt_cli.checkpoints.torch_files.zips import read_directory, read_member
from nanogpt_cli.pickles.known import KNOWN_CALLS, canonical

_PLAIN = frozenset(
    {
        *("_codecs.encode", "builtins.bytearray", "builtins.bytes", "builtins.complex"),
        *("builtins.dict", "builtins.frozenset", "builtins.list", "builtins.set"),
    }
)
"""Calls whose value is written as well without knowing that it came from a call."""

_TENSORS = frozenset(
    {
        *("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"),
        *("torch._utils._rebuild_tensor_v3", "torch._tensor._rebuild_from_type_v2"),
    }
)
"""Calls that make a tensor, which is written as torch writes tensors today."""

_DTYPES = frozenset((*DTYPE_BYTES, *OTHER_DTYPES))


def reread(contents: Contents) -> object:
    """Return the root of a torch file again, with each call that is no tensor as a `Called`.

    Args:
        contents: one file, as `TorchZip` or `TorchLegacy` described it.

    Raises:
        CheckpointError: the file changed since.
    """
    calls = _calls({canonical(use.name): use.name for use in contents.globals})
    places = _Places(contents.path)
    with _pickle_of(contents) as (data, at):
        first = _load(data, at, calls, places)
        places.learn(contents.root, first)
        return _load(data, at, calls, places)


@contextmanager
def _pickle_of(contents: Contents) -> Iterator[tuple[pickles.Buffer, int]]:
    """Yield bytes and where in them the object's pickle begins."""
    path = contents.path
    if contents.format == TorchLegacy.name:
        with map_file(path) as data:
            yield data, find_object(data)
        return
    members = read_directory(path)
    name = next(name for name in members if name.endswith(f"/{PICKLE}") and name.count("/") == 1)
    yield bytes(read_member(path, members[name], pickles.MAX_BYTES)), 0


def _load(
    data: pickles.Buffer, at: int, calls: Mapping[str, pickles.Call], places: _Places
) -> object:
    made, _ = pickles.load_at(
        data, at, name=PICKLE, persistent=places.persist, calls=calls, constants=_CONSTANTS
    )
    return made.value


@dataclass(frozen=True)
class _Start:
    """Where a storage begins, and the compressed member that it is, or ""."""

    offset: int = 0
    member: str = ""


class _Places:
    """Where the storages of a file lie, learnt from its tensors, whose places are known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts: dict[str, _Start] = {}

    def persist(self, identity: object) -> object:
        """Return the storage that a persistent id of either format names."""
        if isinstance(identity, tuple) and identity[:1] == ("module",):
            return identity[1]
        length = len(identity) if isinstance(identity, tuple) else 0
        kind, key, numel, rest = read_identity(identity, length)
        width = element_bytes(kind.dtype)
        begin, view = 0, rest[0] if isinstance(rest, tuple) and rest else None
        if isinstance(view, tuple):  # (key, offset, elements) of a legacy file
            _, begin, numel = view
        start = self._starts.get(key, _Start())
        offset = start.offset + begin * width
        return Storage(key, kind.dtype, self._path, offset, numel * width, start.member)

    def learn(self, placed: object, unplaced: object) -> None:
        """Compare the same tensors with their places and with offsets into their storages."""
        found: dict[str, TensorInfo] = {}
        for info in _infos(placed):
            if info.storage not in found or info.offset < found[info.storage].offset:
                found[info.storage] = info
        lowest: dict[str, int] = {}
        for info in _infos(unplaced):
            lowest[info.storage] = min(info.offset, lowest.get(info.storage, info.offset))
        for key, info in found.items():
            self._starts[key] = _Start(info.offset - lowest.get(key, 0), info.member)


def _infos(root: object) -> list[TensorInfo]:
    return [tensor for tensor in tensors_in(root) if isinstance(tensor, TensorInfo)]


def _calls(spelled: Mapping[str, str]) -> dict[str, pickles.Call]:
    """Return a stand-in for every call on the written list, under the file's own spelling."""
    names = [name for name in (*KNOWN_CALLS, *TORCH_CALLS) if name not in _PLAIN | _TENSORS]
    calls = {name: _kept(spelled.get(name, name)) for name in names}
    calls[ORDERED_DICT] = _ordered_dict
    calls["torch.Size"] = _size
    return calls | {name: TORCH_CALLS[name] for name in _TENSORS}


def _kept(name: str) -> pickles.Call:
    return lambda args: Called(name, args=args)


def _ordered_dict(args: pickles.Arguments) -> object:
    entries = KNOWN_CALLS[ORDERED_DICT](args)
    assert isinstance(entries, dict), "a mapping is made"
    return Called(ORDERED_DICT, items=entries)


def _size(args: pickles.Arguments) -> object:
    sizes = TORCH_CALLS["torch.Size"](args)
    assert isinstance(sizes, tuple), "a shape is made"
    return Size(sizes)


def _constant(name: str, value: object) -> object:
    return Constant(value, name) if isinstance(value, str) and value in _DTYPES else value


_CONSTANTS = {name: _constant(name, value) for name, value in TORCH_CONSTANTS.items()}
