"""A `.tiktoken` file of ranks, split as GPT-2 splits."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from nanogpt_cli.tokenizers.base import Found, Tokenizer, TokenizerKind
from nanogpt_cli.tokenizers.files import is_file, read_bytes
from nanogpt_cli.tokenizers.gpt2 import END_OF_TEXT_ID, RANKS_SHA256
from nanogpt_cli.tokenizers.ranks import join_ranks, parse_ranks

_FIRST_LINE = re.compile(rb"\s*[A-Za-z0-9+/]+={0,2} +[0-9]+\s")


def _locate(folder: Path) -> Path | None:
    paths = [path for path in sorted(folder.glob("*.tiktoken")) if is_file(path)]
    return paths[0] if len(paths) == 1 else None


def _sniff(path: Path, head: bytes) -> bool:
    return _FIRST_LINE.match(head) is not None or path.suffix == ".tiktoken"


def _read(path: Path) -> tuple[dict[bytes, int], int | None]:
    """Return a file's ranks, and the id of end-of-text where they are GPT-2's."""
    ranks = parse_ranks(read_bytes(path), str(path))
    if len(ranks) != END_OF_TEXT_ID:
        return ranks, None
    is_gpt2 = hashlib.sha256(join_ranks(ranks)).hexdigest() == RANKS_SHA256
    return ranks, END_OF_TEXT_ID if is_gpt2 else None


def _examine(path: Path | None) -> Found:
    assert path is not None, "a file of ranks is known by its path"
    ranks, end_of_text = _read(path)
    last = max(ranks.values()) if end_of_text is None else end_of_text
    return Found("tiktoken", path, last + 1)


def _load(found: Found, vocab_size: int) -> Tokenizer:  # noqa: ARG001
    from nanogpt_cli.tokenizers.bpe import RankTokenizer

    assert found.path is not None, "a file of ranks is known by its path"
    ranks, end_of_text = _read(found.path)
    return RankTokenizer("tiktoken", str(found.path), ranks, end_of_text)


KIND = TokenizerKind(
    name="tiktoken",
    summary="a .tiktoken file of ranks",
    kept_in=("*.tiktoken (a single one)",),
    locate=_locate,
    sniff=_sniff,
    examine=_examine,
    load=_load,
)
