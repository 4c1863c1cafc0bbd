"""Filters on hand-worked logits, the draw as a distribution, and the counter behind it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nanogpt_cli.commands.sample import sample as sample_command
from nanogpt_cli.errors import UsageError
from nanogpt_cli.sampling import DEFAULTS, PIPELINE, Filter, build_filters
from nanogpt_cli.sampling.draws import Draws, SampleDraws, draw
from nanogpt_cli.sampling.min_p import MinP
from nanogpt_cli.sampling.repetition_penalty import RepetitionPenalty
from nanogpt_cli.sampling.sampler import Sampler
from nanogpt_cli.sampling.temperature import Temperature
from nanogpt_cli.sampling.top_k import TopK
from nanogpt_cli.sampling.top_p import TopP

INF = math.inf


def unseen(logits: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(logits, dtype=torch.bool)


def survivors(filter: Filter, *logits: float) -> list[int]:
    row = torch.tensor([logits])
    return filter(row, unseen(row))[0].isfinite().nonzero().squeeze(-1).tolist()


def sample(sampler: Sampler, logits: torch.Tensor, uniforms: Sequence[float]) -> list[int]:
    ids: list[int] = sampler(logits, uniforms, unseen(logits)).tolist()
    return ids


@pytest.mark.parametrize("cls", PIPELINE)
def test_a_filter_at_its_off_value_is_not_built(cls: type) -> None:
    assert build_filters({cls.option: cls.off}) == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize("cls", PIPELINE)
def test_a_filter_takes_its_default_and_says_what_it_does(cls: type) -> None:
    option = cls.option  # type: ignore[attr-defined]
    assert getattr(cls(DEFAULTS[option]), option) == DEFAULTS[option]
    assert cls.help.endswith(".")  # type: ignore[attr-defined]
    assert len(cls.short) <= 1  # type: ignore[attr-defined]


def accepted(cls: type, value: float) -> Filter | None:
    """The filter, if it takes the value: an int alone where its default is one."""
    if isinstance(cls.default, int) and not isinstance(value, int):  # type: ignore[attr-defined]
        return None
    try:
        made: Filter = cls(value)
    except UsageError:
        return None
    return made


def test_the_help_of_sample_names_the_filters_in_their_order() -> None:
    text = " ".join((sample_command.__doc__ or "").split())
    names = ", ".join("--" + cls.option.replace("_", "-") for cls in PIPELINE)
    assert f"in this order: {names}." in text


@pytest.mark.parametrize("cls", PIPELINE)
def test_a_filter_keeps_something_changes_no_input_and_revives_nothing(cls: type) -> None:
    logits = torch.tensor([[0.5, -INF, 3.0, 3.0], [-INF, -INF, -2.0, -INF]])
    before = logits.clone()
    built = [made for value in (1, 2, 3, 0.5, 1e-6) if (made := accepted(cls, value)) is not None]
    assert len(built) > 1
    for made in built:
        filtered = made(logits, logits > 0)
        assert torch.equal(logits, before)
        assert torch.isfinite(filtered).any(dim=-1).all()
        assert not torch.isfinite(filtered[~torch.isfinite(logits)]).any()


def test_filters_come_in_pipeline_order_whatever_the_mappings_order() -> None:
    values = {"min_p": 0.1, "top_p": 0.9, "top_k": 3, "temperature": 0.5, "repetition_penalty": 2}
    built = (RepetitionPenalty(2), Temperature(0.5), TopK(3), TopP(0.9), MinP(0.1))
    assert build_filters(values) == built


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("temperature", -0.1, "--temperature -0.1: it must be a number of at least 0"),
        ("temperature", INF, "--temperature inf: it must be a number of at least 0"),
        ("temperature", math.nan, "--temperature nan: it must be a number of at least 0"),
        ("top_k", -1, "--top-k -1: it must be at least 0"),
        ("top_p", 0, "--top-p 0: it must be above 0 and at most 1"),
        ("top_p", 1.01, "--top-p 1.01: it must be above 0 and at most 1"),
        ("top_p", math.nan, "--top-p nan: it must be above 0 and at most 1"),
        ("min_p", -0.1, "--min-p -0.1: it must lie in 0 to 1"),
        ("min_p", 1.5, "--min-p 1.5: it must lie in 0 to 1"),
        ("repetition_penalty", 0, "--repetition-penalty 0: it must be above 0"),
        ("repetition_penalty", -1, "--repetition-penalty -1: it must be above 0"),
        ("repetition_penalty", INF, "--repetition-penalty inf: it must lie in 1e-30 to 1e+30"),
        ("repetition_penalty", 1e-31, "--repetition-penalty 1e-31: it must lie in 1e-30 to 1e+30"),
    ],
)
def test_a_value_out_of_range_is_refused(option: str, value: float, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_filters({option: value})
    assert (caught.value.message, caught.value.exit_code) == (message, 2)


@pytest.mark.parametrize("value", [1e-38, 1e-45, 1e-50, 5e-324])
def test_a_temperature_too_small_for_float32_is_as_good_as_greedy(value: float) -> None:
    logits = torch.tensor([[1.0, 4.0, -INF, 4.0, 3.9999]])
    filtered = Temperature(value)(logits, unseen(logits))
    assert filtered.softmax(dim=-1).tolist() == [[0.0, 0.5, 0.0, 0.5, 0.0]]


@pytest.mark.parametrize("value", [1e-30, 1e30])
def test_the_strongest_penalties_leave_numbers(value: float) -> None:
    logits = torch.tensor([[50.0, -50.0, 0.0, 1.0]])
    assert RepetitionPenalty(value)(logits, torch.ones_like(logits).bool()).isfinite().all()


def test_temperature_divides_differences() -> None:
    logits = torch.tensor([[1.0, 2.0, 4.0]])
    filtered = Temperature(0.5)(logits, unseen(logits))
    assert filtered.tolist() == [[-6.0, -4.0, 0.0]]


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e30])
def test_extreme_temperatures_stay_finite_at_the_top(temperature: float) -> None:
    logits = torch.tensor([[1.0, 200.0, -300.0]])
    filtered = Temperature(temperature)(logits, unseen(logits))
    assert filtered[0, 1] == 0
    assert not filtered.isnan().any()


@pytest.mark.parametrize(
    ("k", "kept"),
    [(1, [1]), (2, [1, 3]), (3, [0, 1, 3]), (4, [0, 1, 3, 4]), (5, [0, 1, 2, 3, 4]), (0, range(6))],
)
def test_top_k_keeps_exactly_k_lowest_id_first_among_equals(k: int, kept: list[int]) -> None:
    assert survivors(TopK(k), 2.0, 5.0, 1.0, 5.0, 2.0, -3.0) == list(kept)


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=40), st.integers(1, 45), st.integers(0, 2**32)
)
def test_top_k_equals_a_stable_sort(values: list[int], k: int, seed: int) -> None:
    torch.manual_seed(seed)
    rows = torch.stack([torch.tensor(values, dtype=torch.float32), torch.randn(len(values))])
    for row, filtered in zip(rows, TopK(k)(rows, unseen(rows)), strict=True):
        order = sorted(range(len(values)), key=lambda i: (-row[i].item(), i))
        assert filtered.isfinite().nonzero().squeeze(-1).tolist() == sorted(order[:k])


@pytest.mark.parametrize(("p", "kept"), [(0.6, 2), (0.85, 3), (0.5, 1), (0.3, 1), (0.96, 4)])
def test_top_p_keeps_the_id_that_crosses_p(p: float, kept: int) -> None:
    logits = [math.log(share) for share in (0.15, 0.5, 0.05, 0.3)]
    assert survivors(TopP(p), *logits) == sorted([1, 3, 0, 2][:kept])


@pytest.mark.parametrize(("n", "p"), [(10, 0.6), (20, 0.3), (50, 0.1), (500, 0.004)])
def test_top_p_is_reached_by_a_sum_that_only_rounding_keeps_below_it(n: int, p: float) -> None:
    assert survivors(TopP(p), *[0.0] * n) == list(range(round(n * p)))


def test_top_p_keeps_the_lowest_of_equal_ids() -> None:
    assert survivors(TopP(0.4), 0.0, 0.0, 0.0, 0.0, 0.0) == [0, 1]


def test_top_p_after_a_top_k_of_one_keeps_that_one() -> None:
    assert survivors(TopP(0.1), -INF, 3.0, -INF) == [1]
    assert survivors(TopP(0.999), -INF, 3.0, -INF) == [1]


@pytest.mark.parametrize(("p", "kept"), [(0.05, 4), (0.2, 3), (0.31, 2), (0.7, 1), (1.0, 1)])
def test_min_p_keeps_what_is_likely_beside_the_likeliest(p: float, kept: int) -> None:
    logits = [math.log(share) for share in (0.15, 0.5, 0.05, 0.3)]
    assert survivors(MinP(p), *logits) == sorted([1, 3, 0, 2][:kept])


def test_repetition_penalty_pushes_seen_ids_down_on_both_sides_of_zero() -> None:
    logits = torch.tensor([[2.4, -2.0, 2.4, -2.0, 0.0]])
    seen = torch.tensor([[True, True, False, False, True]])
    expected = torch.tensor([[2.0, -2.4, 2.4, -2.0, 0.0]])
    torch.testing.assert_close(RepetitionPenalty(1.2)(logits, seen), expected)


@pytest.mark.parametrize("seed", range(5))
def test_filters_equal_transformers_processors(seed: int) -> None:
    from transformers.generation import logits_process as theirs

    torch.manual_seed(seed)
    logits, ids = torch.randn(4, 300) * 3, torch.randint(0, 300, (4, 50))
    seen = unseen(logits).scatter(1, ids, True)
    pairs: list[tuple[Filter, Any]] = [
        (RepetitionPenalty(1.3), theirs.RepetitionPenaltyLogitsProcessor(1.3)),
        (TopK(17), theirs.TopKLogitsWarper(17)),
        (TopP(0.8), theirs.TopPLogitsWarper(0.8)),
        (MinP(0.05), theirs.MinPLogitsWarper(0.05)),
    ]
    for ours, other in pairs:
        torch.testing.assert_close(ours(logits, seen), other(ids, logits.clone()))


def test_three_of_five_survive_a_hot_draw() -> None:
    """10,000 draws at temperature 5 give the true top 3 and nothing else."""
    logits = torch.tensor([[0.1, 2.0, 1.5, -0.5, 1.9]])
    sampler = Sampler(build_filters({"temperature": 5.0, "top_k": 3}))
    stream = Draws(0, [1], 0)
    uniforms = [stream.uniform(step) for step in range(10_000)]
    assert set(sample(sampler, logits.expand(10_000, -1), uniforms)) == {1, 2, 4}


def test_draws_follow_the_distribution() -> None:
    """A chi-square bound that a right draw breaks once in 10,000 seeds (3 degrees: 21.11)."""
    probabilities = [0.5, 0.3, 0.15, 0.05]
    logits = torch.tensor([probabilities]).log().expand(20_000, -1)
    stream = Draws(3, [5, 6], 1)
    counts = Counter(draw(logits, [stream.uniform(step) for step in range(20_000)]).tolist())
    chi_square = sum(
        (counts[i] - 20_000 * p) ** 2 / (20_000 * p) for i, p in enumerate(probabilities)
    )
    assert chi_square < 21.11


def test_the_draw_is_the_inverse_of_the_cumulative_distribution() -> None:
    logits = torch.tensor([[0.25, 0.0, 0.25, 0.5]]).log()
    almost_one = 1 - 2.0**-53
    uniforms = [0.0, 0.2499, 0.25, 0.4999, 0.5, almost_one]
    assert draw(logits.expand(6, -1), uniforms).tolist() == [0, 0, 2, 2, 3, 3]


def test_an_interval_begins_with_its_id_and_a_filtered_id_has_none() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [-INF, 0.0, -INF, 0.0]])
    for step, ids in enumerate([[0, 1], [1, 1], [2, 3], [3, 3]]):
        assert draw(logits, [step / 4, step / 4]).tolist() == ids


def test_an_id_that_float32_sums_would_lose_is_drawn_as_often_as_it_is_likely() -> None:
    logits = torch.tensor([[0.0, math.log(2.0**-30)]] * 3)
    assert draw(logits, [1 - 2.0**-29, 1 - 2.0**-31, 1 - 2.0**-53]).tolist() == [0, 1, 1]


def test_the_largest_uniform_never_lands_on_a_filtered_id() -> None:
    logits = torch.tensor([[0.1, 0.2, 0.3, -INF, -INF], [-INF, -INF, 0.0, -INF, 5.0]])
    assert draw(logits, [1 - 2.0**-53] * 2).tolist() == [2, 4]


def test_a_row_draws_the_same_alone_and_among_others() -> None:
    torch.manual_seed(0)
    logits = torch.randn(64, 300)
    filters = build_filters({"temperature": 0.9, "top_k": 20, "top_p": 0.8, "min_p": 0.02})
    uniforms = torch.rand(64, dtype=torch.float64).tolist()
    together = sample(Sampler(filters), logits, uniforms)
    alone = [sample(Sampler(filters), logits[[i]], uniforms[i : i + 1])[0] for i in range(64)]
    assert together == alone


def test_forbidden_ids_are_never_drawn_nor_counted_among_k() -> None:
    logits = torch.tensor([[9.0, 1.0, 8.0, 0.5]])
    forbidden = torch.tensor([True, False, True, False])
    assert sample(Sampler(greedy=True, forbidden=forbidden), logits, [0.5]) == [1]
    sampler = Sampler((TopK(2),), forbidden=forbidden)
    assert {sample(sampler, logits, [u / 10])[0] for u in range(10)} == {1, 3}


def test_greedy_takes_the_lowest_of_equals() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    assert sample(Sampler(greedy=True), logits, [0.9, 0.9]) == [1, 0]


def test_uniforms_depend_on_seed_prompt_number_and_step_alone() -> None:
    def stream(seed: int = 1, prompt: tuple[int, ...] = (1, 2), index: int = 0) -> list[float]:
        draws = Draws(seed, prompt, index)
        return [draws.uniform(step) for step in (0, 511, 512, 1024)]

    backwards = Draws(1, (1, 2), 0)
    assert [backwards.uniform(step) for step in (1024, 512, 511, 0)][::-1] == stream()
    others = [stream(seed=2), stream(prompt=(1, 3)), stream(prompt=(1,)), stream(index=1)]
    assert all(other != stream() for other in others)
    assert all(0 <= u < 1 for u in stream())
    assert len(set(stream())) == 4


def test_streams_of_many_samples_are_made_when_asked_for() -> None:
    streams = SampleDraws(1, (1, 2), range(10**12))
    assert len(streams) == 10**12
    picked = streams[10**11], streams[5:][2], *streams[7:9]
    numbers = [10**11, 7, 7, 8]
    assert [stream.uniform(3) for stream in picked] == [
        Draws(1, (1, 2), number).uniform(3) for number in numbers
    ]


def test_the_uniforms_are_these_for_ever() -> None:
    """Texts under a seed are a promise: this stream must never change."""
    draws = Draws(1337, [0, 50256], 2)
    promised = [0.5752888010470804, 0.7455050463041268, 0.7432155871553136]
    assert [draws.uniform(step) for step in (0, 1, 600)] == promised


@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 5),
    k=st.sampled_from([1, 7, 40]),
    values=st.sampled_from([2, 40, 100_000]),
    forbidden=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_large_vocabulary_is_narrowed_without_a_trace(
    seed: int, rows: int, k: int, values: int, forbidden: bool
) -> None:
    """The ids are those of the whole, however many logits are equal."""
    torch.manual_seed(seed)
    logits = torch.randint(0, values, (rows, 6000)).float() / values * 9
    seen = torch.zeros(rows, 6000, dtype=torch.bool)
    uniforms = torch.rand(rows).tolist()
    filters = build_filters({"top_k": k, "temperature": 0.7, "top_p": 0.9})
    mask = torch.rand(6000) < 0.5 if forbidden else None
    whole = logits if mask is None else logits.masked_fill(mask, -math.inf)
    for filter in filters:
        whole = filter(whole, seen)
    sampler = Sampler(filters, forbidden=mask)
    assert sampler(logits, uniforms, seen).tolist() == draw(whole, uniforms).tolist()
    greedy = Sampler(filters, greedy=True, forbidden=mask)
    assert greedy(logits, uniforms, seen).tolist() == whole.argmax(dim=-1).tolist()


def test_a_filter_after_top_k_is_told_what_was_seen() -> None:
    """In a vocabulary that is narrowed, the seen ids are narrowed alike."""
    logits = torch.zeros(2, 6000)
    logits[:, 4000], logits[:, 5000] = 3.0, 2.0
    seen = torch.zeros(2, 6000, dtype=torch.bool)
    seen[0, 4000] = True
    sampler = Sampler((TopK(2), RepetitionPenalty(2.0)), greedy=True)
    assert sampler(logits, [0.0, 0.0], seen).tolist() == [5000, 4000]
