"""Tokens as one visible line each. CASES: decoded text, no byte-alphabet glyphs (126)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanogpt_cli.errors import UsageError
from nanogpt_cli.inspection.behaviour.labels import (
    NO_TEXT,
    Token,
    find_token,
    label_bytes,
    label_token,
    spell_token,
)
from nanogpt_cli.tokenizers.base import Tokenizer
from nanogpt_cli.tokenizers.ids import IdsTokenizer
from nanogpt_cli.tokenizers.search import find_tokenizer


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    return find_tokenizer(
        vocab_size=50257, near=Path("/nowhere"), dataset=None, tokenizer="gpt2", meta=None
    )[0]


@pytest.mark.parametrize(
    ("data", "label"),
    [
        (b" the", "␣the"),
        (b"  ", "␣␣"),
        (b"\n", r"\n"),
        (b"\t\r", r"\t\r"),
        (b"\\n", r"\\n"),
        (b"\x1b[31m", r"\x1b[31m"),
        ("é".encode(), "é"),
        (b"\xe2\x82", r"\xe2\x82"),
        (b"a\xffb", r"a\xffb"),
        ("\u00a0".encode(), r"\u00a0"),
        ("\u202e".encode(), r"\u202e"),
        ("\U000e0001".encode(), r"\U000e0001"),
        (b"[red]", "[red]"),
        (b"", ""),
    ],
)
def test_labels(data: bytes, label: str) -> None:
    assert label_bytes(data) == label


def test_a_bpe_token_is_its_text(gpt2: Tokenizer) -> None:
    assert [label_token(gpt2, token) for token in gpt2.encode(" Café\n")] == ["␣Café", r"\n"]


def test_padding_has_no_text() -> None:
    tokenizer = IdsTokenizer(3)
    assert label_token(tokenizer, 3) == NO_TEXT
    assert spell_token(tokenizer, 3) == Token(3, "", (), NO_TEXT)
    assert spell_token(tokenizer, 2) == Token(2, "2", (50,), "2")


def test_half_a_character_is_replaced_in_text_and_spelled_in_the_label(gpt2: Tokenizer) -> None:
    first, *rest = gpt2.encode("🙂")
    assert rest
    spelled = Token(first, "\ufffd", (0xF0, 0x9F), r"\xf0\x9f")
    assert spell_token(gpt2, first) == spelled


def test_a_text_of_one_token_is_found(gpt2: Tokenizer) -> None:
    assert find_token(gpt2, " the", 50257) == 262
    assert find_token(gpt2, "<|endoftext|>", 50257) == 50256
    with pytest.raises(UsageError, match=r"^'hello world' is 2 tokens: 'hello', '␣world'$"):
        find_token(gpt2, "hello world", 50257)
    with pytest.raises(UsageError, match=r"^'' is no token$"):
        find_token(gpt2, "", 50257)
