"""What is said of files that are refused or broken."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from model_files import build, envelope, save_nanogpt
from pickle_recipes import LIVE, entry, whole
from training_files import save_trained

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.errors import CheckpointError, NanoGPTError
from nanogpt_cli.inspection.refusal import RefusalReport, examine


def refused(path: Path) -> RefusalReport:
    with pytest.raises(NanoGPTError) as caught:
        open_checkpoint(str(path))
    return examine(path, caught.value)


def zipped(path: Path, stream: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("a/data.pkl", stream)
        archive.writestr("a/data/0", bytes(64))
        archive.writestr("a/version", "3\n")
    return path


def verdicts(report: RefusalReport) -> dict[str, str]:
    return {use.name: use.verdict for each in report.pickles for use in each.globals}


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_sizes_and_globals_of_a_hostile_archive(tmp_path: Path, compression: int) -> None:
    stream = whole(entry("model", LIVE["os.system"](f"touch {tmp_path}/sprung")))
    report = refused(zipped(tmp_path / "ckpt.pt", stream, compression))
    assert [(each.name, each.size_bytes) for each in report.members] == [
        ("a/data.pkl", len(stream)),
        ("a/data/0", 64),
        ("a/version", 2),
    ]
    (found,) = report.pickles
    (use,) = found.globals
    assert (found.name, use.name, use.verdict) == ("a/data.pkl", "os.system", "refused")
    assert stream[use.offset :].startswith(b"cos\nsystem\n")
    assert "os.system" in report.error
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("recipe", sorted(LIVE))
def test_nothing_runs_and_the_culprit_is_named(tmp_path: Path, recipe: str) -> None:
    stream = whole(entry("optimizer", LIVE[recipe](f"touch {tmp_path}/sprung")), 4)
    report = refused(zipped(tmp_path / "ckpt.pt", stream))
    assert "refused" in verdicts(report).values()
    assert not (tmp_path / "sprung").exists()


def test_a_plain_pickle(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    path.write_bytes(whole(entry("a", LIVE["eval"](f"touch {tmp_path}/sprung"))))
    report = refused(path)
    assert verdicts(report) == {"builtins.eval": "refused"}
    assert (report.members, report.container) == ((), None)


def test_a_legacy_file_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(envelope(build()), path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-1000])
    report = refused(path)
    assert verdicts(report)["torch._utils._rebuild_tensor_v2"] == "known"
    assert "the file is cut" in report.error


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.9, 0.999])
def test_a_zip_that_is_cut_lists_the_members_that_are_there(tmp_path: Path, kept: float) -> None:
    path = save_trained(tmp_path / "ckpt.pt")
    whole_file = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole_file)) as archive:
        places = {each.filename: each.header_offset for each in archive.infolist()}
    length = int(kept * len(whole_file))
    path.write_bytes(whole_file[:length])
    report = refused(path)
    assert report.members_by == "headers"
    there = [name for name, place in places.items() if place + 30 + len(name) <= length]
    assert [each.name for each in report.members] == there
    assert verdicts(report)["torch._utils._rebuild_tensor_v2"] == "known"
    assert "the file is cut" in report.error


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_that_is_cut_has_the_bytes_that_are_there(
    tmp_path: Path, compression: int
) -> None:
    path = zipped(tmp_path / "ckpt.pt", b"N.", compression)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"a/data/0") + len("a/data/0") + 2])
    (_, cut) = refused(path).members
    assert cut.name == "a/data/0"
    assert cut.size_bytes == (2 if compression == zipfile.ZIP_STORED else None)


@pytest.mark.parametrize("before", [70, 38 + 286])
def test_headers_are_found_across_the_borders_of_what_is_read_at_once(
    tmp_path: Path, before: int
) -> None:
    chunk = 1 << 20
    path = tmp_path / "cut.pt"
    expected = []
    with zipfile.ZipFile(path, "w") as archive:
        for number, size in enumerate((chunk - before, 10, chunk - 300, 5, 2 * chunk, 0)):
            archive.writestr(f"a/data/{number}", bytes(size))
            expected.append((f"a/data/{number}", size or None))
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"PK\1\2")])
    report = refused(path)
    assert [(each.name, each.size_bytes or None) for each in report.members] == expected


def test_another_model_shows_its_tensors(tmp_path: Path) -> None:
    path = tmp_path / "llama.pt"
    torch.save({"model": {"tok_embeddings.weight": torch.zeros(4, 2)}, "iter_num": 3}, path)
    report = refused(path)
    (tensor,) = report.tensors
    assert (tensor.name, tensor.dtype, tensor.shape) == (
        "model.tok_embeddings.weight",
        "float32",
        (4, 2),
    )
    assert report.container == "torch zip, version 3"


def test_a_folder_lists_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    report = refused(tmp_path)
    assert [(each.name, each.size_bytes) for each in report.members] == [
        ("config.json", 23),
        ("model.safetensors", 10),
    ]
    assert report.size_bytes is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty, 0 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html></html>", "a web page"),
        (b"Invalid username or password.", "a server's answer"),
        (b"GGUF\x03\0\0\0", "a GGUF file"),
        (bytes(5000), "nothing but zeros"),
        (b"\x93NUMPY\x01\0", "a numpy array"),
        (b"\x1f\x8b\x08\0", "compressed with gzip"),
        (b"\x80\x02}q\0.", "a plain pickle of a dict"),
        (b"\0\x12\x34\xff\xfe", "neither a zip archive nor a pickle"),
        (b"\x80", "neither a zip archive nor a pickle (1 bytes"),
    ],
)
def test_impostors(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "ckpt.pt"
    path.write_bytes(content)
    report = refused(path)
    assert said in report.error
    assert (report.size_bytes, report.tensors) == (len(content), ())


def test_many_pickles_are_not_all_read(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(9):
            archive.writestr(f"a{number}/data.pkl", pickle.dumps({}))
    report = refused(path)
    assert (len(report.members), len(report.pickles)) == (9, 4)


def test_every_truncation_is_a_clean_answer(tmp_path: Path) -> None:
    """Cut at every 997th byte: one error each, and whatever can still be said."""
    whole_file = save_nanogpt(tmp_path / "whole.pt", build()).read_bytes()
    path = tmp_path / "ckpt.pt"
    for length in range(0, len(whole_file), 997):
        path.write_bytes(whole_file[:length])
        with pytest.raises(CheckpointError) as caught:
            open_checkpoint(str(path))
        report = examine(path, caught.value)
        assert report.size_bytes == length
        assert "\n" not in report.error
