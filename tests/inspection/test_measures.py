"""Figures of tensors against torch's own, and rows that were never trained."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nanogpt_cli.inspection import measures as measures_module
from nanogpt_cli.inspection import untrained
from nanogpt_cli.inspection.measures import measure
from nanogpt_cli.inspection.statistics import init_std, judge
from nanogpt_cli.inspection.untrained import (
    count_noise_tail,
    find_untrained,
    find_without_gradient,
)


def noise(rows: int, C: int, seed: int = 0, std: float = 0.02) -> Tensor:
    return torch.randn(rows, C, generator=torch.Generator().manual_seed(seed)) * std


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("piece", [7, 1 << 16])
def test_figures_are_torchs(
    dtype: torch.dtype, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures_module, "PIECE", piece)
    tensor = noise(30, 50, std=3).to(dtype)
    tensor[4, 5] = 0
    found, wide = measure(tensor), tensor.double()
    assert found.elements == 1500
    assert found.mean == pytest.approx(float(wide.mean()), abs=1e-12)
    assert found.std == pytest.approx(float(wide.std(correction=0)), rel=1e-12)
    assert (found.min, found.max) == (float(wide.min()), float(wide.max()))
    assert found.norm == pytest.approx(float(wide.norm()), rel=1e-12)
    assert (found.zeros, found.nan, found.inf) == (int((wide == 0).sum()), 0, 0)


def test_nan_and_inf_are_counted_and_left_out() -> None:
    tensor = torch.tensor([float("nan"), 1.0, float("inf"), -3.0, float("-inf"), float("nan"), 0.0])
    found = measure(tensor)
    assert (found.nan, found.inf, found.zeros, found.elements) == (2, 2, 1, 7)
    assert found.mean == pytest.approx(-2 / 3)
    assert (found.min, found.max) == (-3.0, 1.0)
    assert found.norm == pytest.approx(math.sqrt(10))
    assert not found.is_constant


def test_nothing_finite_has_no_figures() -> None:
    found = measure(torch.full((3,), float("nan")))
    assert (found.mean, found.std, found.min, found.norm, found.nan) == (None, None, None, None, 3)


def test_a_constant_has_no_spread_at_all() -> None:
    found = measure(torch.full((70_000,), 1.1))
    assert found.std == 0.0
    assert found.is_constant
    assert not measure(torch.tensor([0.0, 1e-30])).is_constant
    assert not measure(torch.tensor([1.0, float("nan")])).is_constant
    assert not measure(torch.full((3,), float("inf"))).is_constant


def test_masks_and_counts_are_measured_too() -> None:
    found = measure(torch.ones(4, 4, dtype=torch.bool).tril())
    assert (found.zeros, found.max, found.elements) == (6, 1.0, 16)
    assert measure(torch.arange(5)).mean == 2.0
    assert measure(torch.zeros(0)).mean is None


def test_large_values_do_not_overflow_into_null_mean() -> None:
    found = measure(torch.full((4,), 3e38))
    assert found.mean == pytest.approx(3e38)
    assert found.norm == pytest.approx(6e38)


@pytest.mark.parametrize(
    ("name", "std"),
    [
        ("transformer.wte.weight", 0.02),
        ("transformer.h.0.attn.c_attn.weight", 0.02),
        ("transformer.h.3.attn.c_proj.weight", 0.02 / math.sqrt(24)),
        ("transformer.h.3.mlp.c_proj.weight", 0.02 / math.sqrt(24)),
        ("transformer.h.0.ln_1.weight", None),
        ("transformer.ln_f.weight", None),
        ("transformer.h.0.mlp.c_fc.bias", None),
    ],
)
def test_the_initial_spread(name: str, std: float | None) -> None:
    assert init_std(name, 12) == std


def test_how_a_weight_stands_to_its_beginning() -> None:
    name = "transformer.wte.weight"
    assert judge(name, measure(noise(500, 64)), 0.02) == "as initialised"
    assert judge(name, measure(noise(500, 64, std=0.022)), 0.02) == ""
    assert judge(name, measure(noise(500, 64) + 0.01), 0.02) == ""
    assert judge(name, measure(torch.zeros(5, 5)), 0.02) == "all zero"
    assert judge(name, measure(torch.ones(5, 5)), 0.02) == "constant"
    assert judge("transformer.ln_f.weight", measure(torch.ones(5)), None) == "as initialised"
    assert judge("transformer.ln_f.weight", measure(torch.zeros(5)), None) == "all zero"
    assert judge("transformer.ln_f.bias", measure(torch.zeros(5)), None) == "as initialised"
    assert judge("transformer.ln_f.bias", measure(torch.ones(5)), None) == "constant"


# --- rows that were never trained


def test_adam_proves_which_rows_had_no_gradient() -> None:
    second_moment = torch.rand(10, 4) + 0.1
    second_moment[[2, 7, 8, 9]] = 0
    found = find_without_gradient("wpe", second_moment)
    assert found is not None
    assert (found.untrained, found.count, found.evidence) == (((2, 2), (7, 9)), 4, "Adam")


def test_a_blank_moment_proves_nothing() -> None:
    assert find_without_gradient("wpe", torch.zeros(10, 4)) is None


def test_rows_of_zeros() -> None:
    matrix = noise(20, 16, std=1)
    matrix[[3, 19]] = 0
    matrix[7] = -matrix[7].abs()
    matrix[7, 2] = 0
    found = find_untrained("wte", matrix, is_tied=False)
    assert (found.untrained, found.count, found.evidence) == (((3, 3), (19, 19)), 2, "zero")


@pytest.mark.parametrize("C", [32, 64, 768])
@pytest.mark.parametrize("tail", [16, 47, 200])
@pytest.mark.parametrize("decayed", [1.0, 0.6])
def test_a_tail_as_initialised_is_found(C: int, tail: int, decayed: float) -> None:
    matrix = noise(512, C) * decayed
    matrix[: 512 - tail] += noise(512 - tail, C, seed=1, std=0.05)
    assert count_noise_tail(matrix) == pytest.approx(tail, abs=3)
    found = find_untrained("wpe", matrix, is_tied=False)
    assert found.untrained[0][1] == 511
    assert found.evidence == "noise"


def test_a_tail_is_the_same_whatever_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = noise(300, 64)
    matrix[:100] += noise(100, 64, seed=1, std=0.05)
    whole = count_noise_tail(matrix)
    assert whole == pytest.approx(200, abs=3)
    monkeypatch.setattr(untrained, "BLOCK_ROWS", 7)
    assert count_noise_tail(matrix) == whole
    monkeypatch.setattr(untrained, "MOST_ROWS", 64)
    assert count_noise_tail(matrix) == whole


def test_padding_under_a_tied_head_is_found_in_spite_of_its_drift() -> None:
    matrix = noise(512, 64)
    matrix[:465] += noise(465, 64, seed=1, std=0.1)
    matrix[465:] += noise(1, 64, seed=2, std=0.1)
    assert find_untrained("wte", matrix, is_tied=True).count == pytest.approx(47, abs=3)
    assert find_untrained("wte", matrix, is_tied=False).count == 0


def test_a_matrix_as_drawn_is_untrained_throughout() -> None:
    assert find_untrained("wpe", noise(256, 48), is_tied=False).count == 256


@pytest.mark.parametrize("std", [0.03, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_trained_rows_are_not_taken_for_noise(std: float, seed: int) -> None:
    assert find_untrained("wte", noise(300, 64, seed, std), is_tied=True).count == 0


def test_smooth_positions_are_not_taken_for_noise() -> None:
    steps = torch.linspace(0.1, 6, 128)[:, None] * torch.linspace(0.5, 2, 64)
    assert find_untrained("wpe", steps.sin() * 0.02, is_tied=False).count == 0


@pytest.mark.parametrize("shape", [(1, 1), (3, 64), (64, 2)])
def test_what_is_too_small_to_tell(shape: tuple[int, int]) -> None:
    assert count_noise_tail(noise(*shape)) == 0


def test_rows_of_nan_are_no_noise() -> None:
    matrix = noise(64, 32)
    matrix[-1] = float("nan")
    assert find_untrained("wpe", matrix, is_tied=False).count == 0
