"""Streamed text is the text."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from token_tables import char_meta, gpt2_tokenizer

from nanogpt_cli.tokenizers.base import Tokenizer
from nanogpt_cli.tokenizers.bpe import RankTokenizer
from nanogpt_cli.tokenizers.char import CharTokenizer
from nanogpt_cli.tokenizers.ids import IdsTokenizer
from nanogpt_cli.tokenizers.streaming import TextStream

BYTES = RankTokenizer("tiktoken", "bytes", {bytes([byte]): byte for byte in range(256)}, None)

TRICKY = [0x00, 0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC0, 0xC3, 0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xF5, 0xFF]


def parts_of(tokenizer: Tokenizer, ids: list[int], *, continues: bool = False) -> list[str]:
    stream = TextStream(tokenizer, continues=continues)
    return [*(stream.feed(token) for token in ids), stream.finish()]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.integers(0, 255)) | st.lists(st.sampled_from(TRICKY)))
def test_bytes_one_by_one(ids: list[int]) -> None:
    joined = "".join(parts_of(BYTES, ids))
    assert joined == bytes(ids).decode("utf-8", errors="replace") == BYTES.decode(ids)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 50256)))
def test_gpt2(ids: list[int]) -> None:
    assert "".join(parts_of(gpt2_tokenizer(), ids)) == gpt2_tokenizer().decode(ids)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_whole_characters_only(text: str) -> None:
    parts = parts_of(BYTES, list(text.encode()))
    assert "".join(parts) == text
    assert all(part.encode().decode() == part for part in parts)
    assert parts[-1] == ""


def test_held_back_until_whole() -> None:
    assert parts_of(BYTES, list("é€😀".encode())) == [
        *("", "é"),
        *("", "", "€"),
        *("", "", "", "😀"),
        "",
    ]


def test_half_a_character_at_the_end_is_one_replacement() -> None:
    assert parts_of(BYTES, list("a😀".encode())[:-1]) == ["a", "", "", "", "\ufffd"]


def test_broken_character_is_let_go_as_soon_as_it_is_broken() -> None:
    assert parts_of(BYTES, [0xE2, 0x82, 0x41]) == ["", "", "\ufffdA", ""]


def test_separators_stand_between() -> None:
    assert parts_of(IdsTokenizer(99), [5, 17, 2]) == ["5", " 17", " 2", ""]
    assert parts_of(IdsTokenizer(99), [5, 17], continues=True) == [" 5", " 17", ""]
    assert parts_of(BYTES, [65], continues=True) == ["A", ""]


def test_surrogates_in_a_table_become_replacements() -> None:
    tokens = char_meta("ab\ud800")["itos"]
    assert isinstance(tokens, dict)
    tokenizer = CharTokenizer(tokens, "here")
    assert parts_of(tokenizer, [0, 2, 1]) == ["a", "\ufffd", "b", ""]
    assert tokenizer.decode([0, 2, 1]) == "a\ufffdb"
    assert tokenizer.encode("a\ud800b") == [0, 2, 1]
