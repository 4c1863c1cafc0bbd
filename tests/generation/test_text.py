"""Tokens become whole characters, in the order of the samples."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanogpt_cli.generation.engine import NewToken
from nanogpt_cli.generation.text import Piece, in_order, stream_text
from nanogpt_cli.tokenizers.base import Tokenizer
from nanogpt_cli.tokenizers.ids import IdsTokenizer
from nanogpt_cli.tokenizers.search import find_tokenizer


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    return find_tokenizer(vocab_size=50257, tokenizer="gpt2")[0]


def tokens(*samples: list[int], last: str = "length") -> Iterator[NewToken]:
    """All samples in step, as the engine gives them."""
    for step in range(max(map(len, samples))):
        for index, sample in enumerate(samples):
            if step < len(sample):
                done = step == len(sample) - 1
                yield NewToken(index, sample[step], last if done else None)


def test_a_character_of_several_tokens_comes_whole(gpt2: Tokenizer) -> None:
    ids = gpt2.encode("é 日本🎉!")
    pieces = list(stream_text(tokens(ids), gpt2))
    assert "".join(piece.text for piece in pieces) == "é 日本🎉!"
    assert not any("\ufffd" in piece.text for piece in pieces)
    assert [piece.id for piece in pieces] == ids
    assert [piece.finish_reason for piece in pieces] == [None] * (len(ids) - 1) + ["length"]


def test_half_a_character_at_the_end_is_one_replacement_mark(gpt2: Tokenizer) -> None:
    ids = gpt2.encode("a🎉")[:-1]
    assert len(ids) > 2
    assert "".join(piece.text for piece in stream_text(tokens(ids), gpt2)) == "a\ufffd"


@given(st.lists(st.integers(0, 50256), min_size=1, max_size=40))
def test_the_stream_joined_is_the_decoded_whole(ids: list[int]) -> None:
    tokenizer = find_tokenizer(vocab_size=50257, tokenizer="gpt2")[0]
    assert "".join(p.text for p in stream_text(tokens(ids), tokenizer)) == tokenizer.decode(ids)


def test_ids_stand_apart_within_a_sample_and_not_across() -> None:
    pieces = list(stream_text(tokens([5, 7], [8]), IdsTokenizer(10)))
    assert [(p.index, p.text) for p in pieces] == [(0, "5"), (1, "8"), (0, " 7")]


def test_a_sample_that_ends_without_a_token_still_ends(gpt2: Tokenizer) -> None:
    ended = [NewToken(0, 64), NewToken(0, None, "eos"), NewToken(1, None, "eos")]
    assert list(stream_text(ended, gpt2)) == [
        Piece(0, 64, "a"),
        Piece(0, None, "", "eos"),
        Piece(1, None, "", "eos"),
    ]


@given(st.permutations([0] * 3 + [1] * 2 + [2] * 4 + [3]))
def test_samples_come_one_after_another(order: list[int]) -> None:
    """Whatever the order of their tokens; each sample's own stay in order and none is lost."""
    left = {index: order.count(index) for index in range(4)}
    pieces = []
    for index in order:
        left[index] -= 1
        pieces.append(Piece(index, left[index], "", None if left[index] else "length"))
    given_out = list(in_order(pieces))
    assert [piece.index for piece in given_out] == sorted(order)
    assert given_out == [piece for index in range(4) for piece in pieces if piece.index == index]


def test_the_first_sample_is_not_held_back() -> None:
    pieces = in_order(iter([Piece(0, 1, "a"), Piece(1, 1, "x"), Piece(0, 2, "b", "length")]))
    assert next(pieces).text == "a"
