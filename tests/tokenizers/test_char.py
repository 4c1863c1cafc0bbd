"""Tables of characters and words."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_tables import ALPHABET

from nanogpt_cli.errors import TokenizerError, UsageError
from nanogpt_cli.tokenizers.base import start_id
from nanogpt_cli.tokenizers.char import CharTokenizer

WORDS = ["the", "cat", "sat", "don't", ".", ",", "<unk>", "on"]


def table(tokens: Iterable[str]) -> CharTokenizer:
    return CharTokenizer(dict(enumerate(tokens)), "meta.pkl")


@given(st.text(alphabet=st.sampled_from(list(ALPHABET))))
def test_characters_survive(text: str) -> None:
    tokenizer = table(ALPHABET)
    ids = tokenizer.encode(text)
    assert ids == [ALPHABET.index(each) for each in text]
    assert tokenizer.decode(ids) == text


def test_attributes() -> None:
    tokenizer = table(ALPHABET)
    assert tokenizer.name == "char"
    assert tokenizer.source == "meta.pkl"
    assert tokenizer.n_vocab == 8
    assert tokenizer.known_ids() == range(8)
    assert tokenizer.end_of_text is None
    assert tokenizer.separator == b""
    assert not tokenizer.is_bpe


def test_unknown_characters_are_listed_together() -> None:
    with pytest.raises(UsageError) as caught:
        table(ALPHABET).encode("a#b\u00e9#\U0001f600\t")
    assert caught.value.message == (
        "4 characters of the prompt not among the 8 tokens of meta.pkl: "
        "'#' U+0023, 'é' U+00E9, '😀' U+1F600, '\\t' U+0009"
    )
    assert caught.value.exit_code == 2


def test_one_unknown_character() -> None:
    with pytest.raises(UsageError, match=r"^1 character of the prompt .*: 'Z' U\+005A$"):
        table(ALPHABET).encode("abcZ")


def test_many_unknown_characters_are_counted() -> None:
    with pytest.raises(UsageError) as caught:
        table("a").encode("".join(map(chr, range(0x4E00, 0x4E00 + 50))))
    assert caught.value.message.startswith("50 characters of the prompt")
    assert caught.value.message.endswith("'丑' U+4E11, '丒' U+4E12, '专' U+4E13 and 30 more")


def test_unknown_surrogate_is_named_as_its_replacement() -> None:
    with pytest.raises(UsageError, match=r"U\+FFFD$"):
        table("a").encode("\udc80")
    assert table("a\ufffd").encode("\udc80a") == [1, 0]


def test_a_surrogate_that_is_a_token_is_that_token() -> None:
    assert table("a\udc80").encode("\udc80a") == [1, 0]


def test_the_longest_token_wins() -> None:
    tokenizer = table([" ", "a", "b", "ab", "abc", "c"])
    assert tokenizer.encode("abcab ba") == [4, 3, 0, 2, 1]
    assert tokenizer.decode([4, 3, 0, 2, 1]) == "abcab ba"


def test_holes_in_the_ids() -> None:
    tokenizer = CharTokenizer({0: "a", 5: "b"}, "meta.pkl")
    assert tokenizer.n_vocab == 6
    assert tokenizer.known_ids() == [0, 5]
    with pytest.raises(TokenizerError, match="no token has id 3"):
        tokenizer.token_bytes(3)


def test_empty_token_is_decoded_and_never_matched() -> None:
    tokenizer = table(["", "a"])
    assert tokenizer.encode("aa") == [1, 1]
    assert tokenizer.decode([1, 0, 1]) == "aa"


def test_end_of_text_in_a_table() -> None:
    tokenizer = table([*"<|endoftx>", "<|endoftext|>"])
    assert tokenizer.separator == b""
    assert tokenizer.end_of_text == 10
    assert tokenizer.encode("e<|endoftext|>") == [2, 10]
    spelled = [0, 1, 2, 3, 4, 5, 6, 7, 2, 8, 7, 1, 9]
    assert tokenizer.encode("<|endoftext|>", special=False) == spelled


@pytest.mark.parametrize("marks", [("<S>", "<E>"), ("<S>", "<E>", "[PAD]", "<|x|>", "{y}", "EOS")])
def test_a_few_longer_tokens_do_not_make_words_of_an_alphabet(marks: tuple[str, ...]) -> None:
    tokenizer = table([*marks, *"ema"])
    first = len(marks)
    assert tokenizer.separator == b""
    assert tokenizer.encode("<S>emma<E>") == [0, first, first + 1, first + 1, first + 2, 1]


class TestWords:
    def test_blanks_cut_and_a_space_joins(self) -> None:
        tokenizer = table(WORDS)
        assert tokenizer.separator == b" "
        assert tokenizer.encode("the  cat\nsat") == [0, 1, 2]
        assert tokenizer.decode([0, 1, 2]) == "the cat sat"

    def test_punctuation_is_cut_off_where_it_must_be(self) -> None:
        assert table(WORDS).encode("the cat, don't sat.") == [0, 1, 5, 3, 2, 4]
        assert table([*WORDS, "cat,"]).encode("the cat, sat") == [0, 8, 2]

    def test_markers(self) -> None:
        tokenizer = table([*WORDS, "<|endoftext|>"])
        assert tokenizer.encode("the <unk> cat<|endoftext|>") == [0, 6, 1, 8]
        assert tokenizer.end_of_text == 8

    def test_words_are_never_pieced_together(self) -> None:
        with pytest.raises(UsageError) as caught:
            table(WORDS).encode("the caton sat on The catcat.")
        assert caught.value.message == (
            "3 words of the prompt not among the 8 tokens of meta.pkl: 'caton', 'The', 'catcat'"
        )

    def test_line_breaks_that_are_tokens(self) -> None:
        tokenizer = table([*WORDS, "\n"])
        assert tokenizer.separator == b" "
        assert tokenizer.encode("the\n\ncat \n") == [0, 8, 8, 1, 8]
        assert start_id(tokenizer) == 8

    def test_table_with_blanks_is_cut_into_the_longest_tokens(self) -> None:
        tokenizer = table([*WORDS, " ", "\n"])
        assert tokenizer.separator == b""
        assert tokenizer.encode("the cat.\n") == [0, 8, 1, 4, 9]
        assert tokenizer.decode([0, 8, 1, 4, 9]) == "the cat.\n"

    def test_long_unknown_text_takes_no_time(self) -> None:
        with pytest.raises(UsageError, match="and 5 more"):
            table(WORDS).encode(",".join("abcdefghijklmnopqrstuvwxy") + "," * 50_000)


@pytest.mark.parametrize(
    ("tokens", "start"),
    [
        *[("\nab", 0), ("ab\n", 2), ("ba", 0), (WORDS, 0), ([*WORDS, "\n"], 8)],
        (["<|endoftext|>", *"\nab"], 0),
    ],
)
def test_start(tokens: Iterable[str], start: int) -> None:
    assert start_id(table(tokens)) == start


def test_start_of_a_table_without_id_0() -> None:
    assert start_id(CharTokenizer({3: "a", 4: "b"}, "meta.pkl")) == 3


def test_a_small_table_is_shown_to_whoever_misses_a_character() -> None:
    digits = CharTokenizer(dict(enumerate("\n 0123456789+=")), "digits")
    with pytest.raises(UsageError) as caught:
        digits.encode("1-1")
    assert caught.value.hint == (
        "the model never saw such: leave it out of the prompt; it knows '\\n 0123456789+='"
    )
    large = CharTokenizer(dict(enumerate(map(chr, range(97, 198)))), "large")
    with pytest.raises(UsageError) as caught:
        large.encode("A")
    assert caught.value.hint == "the model never saw such: leave it out of the prompt"
