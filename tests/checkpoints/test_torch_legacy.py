"""torch's files from before 1.6: every value and tensor as torch.load gives them."""

from __future__ import annotations

import io
import pickle
import struct
from pathlib import Path

import pytest
import torch
from pickle_recipes import LIVE, call, entry, group, named, text, whole
from torch import nn
from torch_files import assert_same, infos, number, numbers, save, tensor, write

from nanogpt_cli.checkpoints.contents import DTYPE_BYTES
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.checkpoints.torch_files.legacy_format import MAGIC, PROTOCOL, TorchLegacy
from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.pickles import Record

FORMAT = TorchLegacy()
SYSTEM = {"protocol_version": PROTOCOL, "little_endian": True, "type_sizes": {"int": 4}}
A_VIEW = group(text("8"), number(2), number(3))
FLOATS = struct.pack("<q6f", 6, *range(6))


def load(data: bytes) -> object:
    """Return what torch makes of a file."""
    return torch.load(io.BytesIO(data), weights_only=True)


def storage(view: bytes = b"N", numel: bytes = number(6), key: bytes = text("7")) -> bytes:
    """Push what a legacy file's reference to a storage of six floats stands for."""
    kind = named("torch", "FloatStorage")
    return group(text("storage"), kind, key, text("cpu"), numel, view) + b"Q"


def legacy(
    value: bytes,
    keys: object = ("7",),
    records: bytes = FLOATS,
    magic: object = MAGIC,
    version: object = PROTOCOL,
    system: object = SYSTEM,
) -> bytes:
    """Return a legacy file whose third pickle pushes `value`."""
    head = b"".join(pickle.dumps(part, 2) for part in (magic, version, system))
    names = list(keys) if isinstance(keys, tuple) else keys
    return head + whole(value) + pickle.dumps(names, 2) + records


def refuse(folder: Path, data: bytes) -> str:
    """Return the message that describing a legacy file ends in."""
    path = write(folder, data)
    assert FORMAT.sniff(path)
    with pytest.raises(CheckpointError) as caught:
        FORMAT.describe(path)
    assert caught.value.message.startswith(f"cannot read {str(path)!r}: ")
    return caught.value.message


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_every_type_and_layout(tmp_path: Path, dtype: str) -> None:
    torch.manual_seed(0)
    base = (torch.randn(6, 8) * 50).to(getattr(torch, dtype))
    value = {
        "plain": base,
        "transposed": base.t(),
        "slice": base[1:4, 2:7:2],
        "scalar": base[3, 4],
        "empty": base[:0],
        "again": base,
        "its own": base[1:3].clone(),
    }
    data = save(value, legacy=True)
    contents = FORMAT.describe(write(tmp_path, data))
    assert assert_same(contents, load(data)) == len(value)
    assert (contents.format, contents.container) == ("torch-legacy", "torch legacy file")
    plain, transposed, *_, again, own = infos(contents.root)
    assert plain == again
    assert plain.storage == transposed.storage != own.storage


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_every_protocol(tmp_path: Path, protocol: int) -> None:
    value = {"model": nn.Linear(3, 2).state_dict(), "iter_num": 5, "config": {"lr": 1e-3}}
    data = save(value, legacy=True, protocol=protocol)
    path = write(tmp_path, data)
    assert FORMAT.sniff(path)
    assert assert_same(FORMAT.describe(path), load(save(value))) == 2


def test_a_whole_module_keeps_no_source(tmp_path: Path) -> None:
    path = write(tmp_path, save(nn.Linear(3, 2), legacy=True))
    root = FORMAT.describe(path).root
    assert isinstance(root, Record)
    assert root.class_name == "torch.nn.modules.linear.Linear"
    assert isinstance(root.fields["_parameters"], dict)
    assert root.fields["_parameters"]["bias"].shape == (2,)


def test_views_of_a_storage(tmp_path: Path) -> None:
    part = tensor(storage(A_VIEW), number(1), numbers(2), numbers(1))
    data = legacy(group(part, tensor(storage(), number(0), numbers(2, 3), numbers(3, 1))))
    contents = FORMAT.describe(write(tmp_path, data))
    assert assert_same(contents, load(data)) == 2
    root = contents.root
    assert isinstance(root, tuple)
    assert TensorReader().read(root[0]).tolist() == [3.0, 4.0]
    assert root[0].storage == root[1].storage == "7"


def test_a_file_without_tensors(tmp_path: Path) -> None:
    data = save({"a": [1, 2.5]}, legacy=True)
    assert FORMAT.describe(write(tmp_path, data)).root == {"a": [1, 2.5]}


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (legacy(b"N", version=1002), "its version is not 1001, the one that is known"),
        (legacy(b"N", version=[[1]]), "its version is not 1001"),
        (legacy(b"N", system={"little_endian": False}), "it was written on a big-endian machine"),
        (legacy(b"N", system={}), "it was written on a big-endian machine"),
        (legacy(b"N", system=3), "it was written on a big-endian machine"),
        (legacy(b"N"), "no tensor says the type of storage '7'"),
        (legacy(tensor(storage()), keys=()), "32 bytes follow the last storage"),
        (legacy(tensor(storage()), keys=(), records=b""), "a storage '7' that the file lacks"),
        (legacy(tensor(storage()), keys=("7", "7")), "its list of storages is damaged"),
        (legacy(tensor(storage()), keys=("7", 7)), "its list of storages is damaged"),
        (legacy(tensor(storage()), keys={"7": 1}), "its list of storages is damaged"),
        (legacy(tensor(storage()), records=FLOATS[:-1]), "the file is cut: "),
        (legacy(tensor(storage()), records=FLOATS[:5]), "the file is cut: "),
        (legacy(tensor(storage()), records=FLOATS + b"x"), "1 bytes follow the last storage"),
        (
            legacy(tensor(storage()), records=struct.pack("<q6f", 5, *range(6))),
            "storage '7' has 24 bytes for its tensors and 20 at byte",
        ),
        (
            legacy(tensor(storage()), records=struct.pack("<q6f", -6, *range(6))),
            "storage '7' has 24 bytes for its tensors and -24 at byte",
        ),
        (
            legacy(group(storage(), storage(numel=number(5)))),
            "a storage '7' of two types or sizes",
        ),
        (
            legacy(storage(group(text("8"), number(4), number(3)))),
            "a view that ends at byte 28 of 24",
        ),
        (legacy(storage(group(text("8"), number(-1), number(3)))), "a view of a storage without"),
        (legacy(storage(group(text("8"), b"\x88", number(3)))), "a view of a storage without"),
        (legacy(storage(text("view"))), "a view of a storage without"),
        (
            legacy(tensor(storage(A_VIEW), number(0), numbers(4), numbers(1))),
            "that needs 16 bytes of a storage of 12",
        ),
        (legacy(tensor(storage(), number(3))), "that needs 28 bytes of a storage of 24"),
        (legacy(tensor(storage(key=b"K\x07"))), "a storage without a key or a length"),
        (legacy(group(text("module"), text("M"), b"N", b"N") + b"Q"), "a module without its class"),
        (legacy(group(text("storage")) + b"Q"), "a reference to data that is no torch storage"),
        (legacy(call("os", "system", text("true"))), "the file would call 'os.system'"),
    ],
)
def test_files_that_lie(tmp_path: Path, data: bytes, found: str) -> None:
    assert found in refuse(tmp_path, data)


def test_refusals_say_where(tmp_path: Path) -> None:
    message = refuse(tmp_path, legacy(call("os", "system", text("true"))))
    assert message.endswith(
        "the file would call 'os.system' (at byte 2 of the object's pickle): "
        "refused, nothing was run"
    )


@pytest.mark.parametrize("name", LIVE)
def test_no_recipe_runs_in_any_of_the_pickles(tmp_path: Path, name: str) -> None:
    sentinel = tmp_path / "it-ran"
    hostile = LIVE[name](f"echo > {sentinel}")
    parts: tuple[object, ...] = (MAGIC, PROTOCOL, SYSTEM, {}, [])
    honest = [pickle.dumps(part, 2) for part in parts]
    for place in range(5):
        streams = [*honest]
        streams[place] = whole(entry("a", hostile))
        path = write(tmp_path, b"".join(streams))
        assert FORMAT.sniff(path) is (place != 0)
        with pytest.raises(CheckpointError, match="the file would call"):
            FORMAT.describe(path)
    assert not sentinel.exists()


def test_sniffing_wants_the_magic_number(tmp_path: Path) -> None:
    assert FORMAT.sniff(write(tmp_path, save([1], legacy=True), "a.txt"))
    assert not FORMAT.sniff(write(tmp_path, save([1]), "new.pt"))
    assert not FORMAT.sniff(write(tmp_path, pickle.dumps(MAGIC + 1), "other.pt"))
    assert not FORMAT.sniff(write(tmp_path, pickle.dumps({"a": 1}), "meta.pkl"))
    header = b'{"__metadata__":{"a":"' + b"x" * 80 + b'"}}'
    safetensors = struct.pack("<Q", len(header)) + header
    assert not FORMAT.sniff(write(tmp_path, b"\x80" + safetensors[1:], "model.safetensors"))
    assert not FORMAT.sniff(write(tmp_path, b"", "empty.pt"))
    assert not FORMAT.sniff(tmp_path)
