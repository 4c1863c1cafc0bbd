"""What holds for every kind of tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from token_tables import ALPHABET, SMALL_RANKS, char_meta, write_hf, write_meta, write_ranks

from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.tokenizers import TOKENIZERS
from nanogpt_cli.tokenizers.base import Tokenizer, TokenizerKind, start_id
from nanogpt_cli.tokenizers.search import find_tokenizer
from nanogpt_cli.tokenizers.streaming import TextStream

each_kind = pytest.mark.parametrize("kind", TOKENIZERS, ids=lambda kind: kind.name)


def make(kind: TokenizerKind, folder: Path) -> Tokenizer:
    write_meta(folder / "meta.pkl", char_meta(ALPHABET))
    write_hf(folder, SMALL_RANKS, {"<|endoftext|>": 261})
    write_ranks(folder / "demo.tiktoken", SMALL_RANKS)
    sizes = {"gpt2": 50257, "char": 8, "hf": 262, "tiktoken": 261, "ids": 12}
    return find_tokenizer(vocab_size=sizes[kind.name], near=folder, tokenizer=kind.name)[0]


def text_for(kind: TokenizerKind) -> str:
    return "5 7 2" if kind.name == "ids" else "a bad cab!\n"


def test_names_are_the_documented_ones_in_the_order_of_search() -> None:
    assert [kind.name for kind in TOKENIZERS] == ["gpt2", "char", "hf", "tiktoken", "ids"]


@each_kind
def test_text_survives(kind: TokenizerKind, tmp_path: Path) -> None:
    tokenizer = make(kind, tmp_path)
    assert tokenizer.name == kind.name
    ids = tokenizer.encode(text_for(kind))
    assert set(ids) <= set(tokenizer.known_ids())
    assert tokenizer.decode(ids) == text_for(kind)
    joined = tokenizer.separator.join(map(tokenizer.token_bytes, ids))
    assert joined == text_for(kind).encode()
    stream = TextStream(tokenizer)
    assert "".join(map(stream.feed, ids)) + stream.finish() == text_for(kind)


@each_kind
def test_every_known_id_has_bytes_and_no_other_has(kind: TokenizerKind, tmp_path: Path) -> None:
    tokenizer = make(kind, tmp_path)
    known = list(tokenizer.known_ids())
    assert known == sorted(set(known))
    assert known[-1] + 1 == tokenizer.n_vocab
    assert all(isinstance(tokenizer.token_bytes(token), bytes) for token in known)
    for token in (-1, tokenizer.n_vocab):
        with pytest.raises(TokenizerError, match=f"no token has id {token}"):
            tokenizer.token_bytes(token)


@each_kind
def test_nothing_from_nothing(kind: TokenizerKind, tmp_path: Path) -> None:
    tokenizer = make(kind, tmp_path)
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""


@each_kind
def test_start(kind: TokenizerKind, tmp_path: Path) -> None:
    starts = {"gpt2": 50256, "char": 0, "hf": 261, "tiktoken": 10, "ids": 0}
    assert start_id(make(kind, tmp_path)) == starts[kind.name]


@each_kind
def test_summary_is_one_line(kind: TokenizerKind) -> None:
    assert kind.summary
    assert "\n" not in kind.summary
    assert kind.locate(Path("/nonexistent")) is None
