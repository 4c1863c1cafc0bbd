"""Files that are no checkpoints: each is told for what it is, with what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from pickle_recipes import call, entry, text, whole
from torch_files import rezip, save, write

from nanogpt_cli.checkpoints import describe
from nanogpt_cli.checkpoints.impostors import explain
from nanogpt_cli.errors import CheckpointError

LFS = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 548118077\n"
)


def npy() -> bytes:
    """Return a numpy file."""
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    return buffer.getvalue()


def npz() -> bytes:
    """Return a numpy archive."""
    buffer = io.BytesIO()
    np.savez(buffer, a=np.arange(3), b=np.arange(2))
    return buffer.getvalue()


def tar(name: str) -> bytes:
    """Return a tar of one file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()


CASES: dict[str, tuple[bytes, str, str | None]] = {
    "empty": (b"", "empty, 0 bytes", "get the file again"),
    "text that ends amid a letter": (
        b"none of ours \xc3",
        "neither a zip archive nor a pickle (14 bytes, beginning 6e 6f 6e 65 20 6f 66 20)",
        "nanogpt convert gpt2",
    ),
    "zeros": (bytes(9000), "nothing but zeros in its first 4,096 bytes", "get the file again"),
    "git lfs": (
        LFS,
        "a Git LFS pointer of 134 bytes; the file itself has 548,118,077 bytes",
        "git lfs pull",
    ),
    "git lfs without a size": (LFS[:100], "a Git LFS pointer of 100 bytes", "git lfs pull"),
    "web page": (b"<!DOCTYPE html>\n<html><head>", "a web page (HTML)", "/resolve/"),
    "web page, shouting": (b"\n\n <HTML>" + b"x" * 9000, "a web page (HTML)", "/resolve/"),
    "xml": (b"<?xml version='1.0'?><Error/>", "a web page (HTML)", "/resolve/"),
    "refused download": (
        b"Invalid username or password.",
        "a server's answer, 'Invalid username or password.'",
        "log in",
    ),
    "missing download": (b"Entry not found", "a server's answer, 'Entry not found'", "log in"),
    "json": (b'{"n_layer": 12}', "JSON text", "the folder"),
    "long json": (b'{"a": "' + b"x" * 9000 + b'"}', "JSON text", "the folder"),
    "nearly json": (b"{not json", "text, beginning '{not json'", "convert gpt2"),
    "text": ("ünï".encode() * 2000, "text, beginning 'ünïünïünï", "convert gpt2"),
    "gguf": (b"GGUF\x03\0\0\0" + bytes(99), "a GGUF file of llama.cpp's", "made from"),
    "ggml": (b"lmgg\x01\0\0\0", "a ggml file", "made from"),
    "ggjt": (b"tjgg\x01\0\0\0", "a ggml file", "made from"),
    "llm.c": (struct.pack("<2i", 20240326, 3), "a model file of llm.c's", "convert gpt2"),
    "llm.c tokens": (struct.pack("<2i", 20240520, 1), "a token file of llm.c's", None),
    "llama2.c": (struct.pack("<2I", 0x616B3432, 1), "an export for llama2.c", "convert gpt2"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(99), "an HDF5 file", "convert gpt2"),
    "gzip": (gzip.compress(b"x"), "compressed with gzip", "unpack it first"),
    "bzip2": (bz2.compress(b"x"), "compressed with bzip2", "unpack it first"),
    "xz": (lzma.compress(b"x"), "compressed with xz", "unpack it first"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04", "compressed with zstd", "unpack it first"),
    "tar": (tar("ckpt.pt"), "a tar archive", "unpack it first"),
    "torch's tar": (tar("storages"), "a torch file from before 0.1.10, a tar", "save it again"),
    "npy": (npy(), "a numpy array", ".safetensors"),
    "npz": (npz(), "a numpy archive of 2 arrays", "a checkpoint"),
    "zip": (
        rezip({"ckpt.pt": b"1", "readme": b"2"}),
        "a zip archive without NAME/data.pkl: it holds 'ckpt.pt', 'readme'",
        "unpack it first",
    ),
    "empty zip": (rezip({}), "neither a zip archive nor a pickle (22 bytes, beginning 50", None),
    "pickle": (
        pickle.dumps({"stoi": {"a": 1}}),
        "a plain pickle of a dict, with no tensors in it",
        "--meta",
    ),
    "hostile pickle": (
        whole(entry("a", call("os", "system", text("true")))),
        "a plain pickle, not torch.save's: the file would call 'os.system' (at byte 9 of",
        "torch.save",
    ),
    "pickled weights": (
        pickle.dumps(torch.ones(3)),
        "a plain pickle, not torch.save's: the file would call 'torch.storage._load_from_bytes'",
        "torch.save",
    ),
    "broken pickle": (
        pickle.dumps({"stoi": {"a": 1}})[:-5],
        "a broken pickle: ",
        "get the file again",
    ),
    "numbers": (
        struct.pack("<8f", *[0.1] * 8),
        "neither a zip archive nor a pickle (32 bytes, beginning cd cc cc 3d cd cc cc 3d)",
        "nanogpt convert gpt2 -o gpt2.pt",
    ),
    "tokens": (
        struct.pack("<4H", 15496, 995, 13, 198),
        "neither a zip archive nor a pickle (8 bytes",
        "nanogpt convert gpt2 -o gpt2.pt",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_impostors_are_told_for_what_they_are(tmp_path: Path, name: str) -> None:
    data, found, hint = CASES[name]
    path = write(tmp_path, data)
    error = explain(path)
    start = f"{str(path)!r} is not a PyTorch checkpoint: it is {found}"
    assert error.message.startswith(start)
    assert "\n" not in error.message
    assert error.exit_code == 1
    if hint is None:
        assert name in ("llm.c tokens", "empty zip")
    else:
        assert hint in (error.hint or "")
    assert "weights_only" not in f"{error.message} {error.hint}"


@pytest.mark.parametrize("name", CASES)
def test_no_format_takes_an_impostor(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, CASES[name][0])
    with pytest.raises(CheckpointError) as caught:
        describe(path)
    assert caught.value.message == explain(path).message


def test_a_cut_zip_is_told_to_be_cut(tmp_path: Path) -> None:
    data = rezip({"readme": b"2" * 99, "archive/data.pkl": b"1"})
    path = write(tmp_path, data[:-30])
    assert explain(path).message == (
        f"cannot read {str(path)!r}: the file is cut: {len(data) - 30} bytes, "
        "and the archive's directory is missing at the end"
    )


@pytest.mark.parametrize(
    "name", ["model.ckpt.data-00000-of-00001", "model.ckpt.index", "model.ckpt.meta", "checkpoint"]
)
def test_parts_of_a_tensorflow_checkpoint(tmp_path: Path, name: str) -> None:
    error = explain(write(tmp_path, struct.pack("<8f", *[0.1] * 8), name))
    assert error.message.endswith("it is a part of a TensorFlow checkpoint, by its name")
    assert error.hint == "for GPT-2's own weights: nanogpt convert gpt2 -o gpt2.pt"


def test_folders_and_other_things(tmp_path: Path) -> None:
    assert "a folder without a checkpoint in it" in explain(tmp_path).message
    assert "no regular file" in explain(Path("/dev/null")).message


def test_an_absent_file(tmp_path: Path) -> None:
    assert "no regular file" in explain(tmp_path / "absent").message


@pytest.mark.parametrize("legacy", [False, True])
def test_any_beginning_of_a_real_file_is_told_in_one_line(tmp_path: Path, legacy: bool) -> None:
    data = save({"a": torch.arange(5.0)}, legacy=legacy)
    for length in range(0, len(data), 7):
        path = write(tmp_path, data[:length])
        with pytest.raises(CheckpointError) as caught:
            describe(path)
        assert "\n" not in caught.value.message
        assert str(path) in caught.value.message
