"""A stop text ends its sample wherever the tokens' borders fall, and nothing after it is shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanogpt_cli.generation.stops import cut_at_stops
from nanogpt_cli.generation.text import Piece


def pieces(*texts: str, index: int = 0) -> Iterator[Piece]:
    for place, text in enumerate(texts):
        yield Piece(index, place, text, "length" if place == len(texts) - 1 else None)


def run(texts: list[str], *stops: str) -> tuple[list[int], list[str], str | None]:
    """Return the ids and texts of what is given out, and why it ended."""
    stopped: set[int] = set()
    given_out = list(cut_at_stops(pieces(*texts), stops, stopped))
    assert not any(piece.finish_reason for piece in given_out[:-1])
    reason = given_out[-1].finish_reason
    assert (reason == "stop") is (stopped == {0})
    tokens = [piece for piece in given_out if piece.id is not None]
    assert not any(piece.text for piece in given_out if piece.id is None)
    return [p.id for p in tokens if p.id is not None], [p.text for p in tokens], reason


@pytest.mark.parametrize(
    ("texts", "ids", "kept"),
    [
        (["one", "\n\n", "two"], [0], ["one"]),
        (["one", "\n", "\n", "two"], [0], ["one"]),
        (["one", "x\n\ny", "two"], [0, 1], ["one", "x"]),
        (["one\n", "\ntwo"], [0], ["one"]),
        (["\n\nat once"], [], []),
        (["a", "\n", "b", "\n\n"], [0, 1, 2], ["a", "\n", "b"]),
    ],
)
def test_a_match_is_found_across_and_inside_tokens(
    texts: list[str], ids: list[int], kept: list[str]
) -> None:
    assert run(texts, "\n\n") == (ids, kept, "stop")


def test_what_may_become_a_match_is_held_back_and_then_given() -> None:
    stopped: set[int] = set()
    given_out = cut_at_stops(pieces("a", "EN", "x", "b"), ["END"], stopped)
    assert [next(given_out).text for _ in range(4)] == ["a", "EN", "x", "b"]
    pulled: list[str] = []

    def watched() -> Iterator[Piece]:
        for piece in pieces("a", "EN", "D", "b"):
            pulled.append(piece.text)
            yield piece

    given_out = cut_at_stops(watched(), ["END"], set())
    assert (next(given_out).text, pulled) == ("a", ["a"])
    assert (next(given_out).finish_reason, pulled) == ("stop", ["a", "EN", "D"])


def test_a_match_that_never_came_is_given_at_the_end() -> None:
    assert run(["a", "\n"], "\n\n") == ([0, 1], ["a", "\n"], "length")


def test_the_first_of_several_stops_counts() -> None:
    assert run(["a.", "b!", "c"], "!", ".b") == ([0], ["a"], "stop")


def test_each_sample_ends_on_its_own() -> None:
    mixed = [Piece(0, 1, "a"), Piece(1, 2, "b"), Piece(0, 3, "!"), Piece(1, 4, "c")]
    mixed += [Piece(0, 5, "late"), Piece(1, 6, "d", "length")]
    stopped: set[int] = set()
    given_out = list(cut_at_stops(mixed, ["!"], stopped))
    assert stopped == {0}
    assert "".join(p.text for p in given_out if p.index == 0) == "a"
    assert "".join(p.text for p in given_out if p.index == 1) == "bcd"


@given(
    st.lists(st.text("ab\n", max_size=4), min_size=1, max_size=12),
    st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_the_text_is_that_of_a_search_in_the_whole(texts: list[str], stops: list[str]) -> None:
    whole = "".join(texts)
    matches = [whole.find(stop) for stop in stops if stop in whole]
    expected = whole[: min(matches)] if matches else whole
    ids, kept, reason = run(texts, *stops)
    assert "".join(kept) == expected
    assert reason == ("stop" if matches else "length")
    assert ids == list(range(len(ids)))
