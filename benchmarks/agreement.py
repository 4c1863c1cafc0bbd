"""Whether two engines made the same ids, and if not, where they part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

TIE = 1e-4
"""Logits this near are a tie in float32: sums in another order move them by about 1e-5."""

Gap = Callable[[list[int], int, int], float]
"""By how much, in logits, the first id leads the second after these ids."""


@dataclass(frozen=True)
class Agreement:
    """An engine's ids held to the reference's.

    Args:
        rows: how many continuations.
        new_tokens: of each.
        equal_rows: that are alike to the end.
        shared_tokens: equal ids before the first difference, in the row where it comes first.
        ties: rows that part where the reference itself has a tie.
    """

    rows: int
    new_tokens: int
    equal_rows: int
    shared_tokens: int
    ties: int = 0

    @property
    def holds(self) -> bool:
        """Whether every row is alike, up to a tie at most."""
        return self.equal_rows + self.ties == self.rows

    def __str__(self) -> str:
        if self.equal_rows == self.rows:
            return "all"
        tie = f", {self.ties} by a tie" if self.ties else ""
        apart = self.rows - self.equal_rows
        where = f"{self.shared_tokens} of {self.new_tokens}"
        return where + tie if self.rows == 1 else f"{where} ({apart} of {self.rows} rows part{tie})"


def compare_ids(
    prompts: Sequence[list[int]],
    expected: Sequence[list[int]],
    found: Sequence[list[int]],
    gap: Gap | None = None,
) -> Agreement:
    """Hold `found` to `expected`, row by row.

    Args:
        prompts: what was continued.
        expected: the reference's new ids.
        found: an engine's new ids; a row of another length is a difference at its end.
        gap: asked for the reference's logits where a row parts; None takes no tie for an excuse.
    """
    assert len(prompts) == len(expected), "the reference has a row a prompt"
    if len(found) != len(prompts):
        return Agreement(len(prompts), len(expected[0]), 0, 0)
    shared = [shared_length(one, other) for one, other in zip(expected, found, strict=True)]
    equal = [one == other for one, other in zip(expected, found, strict=True)]
    ties = 0
    for row, (prompt, one, other) in enumerate(zip(prompts, expected, found, strict=True)):
        at = shared[row]
        if gap is not None and at < min(len(one), len(other)):
            ties += abs(gap([*prompt, *one[:at]], one[at], other[at])) <= TIE
    return Agreement(len(prompts), len(expected[0]), sum(equal), min(shared), ties)


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many ids are equal before the first difference."""
    pairs = zip(one, other, strict=False)
    short = min(len(one), len(other))
    return next((at for at, (a, b) in enumerate(pairs) if a != b), short)
