"""torch's zip files: every value and tensor as torch.load gives them."""

from __future__ import annotations

import argparse
import collections
import io
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from pickle_recipes import group, named, text, whole
from torch import nn
from torch_files import (
    Members,
    archive_of,
    assert_same,
    changed,
    infos,
    number,
    numbers,
    rezip,
    save,
    tensor,
    unzip,
    write,
)

from nanogpt_cli.checkpoints.contents import DTYPE_BYTES, TensorInfo
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.checkpoints.torch_files.legacy_format import TorchLegacy
from nanogpt_cli.checkpoints.torch_files.zip_format import TorchZip
from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.pickles import Record

FORMAT = TorchZip()
EDITS = ["as written", "stored again", "compressed"]


def edited(data: bytes, how: str) -> bytes:
    """Return an archive as torch wrote it, or as another program packed it again."""
    return data if how == "as written" else rezip(unzip(data), compressed=how == "compressed")


def load(data: bytes) -> object:
    """Return what torch makes of a file."""
    return torch.load(io.BytesIO(data), weights_only=True)


def training_checkpoint() -> dict[str, object]:
    """Return what nanoGPT's train.py saves, small."""
    torch.manual_seed(0)
    wte = nn.Embedding(11, 4)
    head = nn.Linear(4, 11, bias=False)
    head.weight = wte.weight
    model = nn.ModuleDict({"wte": wte, "ln_f": nn.LayerNorm(4), "lm_head": head})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        head(model["ln_f"](wte(torch.arange(11)))).square().sum().backward()
        optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "model_args": {"n_layer": 0, "bias": False, "vocab_size": 11, "dropout": 0.0},
        "iter_num": 2,
        "best_val_loss": torch.tensor(2.5),
        "config": {"out_dir": "out", "device": "cuda", "learning_rate": 6e-4, "compile": True},
    }


@pytest.mark.parametrize("how", EDITS)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_training_checkpoint(tmp_path: Path, protocol: int, how: str) -> None:
    checkpoint = training_checkpoint()
    data = save(checkpoint, protocol=protocol)
    contents = FORMAT.describe(write(tmp_path, edited(data, how)))
    assert assert_same(contents, load(save(checkpoint))) == 14
    assert contents.format == "torch-zip"
    assert contents.container == "torch zip, version 3"
    assert contents.files == (tmp_path / "ckpt.pt",)
    root = contents.root
    assert isinstance(root, dict)
    tied = [root["model"][name] for name in ("wte.weight", "lm_head.weight")]
    assert tied[0] == tied[1]
    assert {use.verdict for use in contents.globals} == {"known"}


@pytest.mark.parametrize("how", EDITS)
@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_every_type_and_layout(tmp_path: Path, dtype: str, how: str) -> None:
    torch.manual_seed(0)
    base = (torch.randn(6, 8) * 50).to(getattr(torch, dtype))
    value = {
        "plain": base,
        "transposed": base.t(),
        "slice": base[1:4, 2:7:2],
        "row": base[2],
        "scalar": base[3, 4],
        "expanded": base[:1, :1].expand(3, 5),
        "empty": base[:0],
        "empty, wide": torch.empty(0, 7, dtype=base.dtype),
        "deep": base.reshape(2, 3, 1, 2, 4).permute(4, 0, 2, 1, 3),
        "its own": base[1:3].clone(),
    }
    data = save(value)
    contents = FORMAT.describe(write(tmp_path, edited(data, how)))
    assert assert_same(contents, load(data)) == len(value)
    assert {info.dtype for info in infos(contents.root)} == {dtype}


def test_parameters_views_and_attributes(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
    frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
    marked = nn.Parameter(torch.ones(2))
    marked.origin = "here"  # type: ignore[attr-defined]
    noted = torch.ones(3)
    noted.note = 1  # type: ignore[attr-defined]
    data = save({"a": weight, "b": frozen, "c": marked, "d": noted, "e": weight})
    contents = FORMAT.describe(write(tmp_path, data))
    theirs = torch.load(io.BytesIO(data), weights_only=False)
    assert assert_same(contents, theirs) == 5


def test_attributes_of_a_state_dict_are_dropped(tmp_path: Path) -> None:
    state = nn.Linear(2, 2).state_dict()
    assert hasattr(state, "_metadata")
    root = FORMAT.describe(write(tmp_path, save(state))).root
    assert type(root) is dict
    assert list(root) == ["weight", "bias"]


def test_special_numbers_survive(tmp_path: Path) -> None:
    values = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    data = save(values)
    contents = FORMAT.describe(write(tmp_path, data))
    assert assert_same(contents, load(data)) == 1


def test_places_are_absolute_and_within_their_storage(tmp_path: Path) -> None:
    base = torch.arange(20, dtype=torch.int16)
    path = write(tmp_path, save([base, base[5:8]]))
    whole_info, part = infos(FORMAT.describe(path).root)
    raw = path.read_bytes()
    assert raw[whole_info.offset : whole_info.offset + 40] == base.numpy().tobytes()
    assert part == TensorInfo(
        dtype="int16",
        shape=(3,),
        stride=(1,),
        path=path,
        offset=whole_info.offset + 10,
        storage=whole_info.storage,
        storage_bytes=40,
    )


def test_compressed_places_count_from_the_member(tmp_path: Path) -> None:
    base = torch.arange(20, dtype=torch.int16)
    path = write(tmp_path, edited(save(base[5:8]), "compressed"))
    (info,) = infos(FORMAT.describe(path).root)
    assert (info.member, info.offset, info.storage_bytes) == ("archive/data/0", 10, 40)


def drop(*names: str) -> object:
    """Return the change that removes records, as older torch lacked them."""

    def change(members: Members) -> None:
        for name in names:
            members.pop(f"archive/{name}", None)

    return change


@pytest.mark.parametrize(
    ("gone", "container"),
    [
        ((".format_version", ".storage_alignment", ".data/serialization_id"), ", version 3"),
        (("byteorder", ".format_version", ".storage_alignment"), ", version 3"),
        (("version", "byteorder", ".format_version", ".storage_alignment"), ""),
    ],
)
def test_zips_of_every_age(tmp_path: Path, gone: tuple[str, ...], container: str) -> None:
    data = save({"a": torch.ones(3)})
    members = {
        name: part for name, part in unzip(data).items() if name.partition("/")[2] not in gone
    }
    contents = FORMAT.describe(write(tmp_path, rezip(members)))
    assert assert_same(contents, load(data)) == 1
    assert contents.container == f"torch zip{container}"


@pytest.mark.parametrize("folder", ["archive", "ckpt", "модель", "a b", "data"])
def test_any_folder_name_any_extension(tmp_path: Path, folder: str) -> None:
    data = save(torch.ones(3))
    members = {f"{folder}/{name[8:]}": part for name, part in unzip(data).items()}
    path = write(tmp_path, rezip(members), "weights.txt")
    assert FORMAT.sniff(path)
    assert assert_same(FORMAT.describe(path), load(data)) == 1


def test_other_files_of_the_archive_are_ignored(tmp_path: Path) -> None:
    data = save(torch.ones(3))
    members = {"__MACOSX/x": b"1", "archive/": b"", **unzip(data), "archive/extra": b"2"}
    path = write(tmp_path, rezip(members))
    assert FORMAT.sniff(path)
    assert assert_same(FORMAT.describe(path), load(data)) == 1


def test_tensors_of_a_gpu_need_none(tmp_path: Path) -> None:
    data = save({"a": torch.arange(3.0)})
    for tag in ("cuda:0", "cuda:7", "mps", "xpu:0"):

        def retag(members: Members, tag: str = tag) -> None:
            stream = members["archive/data.pkl"]
            assert text("cpu") in stream
            members["archive/data.pkl"] = stream.replace(text("cpu"), text(tag))

        contents = FORMAT.describe(write(tmp_path, changed(data, retag)))
        assert assert_same(contents, load(data)) == 1


def test_config_objects_are_inert(tmp_path: Path) -> None:
    value = torch.ones(1), torch.device("cuda", 1), torch.float16, torch.Size([2, 3]), torch.strided
    contents = FORMAT.describe(write(tmp_path, save(list(value))))
    assert isinstance(contents.root, list)
    assert contents.root[1:] == ["cuda:1", "float16", (2, 3), "torch.strided"]


class Settings:
    """A config of a class of its own."""

    def __init__(self) -> None:
        self.n_layer = 3


def test_what_training_scripts_leave_beside_the_weights(tmp_path: Path) -> None:
    value = {
        "model": {"a": torch.ones(2)},
        "best_val_loss": np.float32(1.5),
        "step": np.int64(7),
        "out_dir": Path("out") / "run",
        "args": argparse.Namespace(n_layer=3),
        "cfg": types.SimpleNamespace(bias=False),
        "seen": {1, 2},
        "rng": b"\x00\xff",
        "losses": collections.deque([1.0], maxlen=9),
        "settings": Settings(),
    }
    root = FORMAT.describe(write(tmp_path, save(value))).root
    assert isinstance(root, dict)
    plain = {key: part for key, part in root.items() if not isinstance(part, Record)}
    del plain["model"]
    assert plain == {
        "best_val_loss": 1.5,
        "step": 7,
        "out_dir": "out/run",
        "seen": {1, 2},
        "rng": b"\x00\xff",
        "losses": [1.0],
    }
    fields = {key: part.fields for key, part in root.items() if isinstance(part, Record)}
    assert fields == {"args": {"n_layer": 3}, "cfg": {"bias": False}, "settings": {"n_layer": 3}}


class Node:
    """Knows what holds it."""

    def __init__(self) -> None:
        self.children = [self]


@pytest.mark.parametrize("legacy", [False, True])
def test_objects_that_hold_themselves_are_noted(tmp_path: Path, legacy: bool) -> None:
    path = write(tmp_path, save({"a": torch.ones(2), "config": Node()}, legacy=legacy))
    contents = (TorchLegacy() if legacy else FORMAT).describe(path)
    assert contents.notes == (
        "1 references from pickled objects back to what holds them are dropped",
    )


def test_a_whole_optimizer_keys_by_parameter(tmp_path: Path) -> None:
    layer = nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(2)).sum().backward()
    optimizer.step()
    data = save({"model": layer.state_dict(), "optimizer": optimizer})
    root = FORMAT.describe(write(tmp_path, data)).root
    assert isinstance(root, dict)
    record = root["optimizer"]
    assert isinstance(record, Record)
    state = record.fields["state"]
    assert isinstance(state, dict)
    assert [key.shape for key in state] == [(3, 2), (3,)]
    assert state[next(iter(state))]["exp_avg"].shape == (3, 2)


def test_a_whole_module_is_a_record_with_its_tensors(tmp_path: Path) -> None:
    data = save({"model": nn.Linear(2, 3), "config": Settings(), "d": collections.Counter("ab")})
    contents = FORMAT.describe(write(tmp_path, data))
    root = contents.root
    assert isinstance(root, dict)
    module, config = root["model"], root["config"]
    assert isinstance(module, Record)
    assert module.class_name == "torch.nn.modules.linear.Linear"
    assert isinstance(module.fields["_parameters"], dict)
    assert module.fields["_parameters"]["weight"].shape == (3, 2)
    assert isinstance(config, Record)
    assert config.fields == {"n_layer": 3}
    inert = [use.name for use in contents.globals if use.verdict == "inert"]
    assert inert == ["torch.nn.modules.linear.Linear", f"{__name__}.Settings"]


@pytest.mark.parametrize(
    "value",
    [torch.ones(2, dtype=torch.complex64), torch.ones(2, dtype=torch.uint16)],
    ids=["complex64", "uint16"],
)
def test_types_that_no_model_has(tmp_path: Path, value: torch.Tensor) -> None:
    with pytest.raises(CheckpointError, match=r"a tensor of type '(complex64|uint16)'") as caught:
        FORMAT.describe(write(tmp_path, save(value)))
    assert "float32" in (caught.value.hint or "")


def test_sparse_and_quantized_tensors_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"would call 'torch\._utils\._rebuild_sparse_tensor"):
        FORMAT.describe(write(tmp_path, save(torch.eye(3).to_sparse())))
    with pytest.raises(CheckpointError, match=r"would call 'torch\._utils\._rebuild_meta_tensor"):
        FORMAT.describe(write(tmp_path, save(torch.ones(2, device="meta"))))


def test_a_negated_tensor_is_refused(tmp_path: Path) -> None:
    value = torch.imag(torch.ones(2, dtype=torch.complex64).conj())
    assert value.is_neg()
    with pytest.raises(CheckpointError, match=r"complex64|negated"):
        FORMAT.describe(write(tmp_path, save(value)))
    flagged = tensor(
        None, b"I0\n", b"I2\n\x85", b"I1\n\x85", b"\x89", b"}" + text("neg") + b"\x88s"
    )
    with pytest.raises(CheckpointError, match="stored negated or conjugated"):
        FORMAT.describe(write(tmp_path, archive_of(flagged)))


def test_big_endian_files_are_told(tmp_path: Path) -> None:
    members = {**unzip(save(torch.ones(2))), "archive/byteorder": b"big"}
    with pytest.raises(CheckpointError, match="byte order 'big', and only 'little' can be read"):
        FORMAT.describe(write(tmp_path, rezip(members)))


@pytest.mark.parametrize("name", ["constants.pkl", "code/__torch__.py"])
def test_torchscript_is_told(tmp_path: Path, name: str) -> None:
    members = {**unzip(save(torch.ones(2))), f"archive/{name}": b"x"}
    with pytest.raises(CheckpointError, match="it is a TorchScript archive") as caught:
        FORMAT.describe(write(tmp_path, rezip(members)))
    assert "torch.jit.load" in (caught.value.hint or "")


def wide_archive(path: Path, hole: int) -> None:
    """Write an archive with a record of zeros, beyond 4 GiB, that takes no room on the disk."""
    kind = named("torch", "FloatStorage")
    places = [
        group(text("storage"), kind, text(key), text("cpu"), number(count)) + b"Q"
        for key, count in (("0", hole // 4), ("1", 4))
    ]
    tensors = [
        tensor(places[0], number(hole // 4 - 2), numbers(2), numbers(1)),
        tensor(places[1], number(0), numbers(4), numbers(1)),
    ]
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), whole(group(*tensors)))
        with archive.open(zipfile.ZipInfo("archive/data/0"), "w", force_zip64=True) as member:
            member.write(b"")
        archive.start_dir = file.tell() + hole
        entry = archive.getinfo("archive/data/0")
        entry.file_size = entry.compress_size = hole
        archive.writestr(zipfile.ZipInfo("archive/data/1"), np.arange(4, dtype="<f4").tobytes())


def test_records_beyond_four_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "wide.pt"
    hole = (4 << 30) + 4096
    wide_archive(path, hole)
    assert path.stat().st_size > hole
    far, beyond = infos(list(_tuple(FORMAT.describe(path).root)))
    assert beyond.offset > hole
    assert far.offset + 8 < beyond.offset
    assert TensorReader().read(beyond).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert TensorReader().read(far).tolist() == [0.0, 0.0]


def _tuple(value: object) -> tuple[object, ...]:
    assert isinstance(value, tuple)
    return value


def test_refusals_name_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, archive_of(b"cos\nsystem\n" + text("true") + b"\x85R"))
    with pytest.raises(CheckpointError) as caught:
        FORMAT.describe(path)
    assert caught.value.message == (
        f"cannot read {str(path)!r}: the file would call 'os.system' "
        "(at byte 2 of data.pkl): refused, nothing was run"
    )


def test_sniffing_goes_by_content(tmp_path: Path) -> None:
    data = save(torch.ones(2))
    assert FORMAT.sniff(write(tmp_path, data, "a.bin"))
    assert FORMAT.sniff(write(tmp_path, data[:200], "cut.pt"))
    assert FORMAT.sniff(write(tmp_path, rezip({"a/x": b"1", "a/data.pkl": b""}), "late.pt"))
    assert not FORMAT.sniff(write(tmp_path, rezip({"data.pkl": b"1"}), "flat.pt"))
    assert not FORMAT.sniff(write(tmp_path, rezip({"a/b/data.pkl": b"1"}), "below.pt"))
    assert not FORMAT.sniff(write(tmp_path, save(torch.ones(2), legacy=True), "old.pt"))
    assert not FORMAT.sniff(write(tmp_path, b"", "empty.pt"))
    assert not FORMAT.sniff(tmp_path)
    assert not FORMAT.sniff(tmp_path / "absent.pt")


def test_describing_imports_nothing_heavy(tmp_path: Path) -> None:
    for name, data in (
        ("new.pt", save(training_checkpoint())),
        ("old.pt", save(training_checkpoint(), legacy=True)),
    ):
        write(tmp_path, data, name)
    code = (
        "import sys; from pathlib import Path\n"
        "from nanogpt_cli.checkpoints.torch_files.zip_format import TorchZip\n"
        "from nanogpt_cli.checkpoints.torch_files.legacy_format import TorchLegacy\n"
        "folder = Path(sys.argv[1])\n"
        "TorchZip().describe(folder / 'new.pt'); TorchLegacy().describe(folder / 'old.pt')\n"
        "print([m for m in ('torch', 'numpy') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_reading_warns_of_nothing_and_leaves_the_file_alone(tmp_path: Path) -> None:
    path = write(tmp_path, save(torch.zeros(3)))
    before = path.read_bytes()
    (info,) = infos(FORMAT.describe(path).root)
    read = TensorReader().read(info)
    read.fill_(7.0)
    assert read.tolist() == [7.0, 7.0, 7.0]
    assert path.read_bytes() == before
