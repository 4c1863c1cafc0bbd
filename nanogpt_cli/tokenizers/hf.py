"""A Hugging Face tokenizer: `tokenizer.json`, or `vocab.json` with `merges.txt`."""

from __future__ import annotations

from pathlib import Path

from nanogpt_cli.tokenizers.base import Found, Tokenizer, TokenizerKind
from nanogpt_cli.tokenizers.files import is_file
from nanogpt_cli.tokenizers.hf_files import read_hf


def _locate(folder: Path) -> Path | None:
    if is_file(folder / "tokenizer.json"):
        return folder / "tokenizer.json"
    if is_file(folder / "vocab.json") and is_file(folder / "merges.txt"):
        return folder / "vocab.json"
    return None


def _sniff(path: Path, head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" or path.suffix == ".json"


def _examine(path: Path | None) -> Found:
    assert path is not None, "a Hugging Face tokenizer is known by its path"
    return Found("hf", path, read_hf(path).n_vocab)


def _load(found: Found, vocab_size: int) -> Tokenizer:  # noqa: ARG001
    from nanogpt_cli.tokenizers.hf_library import HfTokenizer

    assert found.path is not None, "a Hugging Face tokenizer is known by its path"
    return HfTokenizer(read_hf(found.path))


KIND = TokenizerKind(
    name="hf",
    summary="a folder with tokenizer.json, or vocab.json and merges.txt",
    kept_in=("tokenizer.json", "vocab.json + merges.txt"),
    examine=_examine,
    load=_load,
    locate=_locate,
    sniff=_sniff,
)
