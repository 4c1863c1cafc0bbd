"""Tables of tokens that the tests of this folder build and write."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from nanogpt_cli.tokenizers import gpt2
from nanogpt_cli.tokenizers.base import Tokenizer
from nanogpt_cli.tokenizers.hf_pieces import GLYPHS
from nanogpt_cli.tokenizers.ranks import join_ranks, split_ranks

ZOO = Path(os.environ.get("NANOGPT_ZOO") or Path(__file__).parents[3] / "shared" / "zoo")

GLYPH_OF = {byte: glyph for glyph, byte in GLYPHS.items()}

SMALL_RANKS = {bytes([byte]): byte for byte in range(256)} | {
    b"th": 256,
    b"the": 257,
    b" the": 258,
    b"\xc3\xa9": 259,
    b"\n\n": 260,
}

ALPHABET = "\n !abcde"


def zoo_folder(name: str) -> Path:
    """Return a folder of files by others; the test is skipped where it is absent."""
    folder = ZOO / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here")
    return folder


@cache
def gpt2_tokenizer() -> Tokenizer:
    return gpt2.load_gpt2()


@cache
def gpt2_ranks() -> dict[bytes, int]:
    return split_ranks(gpt2.unpack_ranks(gpt2.RANKS_PATH.read_bytes()))


def write_meta(path: Path, value: object, protocol: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def char_meta(tokens: Iterable[str]) -> dict[str, object]:
    """Return what nanoGPT's prepare.py writes for these tokens."""
    listed = list(tokens)
    return {
        "vocab_size": len(listed),
        "itos": dict(enumerate(listed)),
        "stoi": {token: number for number, token in enumerate(listed)},
    }


def write_ranks(path: Path, ranks: dict[bytes, int]) -> Path:
    path.write_bytes(join_ranks(ranks))
    return path


def spell(token: bytes) -> str:
    """Return a token in the byte-level alphabet."""
    return "".join(GLYPH_OF[byte] for byte in token)


def write_hf(folder: Path, ranks: dict[bytes, int], more: dict[str, int], **files: object) -> Path:
    """Write vocab.json and merges.txt for `ranks`, `more` tokens, and further JSON files."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {spell(token): rank for token, rank in ranks.items()} | more
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    lines = [" ".join(map(spell, _halves(token, ranks))) for token in ranks if len(token) > 1]
    text = "\n".join(["#version: 0.2", *lines, ""])
    (folder / "merges.txt").write_text(text, encoding="utf-8")
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def _halves(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """Return the two tokens whose merge is `token`."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        joined = [left + right for left, right in pairwise(parts)]
        _, place = min((ranks.get(pair, len(ranks)), place) for place, pair in enumerate(joined))
        parts[place : place + 2] = [joined[place]]
    return parts
