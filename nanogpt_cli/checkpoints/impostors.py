"""What a file is that no format knows, told by its content, and what to do about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from nanogpt_cli import pickles
from nanogpt_cli.checkpoints.files import DAMAGED, map_file
from nanogpt_cli.checkpoints.torch_files.zip_layout import LOCAL_SIGNATURE
from nanogpt_cli.checkpoints.torch_files.zips import read_directory
from nanogpt_cli.errors import CheckpointError, name_some

HEAD_BYTES = 4096
_AGAIN = "the download or the save did not finish: get the file again, or wait for the save"
_STOCK = "for GPT-2's own weights: nanogpt convert gpt2 -o gpt2.pt"
_UNPACK = "unpack it first, and give the checkpoint inside"
_ORIGINAL = "give the PyTorch, safetensors or Hugging Face files that it was made from"

# (first bytes, what it is, what to do)
SIGNATURES = (
    (b"GGUF", "a GGUF file of llama.cpp's", _ORIGINAL),
    *((magic, "a ggml file", _ORIGINAL) for magic in (b"lmgg", b"fmgg", b"tjgg", b"algg")),
    ((20240326).to_bytes(4, "little"), "a model file of llm.c's", _STOCK),
    ((20240520).to_bytes(4, "little"), "a token file of llm.c's, no model", None),
    ((20240328).to_bytes(4, "little"), "a tokenizer file of llm.c's, no model", None),
    (b"24ka", "an export for llama2.c, another architecture", _STOCK),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, weights of Keras or TensorFlow", _STOCK),
    (b"\x1f\x8b", "compressed with gzip", _UNPACK),
    (b"\xfd7zXZ\0", "compressed with xz", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", _UNPACK),
    (b"BZh", "compressed with bzip2", _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    (b"\x93NUMPY", "a numpy array", "give a checkpoint: a .pt or .safetensors file"),
)
_LFS = b"version https://git-lfs.github.com/spec/"
_SERVER_ANSWERS = (
    *("Invalid username or password", "Invalid credentials", "Access to model", "Entry not found"),
    *("Repository not found", "Unauthorized", "Forbidden", "Not Found", "404", "401", "403"),
)
_TENSORFLOW_NAME = re.compile(r"\.(data-\d{5}-of-\d{5}|index|meta)$|^checkpoint$")


def explain(path: Path) -> CheckpointError:
    """Return the error that says what `path` is instead of a checkpoint, and what to do.

    It is returned, not raised, since the caller knows that no format took the file.
    """
    try:
        what, hint = _identify(path)
    except OSError as error:
        return CheckpointError(f"cannot read {str(path)!r}: {error.strerror or error}")
    except CheckpointError as error:
        return CheckpointError(f"cannot read {str(path)!r}: {error.message}", error.hint or DAMAGED)
    return CheckpointError(f"{str(path)!r} is not a PyTorch checkpoint: it is {what}", hint)


def _identify(path: Path) -> tuple[str, str | None]:
    """Return what a path is, as the end of a sentence, and a hint."""
    if path.is_dir():
        return "a folder without a checkpoint in it", "give the file itself"
    if not path.is_file():
        return "no regular file", "give a file or a folder"
    size = path.stat().st_size
    if not size:
        return "empty, 0 bytes", _AGAIN
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(LOCAL_SIGNATURE):
        return _archive(path)
    for magic, what, hint in SIGNATURES:
        if head.startswith(magic):
            return what, hint
    if head[257:262] == b"ustar":
        return _tar(head)
    if not head.strip(b"\0"):
        return f"nothing but zeros in its first {len(head):,} bytes", _AGAIN
    return _text(head, size) or _pickle(path, head) or _unknown(path, head, size)


def _archive(path: Path) -> tuple[str, str | None]:
    """Say what a zip without NAME/data.pkl holds; a broken one raises CheckpointError."""
    names = list(read_directory(path))
    if names and all(name.endswith(".npy") for name in names):
        return f"a numpy archive of {len(names)} arrays", "give a checkpoint instead"
    inside = f": it holds {name_some(names)}" if names else ", an empty one"
    return f"a zip archive without NAME/data.pkl{inside}", _UNPACK if names else _AGAIN


def _tar(head: bytes) -> tuple[str, str | None]:
    first = head[:100].rstrip(b"\0")
    if first in (b"pickle", b"storages", b"tensors", b"sys_info"):
        return (
            "a torch file from before 0.1.10, a tar",
            "load it with a torch of its time or any later one, and save it again",
        )
    return "a tar archive", _UNPACK


def _text(head: bytes, size: int) -> tuple[str, str | None] | None:
    """Say what kind of text a file is, or None where it is none."""
    text = _decoded(head)
    if text is None:
        return None
    start = text.lstrip("\ufeff \t\r\n")
    if head.startswith(_LFS):
        return _lfs_pointer(text)
    if re.match(r"<(!doctype|html|head|\?xml|!--)", start, re.IGNORECASE):
        return (
            "a web page (HTML)",
            "download the file itself: on a hub its address has /resolve/ or /raw/, not /blob/",
        )
    if size < HEAD_BYTES and start.startswith(_SERVER_ANSWERS):
        return (
            f"a server's answer, {start[:60].rstrip()!r}",
            "log in or check the address, and download the file again",
        )
    if start.startswith(("{", "[")):
        return _json(start, size)
    return f"text, beginning {start[:40]!r}", _STOCK


def _decoded(head: bytes) -> str | None:
    """Return the file's beginning as text, None where it is none."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(head) < HEAD_BYTES or error.start < len(head) - 4:
            return None
        text = head[: error.start].decode("utf-8")
    readable = all(letter.isprintable() or letter in "\t\r\n\f\ufeff" for letter in text)
    return text if readable else None


def _lfs_pointer(text: str) -> tuple[str, str | None]:
    match = re.search(r"^size (\d{1,19})$", text, re.MULTILINE)
    size = f"; the file itself has {int(match[1]):,} bytes" if match else ""
    return (
        f"a Git LFS pointer of {len(text)} bytes{size}",
        "fetch the file in its repository: git lfs install, then git lfs pull",
    )


def _json(start: str, size: int) -> tuple[str, str | None]:
    hint = "give the folder that it lies in, or the weights beside it"
    if size < HEAD_BYTES:
        try:
            json.loads(start)
        except (ValueError, RecursionError):
            return f"text, beginning {start[:40]!r}", _STOCK
    return "JSON text", hint


def _pickle(path: Path, head: bytes) -> tuple[str, str | None] | None:
    """Say what a plain pickle of protocol 2 or later holds, or None where a file is none."""
    if len(head) < 3 or head[:1] != b"\x80" or not 2 <= head[1] <= 5:
        return None
    with map_file(path) as data:
        try:
            made = pickles.load(data, name="the pickle")
        except CheckpointError as error:
            uses = pickles.scan_globals(data)
            if not any(use.verdict == "refused" for use in uses):
                return f"a broken pickle: {error.message}", _AGAIN
            return (
                f"a plain pickle, not torch.save's: {error.message}",
                "where you trust it: load it with pickle, and save its weights with torch.save",
            )
    kind = made.value.class_name if isinstance(made.value, pickles.Record) else None
    return (
        f"a plain pickle of a {kind or type(made.value).__name__}, with no tensors in it",
        "a token table (meta.pkl) goes with --meta",
    )


def _unknown(path: Path, head: bytes, size: int) -> tuple[str, str | None]:
    if _TENSORFLOW_NAME.search(path.name):
        return "a part of a TensorFlow checkpoint, by its name", _STOCK
    start = head[:8].hex(" ")
    return f"neither a zip archive nor a pickle ({size:,} bytes, beginning {start})", _STOCK
