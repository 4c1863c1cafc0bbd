"""Texts that end in a loop, by hand-made sequences."""

from __future__ import annotations

import random

import pytest

from nanogpt_cli.generation.loops import Loop, LoopWatch, find_loop
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.text import Piece

SENTENCE = list(range(100, 113))
VARIED = random.Random(5).choices(range(50), k=300)


def letters(text: str) -> list[int]:
    return [ord(char) for char in text]


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (SENTENCE * 4, Loop(13, 4)),
        (VARIED + SENTENCE * 4, Loop(13, 4)),
        (VARIED + SENTENCE * 6 + SENTENCE[:5], Loop(13, 6)),
        ([1, 2] * 24, Loop(2, 24)),
        ([1, 1, 2] * 16, Loop(3, 16)),
        ([7] * 128, Loop(1, 128)),
        (VARIED + list(range(1000)) * 4, Loop(1000, 4)),
        (list(range(9000)) + SENTENCE * 4, Loop(13, 4)),
    ],
)
def test_an_end_that_comes_back_four_times_is_a_loop(ids: list[int], found: Loop) -> None:
    assert find_loop(ids) == found


@pytest.mark.parametrize(
    "ids",
    [
        [],
        [1],
        VARIED,
        SENTENCE * 3 + SENTENCE[:12],  # not yet the fourth time
        [1, 2] * 23 + [1],  # 47 tokens
        [7] * 127,  # a rule across the page
        SENTENCE * 40 + [1, 2, 3],  # it got out
        list(range(1025)) * 4,  # too long a stretch to be looked for
        letters("Never, never, never, never, never! Pray you, undo this button"),
        letters("And my poor fool is hang'd! No, no, no life! Never, never, never, never, never!"),
        letters("| 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |"),
        letters("=" * 79 + "\n" + " " * 40),
    ],
)
def test_what_people_write_is_none(ids: list[int]) -> None:
    assert find_loop(ids) is None


def test_it_is_the_definition() -> None:
    """Against the slow way to say it, on sequences of few letters that often repeat."""
    chance = random.Random(11)
    for _ in range(300):
        stretch = chance.choices(range(3), k=chance.randint(1, 20))
        ids = chance.choices(range(3), k=chance.randint(0, 30)) + stretch * chance.randint(1, 12)
        assert (find_loop(ids) is not None) == is_loop(ids)


def is_loop(ids: list[int]) -> bool:
    for length in range(48, len(ids) + 1):
        end = ids[-length:]
        periods = (p for p in range(1, length + 1) if end[p:] == end[:-p])
        period = next(periods)
        if length >= 4 * period and (period > 1 or length >= 128):
            return True
    return False


def pieces(index: int, ids: list[int]) -> list[Piece]:
    return [Piece(index, token, "x") for token in ids] + [Piece(index, None, "", "length")]


def test_the_note_counts_texts_and_says_what_to_try() -> None:
    loops, settings = LoopWatch(), SampleSettings()
    given = pieces(0, SENTENCE * 4) + pieces(1, VARIED) + pieces(2, [7] * 200)
    assert list(loops.watch(given)) == given
    assert list(loops.advise(settings)) == [
        "2 of 3 texts end in a loop, in 13 tokens that stand there 4 times over: "
        "try --repetition-penalty 1.2 or a higher --temperature"
    ]


def test_the_note_on_one_text() -> None:
    loops = LoopWatch()
    list(loops.watch(pieces(0, VARIED + [7] * 200)))
    assert list(loops.advise(SampleSettings(rng="nanogpt"))) == [
        "the text ends in a loop, in one token, 200 times over: try a higher --temperature"
    ]


def test_texts_are_looked_at_one_by_one() -> None:
    loops = LoopWatch()
    list(loops.watch([*pieces(0, SENTENCE * 2), *pieces(1, SENTENCE * 2)]))
    assert (loops.texts, list(loops.advise(SampleSettings()))) == (2, [])
