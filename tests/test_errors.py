"""The words that errors share."""

from __future__ import annotations

import pytest

from nanogpt_cli.errors import did_you_mean, name_some, nearest

NAMES = ("float32", "bfloat16", "max_new_tokens", "gpt2-xl")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("flot32", "float32"),
        ("FLOAT32", "float32"),
        ("max-new-token", "max_new_tokens"),
        ("gpt2_xl", "gpt2-xl"),
        ("", None),
        ("zzz", None),
    ],
)
def test_the_nearest_name(typed: str, meant: str | None) -> None:
    assert nearest(typed, NAMES) == meant
    hint = f"did you mean {meant}?" if meant else "give one of them"
    assert did_you_mean(typed, iter(NAMES), "give one of them") == hint


def test_how_alike_they_must_be() -> None:
    assert nearest("gpt3", ["gpt2"], cutoff=0.75) == "gpt2"
    assert nearest("gpt3", ["gpt2"], cutoff=0.9) is None
    assert nearest("gpt2", []) is None


def test_five_names_and_the_count_of_the_rest() -> None:
    assert name_some("abcde") == "'a', 'b', 'c', 'd', 'e'"
    assert name_some("abcdefg") == "'a', 'b', 'c', 'd', 'e' and 2 more"
