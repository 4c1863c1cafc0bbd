"""Which rows of an embedding training never touched.

Adam's second moment proves it where the file has one: a row of zeros never had a gradient.
Without it, the tail of a matrix is compared with what initialisation leaves: independent noise of
one spread, shrunk alike by weight decay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

INIT_STD = 0.02
"""The spread of every linear and embedding weight at the start, by nanoGPT's _init_weights."""

LEAST_ROWS = 4
"""A shorter tail is no evidence."""

MOST_ROUNDS = 8
MOST_ROWS = 8192
"""Rows at the end that are looked at first: a tail is seldom longer."""

BLOCK_ROWS = 1024

ALLOWED = 4.0
"""What a row of noise may score on average, of an expectation of 2, before it counts against."""


@dataclass(frozen=True)
class UntrainedRows:
    """Rows that were never trained.

    Args:
        name: the matrix.
        rows: how many it has.
        untrained: which of them, as ranges (first, last).
        count: how many these are.
        evidence: "Adam" (no gradient ever), "noise" (as initialised), "zero", or "" for none.
    """

    name: str
    rows: int
    untrained: tuple[tuple[int, int], ...]
    count: int
    evidence: str


def find_without_gradient(name: str, second_moment: Tensor) -> UntrainedRows | None:
    """Return the rows of an embedding that never had a gradient; None if Adam's moment is blank.

    Args:
        name: nanoGPT's name of it.
        second_moment: (rows, C), Adam's exp_avg_sq.
    """
    touched = second_moment.amax(dim=1) != 0
    if not touched.any():
        return None
    return _report(name, len(touched), ~touched, "Adam")


def find_untrained(name: str, matrix: Tensor, *, is_tied: bool) -> UntrainedRows:
    """Return the rows of an embedding that look as if training never touched them.

    Args:
        name: nanoGPT's name of it.
        matrix: (rows, C) float32.
        is_tied: whether it is the head, too, so that every row has gradients.
    """
    rows = matrix.shape[0]
    zero = (matrix.amax(dim=1) == 0) & (matrix.amin(dim=1) == 0)
    if zero.any():
        return _report(name, rows, zero, "zero")
    tail = count_noise_tail(matrix)
    if is_tied and not tail:
        tail = count_noise_tail(matrix, centred=True)
    untouched = torch.zeros(rows, dtype=torch.bool)
    untouched[rows - tail :] = True
    return _report(name, rows, untouched, "noise")


def _report(name: str, rows: int, untouched: Tensor, evidence: str) -> UntrainedRows:
    ids: list[int] = untouched.nonzero().flatten().tolist()
    ranges: list[tuple[int, int]] = []
    for row in ids:
        if ranges and ranges[-1][1] == row - 1:
            ranges[-1] = (ranges[-1][0], row)
        else:
            ranges.append((row, row))
    return UntrainedRows(name, rows, tuple(ranges), len(ids), evidence if ids else "")


def count_noise_tail(matrix: Tensor, *, centred: bool = False) -> int:
    """Return how many rows at the end are noise of one spread, of at most INIT_STD.

    A row scores the squares of two figures that are standard normal for noise: its mean square
    against the spread's, and its cosine with the row before it. The tail is the one whose scores
    stay furthest below ALLOWED in sum; the spread is then that tail's, until both agree.

    Args:
        matrix: (rows, C) float32.
        centred: first take away the mean of the tail: what a tied head adds to the rows of tokens
            that never occur is the same for all of them.
    """
    rows, C = matrix.shape
    if rows < 2 * LEAST_ROWS or C < 8:
        return 0
    if rows > MOST_ROWS:
        tail = count_noise_tail(matrix[-MOST_ROWS:], centred=centred)
        if tail < MOST_ROWS:
            return tail
    starts = (16, 48) if centred else (LEAST_ROWS,)
    return max(_settle(matrix, min(rows // 2, start), centred=centred) for start in starts)


def _settle(matrix: Tensor, assumed: int, *, centred: bool) -> int:
    """Return the tail that is noise of its own spread, beginning with an assumed one."""
    C = matrix.shape[1]
    centre, allowed = torch.zeros(C), ALLOWED
    power, cosines = _row_figures(matrix, centre)
    tail = 0
    for _ in range(MOST_ROUNDS):
        if centred:
            power, cosines = _row_figures(matrix, matrix[-assumed:].mean(dim=0))
            allowed = ALLOWED + 3 * C / assumed**2  # what the mean of so few rows adds
        spread = float(power[-assumed:].mean())
        if not 0.0 < spread <= (INIT_STD * (1 + 3 / math.sqrt(2 * assumed * C))) ** 2:
            return 0
        scores = C / 2 * (power[1:] / spread - 1).square() + C * cosines.square()
        tail = _longest_tail(allowed - scores.nan_to_num(nan=1e9, posinf=1e9))
        if tail in (0, assumed):
            break
        assumed = tail
    return tail


def _longest_tail(gains: Tensor) -> int:
    """Return how many rows at the end gain most in sum; 0 where no tail gains anything."""
    sums = gains.flip(0).cumsum(0)
    best = int(sums.argmax()) + 1
    if float(sums[best - 1]) <= 0 or best < LEAST_ROWS:
        return 0
    # The first row has none before it, and so no gain of its own: it goes with the second.
    return best + 1 if best == len(gains) else best


def _row_figures(matrix: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's mean square, (rows,), and its cosine with the row before, (rows - 1,)."""
    powers, cosines = [], []
    for begin in range(0, matrix.shape[0], BLOCK_ROWS):
        rows = matrix[max(0, begin - 1) : begin + BLOCK_ROWS] - centre
        power = rows.square().mean(dim=1)
        lengths = power.sqrt().clamp(min=1e-12)
        cosines.append((rows[1:] * rows[:-1]).mean(dim=1) / (lengths[1:] * lengths[:-1]))
        powers.append(power if begin == 0 else power[1:])
    return torch.cat(powers), torch.cat(cosines)
