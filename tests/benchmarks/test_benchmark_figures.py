"""The harness's arithmetic: clocks, medians, ratios by round, shares, tables, agreement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("benchmarks.shapes", reason="only in a checkout")

from benchmarks.agreement import TIE, compare_ids
from benchmarks.figures import FirstUse, Outcome, Sample, ratio, ratios
from benchmarks.neighbours import Watch
from benchmarks.shapes import TINY, Workload, find_shape, weight_bytes
from benchmarks.table import markdown, render, to_json
from benchmarks.variants import VARIANTS, find_variants
from benchmarks.workers.protocol import Clock, pad_left, read_memory


def outcome(name: str, paces: dict[int, float], batch: int = 1) -> Outcome:
    made = Outcome(name, weight_bytes=2e8, batch=batch, agreement="all", version="1")
    for at, pace in paces.items():
        made.samples[at] = Sample(pace, 0.5 / pace, 10 / pace, bytes_per_second=4e10)
    return made


def test_a_clock_decodes_from_the_moment_the_last_row_begins() -> None:
    moments = iter([100.0, 103.0, 107.0])
    clock = Clock(2, now=lambda: next(moments))
    clock.token(0)
    clock.token(0)
    clock.token(1)  # at 3 seconds: three tokens are there
    clock.token(0)
    clock.token(1)
    times = clock.stop(11)  # at 7 seconds
    assert times == {
        "first_token_seconds": 3.0,
        "total_seconds": 7.0,
        "decode_tokens_per_second": (11 - 3) / 4.0,
    }


def test_a_clock_without_decoding_has_no_pace() -> None:
    clock = Clock(1)
    clock.step()
    assert clock.stop(1)["decode_tokens_per_second"] is None


def test_medians_and_shares() -> None:
    made = outcome("a", {0: 10.0, 1: 40.0, 2: 20.0})
    assert made.median_of("tokens_per_second") == 20.0
    assert made.share_of_limit == 20.0 * 2e8 / 4e10
    assert outcome("b", {0: 20.0}, batch=4).share_of_limit == 20.0 / 4 * 2e8 / 4e10


def test_a_ratio_is_of_the_same_round() -> None:
    one = outcome("one", {0: 30.0, 1: 100.0, 2: 60.0, 5: 1.0})
    other = outcome("other", {0: 10.0, 1: 50.0, 2: 15.0, 4: 1.0})
    assert ratio(one, other) == 3.0  # of 3, 2, 4: the unpaired medians would give 45 / 12.5
    assert ratios([one], [one, other]) == {"one": {"one": 1.0, "other": 3.0}}


def test_no_ratio_with_an_engine_that_failed() -> None:
    one, other = outcome("one", {0: 30.0}), outcome("other", {0: 10.0})
    other.fault = "other ids"
    assert ratio(one, other) is None
    assert ratio(one, outcome("late", {3: 10.0})) is None


def test_a_table_is_in_line() -> None:
    assert markdown(["a", "tokens/s"], [["long name", "1.0"], ["b", "22.5"]]).splitlines() == [
        "| a         | tokens/s |",
        "| --------- | -------: |",
        "| long name |      1.0 |",
        "| b         |     22.5 |",
    ]


def test_an_engine_with_other_ids_shows_no_figure() -> None:
    mine, base = outcome("ours/float32", {0: 50.0, 1: 50.0}), outcome("hf/float32", {0: 20.0})
    mine.peak_bytes, mine.first_use = 600_000_000, FirstUse(1.0, 2.0, 0.5)
    wrong = outcome("wrong/float32", {0: 123.4})
    wrong.fault = "its float32 ids are the reference's for 3 of 64"
    text = render([mine, base, wrong], "hf/float32")
    assert "123.4" not in text
    assert "- wrong/float32: its float32 ids are the reference's for 3 of 64" in text
    row = next(line for line in text.splitlines() if line.startswith("| ours/float32"))
    cells = ["ours/float32", "50.0", "2.50", "0.25", "10 ms", "600 MB", "-", "3.5 s", "all"]
    assert [cell.strip() for cell in row.strip("|").split("|")] == cells
    report = to_json([mine, base, wrong], {"rounds": 2}, {"date": "2026-01-01"})
    assert [one["tokens_per_second"] for one in report["engines"]] == [50.0, 20.0, None]
    assert report["engines"][2]["samples"] == {}
    assert report["tokens_per_second_ratios"]["ours/float32"]["hf/float32"] == 2.5
    assert "NaN" not in json.dumps(report)


@pytest.mark.parametrize(
    ("found", "text", "holds"),
    [
        ([[1, 2, 3], [4, 5, 6]], "all", True),
        ([[1, 2, 9], [4, 5, 6]], "2 of 3 (1 of 2 rows part)", False),
        ([[1, 2], [4, 5, 6]], "2 of 3 (1 of 2 rows part)", False),
        ([[1, 2, 3]], "0 of 3 (2 of 2 rows part)", False),
    ],
)
def test_agreement(found: list[list[int]], text: str, holds: bool) -> None:
    agreement = compare_ids([[7], [8]], [[1, 2, 3], [4, 5, 6]], found)
    assert (str(agreement), agreement.holds) == (text, holds)


@pytest.mark.parametrize(("gap", "holds"), [(TIE / 2, True), (-TIE / 2, True), (2 * TIE, False)])
def test_only_a_tie_excuses(gap: float, holds: bool) -> None:
    asked = []

    def measure(ids: list[int], one: int, other: int) -> float:
        asked.append((ids, one, other))
        return gap

    agreement = compare_ids([[7, 7]], [[1, 2, 3]], [[1, 5, 3]], measure)
    assert asked == [([7, 7, 1], 2, 5)]
    assert agreement.holds is holds
    assert str(agreement) == ("1 of 3, 1 by a tie" if holds else "1 of 3")


def test_prompts_are_repeatable_and_of_all_lengths() -> None:
    prompts = Workload((2, 10), 5, batch=5).prompts(TINY)
    assert sorted(map(len, prompts)) == [2, 4, 6, 8, 10]
    assert prompts == Workload((2, 10), 5, batch=5).prompts(TINY)
    assert all(0 <= number < TINY.vocab_size for prompt in prompts for number in prompt)
    with pytest.raises(ValueError, match=r"90 \+ 7 tokens do not fit into a block_size of 96"):
        Workload((90, 90), 7).prompts(TINY)


def test_padding_goes_before() -> None:
    assert pad_left([[5], [6, 7, 8]]) == ([[0, 0, 5], [6, 7, 8]], [[0, 0, 1], [1, 1, 1]])


def test_a_token_moves_all_weights_but_the_positions() -> None:
    assert weight_bytes(find_shape("gpt2"), 32) == 123_653_376 * 4
    assert weight_bytes(find_shape("gpt2"), 8.5) == 123_653_376 * 8.5 / 8


def test_names_find_variants() -> None:
    names = [variant.name for variant in VARIANTS]
    assert len(set(names)) == len(names)
    found = find_variants("hf/float32,ctranslate2,ours/int8*")
    ours, theirs = ["ours/int8", "ours/int8+eager"], ["ctranslate2/float32", "ctranslate2/int8"]
    assert [variant.name for variant in found] == [*ours, "hf/float32", *theirs]
    with pytest.raises(ValueError, match="no engine fits 'vllm'"):
        find_variants("vllm")


def test_memory_is_read_from_linux(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmHWM:\t     120 kB\nRssAnon:\t      30 kB\n")
    assert read_memory(status) == {"peak_bytes": 122_880, "anonymous_bytes": 30_720}
    assert read_memory(tmp_path / "absent") == {}


def test_what_others_take_is_seen(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (py (3) x) R 1 " + "0 " * 9 + "200 100 0 0\n")
    (tmp_path / "stat").write_text("cpu  300 0 100 9999 9999 0 0 0 0 0\ncpu0 1\n")
    watch = Watch(7, tmp_path)
    (tmp_path / "7" / "stat").write_text("7 (py (3) x) R 1 " + "0 " * 9 + "500 150 0 0\n")
    (tmp_path / "stat").write_text("cpu  600 0 150 99999 99999 0 0 0 0 0\ncpu0 1\n")
    assert watch.share() == 0.0
    (tmp_path / "stat").write_text("cpu  100000 0 150 99999 99999 0 0 0 0 0\ncpu0 1\n")
    assert watch.share() == 1.0
    assert Watch(7, tmp_path / "absent").share() is None


def test_disturbed_samples_are_told() -> None:
    made = outcome("ours/float32", {0: 10.0, 1: 10.0})
    made.samples[2] = Sample(9.0, 0.1, 1.0, 4e10, others_share=0.5)
    assert "Other processes disturbed 1 of 3 samples." in render([made], "hf/float32")
