"""Tables for transformers, derived from ranks: the very files that OpenAI published."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from nanogpt_cli.conversion.merges import (
    find_merges,
    merges_txt,
    spell,
    tokenizer_config,
    vocab_json,
)
from nanogpt_cli.tokenizers.gpt2 import END_OF_TEXT_ID, RANKS_PATH, load_gpt2, unpack_ranks
from nanogpt_cli.tokenizers.ranks import split_ranks

VOCAB_BPE_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
"""Of OpenAI's vocab.bpe, the value that tiktoken pins."""

LETTERS = {bytes([code]): code for code in range(256)}


@pytest.fixture(scope="module")
def ranks() -> dict[bytes, int]:
    return split_ranks(unpack_ranks(RANKS_PATH.read_bytes()))


def test_gpt2s_merges_are_the_published_ones(ranks: dict[bytes, int]) -> None:
    merges = find_merges(ranks)
    assert merges is not None
    assert hashlib.sha256(merges_txt(merges)).hexdigest() == VOCAB_BPE_SHA256


def test_gpt2s_tables_encode_as_ours(tmp_path: Path, ranks: dict[bytes, int]) -> None:
    merges = find_merges(ranks)
    assert merges is not None
    (tmp_path / "vocab.json").write_bytes(vocab_json(ranks, END_OF_TEXT_ID))
    (tmp_path / "merges.txt").write_bytes(merges_txt(merges))
    config = tokenizer_config(1024, has_end_of_text=True)
    (tmp_path / "tokenizer_config.json").write_bytes(config)
    library: Any = transformers
    theirs, ours = library.GPT2Tokenizer.from_pretrained(tmp_path), load_gpt2()
    for text in (
        "hello world",
        "  don't\n\n\tstop 12345",
        "naïve 日本語 \U0001f600",
        "x" * 40,
        "#version: 0.2",
    ):
        assert theirs(text)["input_ids"] == ours.encode(text)


def test_the_byte_level_alphabet() -> None:
    assert spell(b" \n\x00A\xff") == "\u0120\u010a\u0100A\xff"
    vocab = json.loads(vocab_json({b"a": 0, b" a": 1}, 2))
    assert vocab == {"a": 0, "\u0120a": 1, "<|endoftext|>": 2}


def test_a_token_is_split_where_the_earlier_ranks_split_it() -> None:
    ranks = {**LETTERS, b"bc": 256, b"ab": 257, b"abc": 258, b"aa": 259, b"aaa": 260}
    assert find_merges(ranks) == [
        (b"b", b"c"),
        (b"a", b"b"),
        (b"a", b"bc"),
        (b"a", b"a"),
        (b"aa", b"a"),
    ]


@pytest.mark.parametrize(
    "extra",
    [{b"abc": 256}, {b"<|user|>": 256}, {b"abcd": 256, b"ab": 257, b"cd": 258}],
    ids=["no pair", "a special token", "parts come later"],
)
def test_ranks_that_no_merges_give(extra: dict[bytes, int]) -> None:
    assert find_merges({**LETTERS, **extra}) is None


def test_a_byte_that_has_no_token_makes_no_merge() -> None:
    ranks = {b"a": 0, b"ab": 1}
    assert find_merges(ranks) is None
