"""Rows of prompts to rows of samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from batch_sessions import WildSession, open_session, rows_of
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from model_files import ALPHABET

from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.batch import samples as batch
from nanogpt_cli.generation.batch.prompts import PromptRow, RowError
from nanogpt_cli.generation.batch.samples import SampleRow, Tally, sample_rows
from nanogpt_cli.generation.engine import NewToken, Request
from nanogpt_cli.generation.prompt import PromptText
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.steps.library import find_compiler
from nanogpt_cli.tokenizers.bpe import RankTokenizer

BLOCK = 16
PROMPTS = ("A", "HELLO", "", "SOME LONGER PROMPT THAN 16", "B", "HELLO", "\n", "WHAT IS IT?")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return open_session(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return open_session(tmp_path_factory.mktemp("wild"), WildSession)


def settings_of(**values: object) -> SampleSettings:
    filters = {"temperature": values.pop("temperature", 1.2)}
    return SampleSettings(**{"max_new_tokens": 12, "filters": filters, **values})  # type: ignore[arg-type]


def alone(session: Session, row: PromptRow, settings: SampleSettings) -> list[SampleRow]:
    """What `sample` makes of one prompt, as rows."""
    if row.seed is not None:
        settings = replace(settings, seed=row.seed)
    assert row.prompt is not None
    prompt = session.encode(PromptText(row.prompt), special=settings.special)
    pieces = list(session.sample(prompt, settings))
    made = []
    for index in range(settings.num_samples):
        own = [piece for piece in pieces if piece.index == index]
        report = vars(session.report(prompt, settings, own))
        own_fields = {"id": row.id, "prompt": row.prompt}
        made.append(SampleRow(row=row.row, **{**report, **own_fields}))
    return made


@pytest.mark.parametrize(
    "settings",
    [
        settings_of(),
        settings_of(num_samples=3),
        settings_of(temperature=0, max_new_tokens=BLOCK + 20),
        settings_of(stop=("E", "AB"), num_samples=2),
        settings_of(seed=5),
        settings_of(max_new_tokens=0, num_samples=2),
        settings_of(max_new_tokens=1),
    ],
    ids=lambda settings: f"{settings.num_samples}-{settings.max_new_tokens}",
)
def test_a_row_is_what_its_prompt_gives_alone(
    session: Session, wild: Session, settings: SampleSettings
) -> None:
    rows = [*rows_of(*PROMPTS), PromptRow(8, "A", "own", seed=9), PromptRow(9, "A", 7, seed=0)]
    expected = [made for row in rows for made in alone(session, row, settings)]
    assert list(sample_rows(session, rows, settings)) == expected
    for size in (None, 1, 3):
        assert list(sample_rows(wild, rows, settings, batch_size=size)) == expected
    assert [(made.row, made.index) for made in expected] == [
        (row, index) for row in range(10) for index in range(settings.num_samples)
    ]


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: texts share their arithmetic")
def test_not_a_bit_of_a_score_depends_on_company(tmp_path: Path) -> None:
    session = open_session(tmp_path, compile=True)
    settings = settings_of(logprobs=2, num_samples=2, max_new_tokens=BLOCK)
    rows = rows_of(*PROMPTS)
    expected = [made for row in rows for made in alone(session, row, settings)]
    assert [row.batch_invariant for row in expected] == [True] * 16
    assert list(sample_rows(session, rows, settings)) == expected
    assert list(sample_rows(session, rows, settings, batch_size=3)) == expected


@effort(max_examples=60, deadline=None)
@given(
    prompts=st.lists(st.text(ALPHABET, max_size=24), max_size=6),
    order=st.randoms(use_true_random=False),
    settings=st.builds(
        settings_of,
        num_samples=st.integers(1, 2),
        max_new_tokens=st.sampled_from([0, 1, 7, 20]),
        temperature=st.sampled_from([0.0, 0.7, 2.0]),
        stop=st.sampled_from([(), ("A",), ("  ", "B")]),
        seed=st.integers(-5, 5),
    ),
)
def test_neither_order_nor_company_changes_a_row(
    wild: Session, prompts: list[str], order: object, settings: SampleSettings
) -> None:
    rows = rows_of(*prompts)
    expected = [made for row in rows for made in sample_rows(wild, [row], settings)]
    mixed = list(rows)
    order.shuffle(mixed)  # type: ignore[attr-defined]
    made = list(sample_rows(wild, mixed, settings))
    assert [row.row for row in made[:: settings.num_samples]] == [row.row for row in mixed]
    assert sorted(made, key=lambda row: (row.row, row.index)) == expected


def test_two_rows_with_one_prompt_give_one_text(session: Session) -> None:
    first, second, other = sample_rows(
        session,
        [PromptRow(0, "A"), PromptRow(5, "A", "x"), PromptRow(6, "A", seed=1)],
        settings_of(),
    )
    assert replace(second, row=0, id=None) == first
    assert other.text != first.text
    assert other.seed == 1


def test_what_is_wrong_with_a_row_is_a_row(wild: Session) -> None:
    bad = RowError("no good", "be better")
    rows = [
        PromptRow(0, "A"),
        PromptRow(1, None, "k", error=bad),
        PromptRow(2, "a漢a"),
        PromptRow(3, "B", seed=3, error=bad),
        PromptRow(4, "C"),
    ]
    tally = Tally()
    made = list(sample_rows(wild, rows, settings_of(num_samples=2), tally=tally))
    assert [(row.row, row.index) for row in made] == [
        (0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (4, 0), (4, 1),
    ]  # fmt: skip
    errors = [row for row in made if row.error is not None]
    assert [row.row for row in errors] == [1, 2, 3]
    assert [(row.id, row.prompt, row.seed) for row in errors] == [
        ("k", None, 1337),
        (None, "a漢a", 1337),
        (None, "B", 3),
    ]
    for row in errors:
        nothing = (row.text, row.ids, row.finish_reason, row.prompt_tokens, row.new_tokens)
        assert nothing == (None,) * 5
        assert row.settings == made[0].settings
    assert errors[0].error == errors[2].error == bad
    assert errors[1].error is not None
    assert "U+6F22" in errors[1].error.message
    assert (tally.rows, tally.failed, tally.new_tokens) == (7, 3, 48)
    assert tally.first_error == (1, bad)
    assert tally.finish_reasons == {"length": 4}


def test_rows_that_are_all_wrong_need_no_model(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    rows = [PromptRow(number, None, error=RowError("no")) for number in range(3)]
    assert len(list(sample_rows(session, rows, settings_of()))) == 3
    assert "engine" not in vars(session)
    assert list(sample_rows(session, [], settings_of())) == []


def test_only_what_is_wanted_is_made(wild: Session) -> None:
    rows = [*rows_of("A", "B"), PromptRow(2, None, error=RowError("no")), PromptRow(3, "C")]
    settings = settings_of(num_samples=3)
    every = list(sample_rows(wild, rows, settings))
    picked = {(0, 2), (2, 1), (3, 0), (3, 1)}
    made = sample_rows(wild, rows, settings, wanted=lambda row, index: (row.row, index) in picked)
    assert list(made) == [row for row in every if (row.row, row.index) in picked]


def test_reading_ahead_has_an_end(wild: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the oldest sample takes, and whatever the others are."""
    monkeypatch.setattr(batch, "LOOK_AHEAD", 7)
    pulled = 0

    def rows() -> Iterator[PromptRow]:
        nonlocal pulled
        for row in range(60):
            pulled += 1
            yield PromptRow(
                row, "A" if row % 3 else None, error=None if row % 3 else RowError("no")
            )

    settings = settings_of(num_samples=2, stop=("E", "A", "O", " "), max_new_tokens=30)
    made = sample_rows(wild, rows(), settings)
    numbers = []
    for count, row in enumerate(made):
        numbers.append((row.row, row.index))
        assert pulled * 5 / 3 <= count + 7 + 5
    assert numbers == [(row, i) for row in range(60) for i in range(2 if row % 3 else 1)]


def test_a_sample_that_comes_last_of_all_holds_up_no_more_than_may_be_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LOOK_AHEAD", 7)

    class LastFirst(Session):
        def generate(
            self, requests: Iterable[Request], settings: SampleSettings, **options: Any
        ) -> Iterator[NewToken]:
            oldest, *others = requests
            for request in (*others, oldest):
                yield from super().generate([request], settings, **options)

    session = open_session(tmp_path, LastFirst)
    rows = iter(rows_of(*"ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    made = sample_rows(session, rows, settings_of(max_new_tokens=1))
    assert next(made).row == 0
    assert next(rows).row == 7
    assert [row.row for row in made] == [*range(1, 7), *range(8, 26)]


def test_the_end_of_a_text_is_no_token_and_a_full_context_no_cut_prompt(tmp_path: Path) -> None:
    class Ending(Session):
        def generate(
            self, requests: Iterable[Request], *_rest: Any, **_options: Any
        ) -> Iterator[NewToken]:
            for request in requests:
                yield NewToken(request.number, 3, None)
                yield NewToken(request.number, None, "eos")

    session, tally = open_session(tmp_path, Ending), Tally()
    full = "A" * session.config.block_size
    rows = list(sample_rows(session, rows_of(full, full + "A"), settings_of(), tally=tally))
    assert [row.new_tokens for row in rows] == [1, 1]
    assert (tally.new_tokens, tally.cut_prompts) == (2, 1)


def test_a_stop_lets_the_engine_go_on_to_the_next(wild: Session) -> None:
    settings = settings_of(stop=tuple(ALPHABET), max_new_tokens=200)
    made = list(sample_rows(wild, rows_of(*"ABCDEFGHIJ"), settings))
    assert [(row.text, row.finish_reason, row.new_tokens) for row in made] == [("", "stop", 0)] * 10


def test_the_engine_makes_no_token_after_a_stop(tmp_path: Path) -> None:
    class Counted(Session):
        made = 0

        def generate(self, *args: Any, **options: Any) -> Iterator[NewToken]:
            for token in super().generate(*args, **options):
                self.made += 1
                yield token

    session = open_session(tmp_path, Counted)
    assert isinstance(session, Counted)
    settings = settings_of(stop=tuple(ALPHABET), max_new_tokens=50)
    assert len(list(sample_rows(session, rows_of("A", "B", "C"), settings))) == 3
    assert session.made == 3
    (row,) = sample_rows(session, rows_of("A"), settings_of(max_new_tokens=20))
    assert row.text is not None
    pair = row.text[6:8]
    absent = min(set(ALPHABET) - set(row.text))
    session.made = 0
    settings = settings_of(stop=(absent, pair), max_new_tokens=20)
    (stopped,) = sample_rows(session, rows_of("A"), settings)
    assert stopped.text == row.text[: row.text.index(pair)]
    assert session.made == row.text.index(pair) + 2


def test_half_a_character_at_a_rows_end_is_one_replacement_mark(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    session.tokenizer = RankTokenizer(
        "tiktoken", "halves", {b"x" * n + b"\xc3": n for n in range(65)}, None
    )
    rows = rows_of("")
    made = list(sample_rows(session, rows, settings_of()))
    assert made == alone(session, rows[0], settings_of())
    assert made[0].text is not None
    assert made[0].text.endswith("\ufffd")


def test_a_model_that_diverged_is_no_fault_of_a_row(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    with torch.no_grad():
        session.engine.model.transformer.wte.weight[ALPHABET.index("Z")] = float("nan")
    made = sample_rows(session, rows_of("A", "Z"), settings_of(), batch_size=1)
    with pytest.raises(NanoGPTError) as caught:
        list(made)
    assert caught.value.exit_code == 1
    assert "not finite" in caught.value.message
