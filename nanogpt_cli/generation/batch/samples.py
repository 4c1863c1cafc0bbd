"""Rows of prompts to rows of samples: side by side in the engine, given back in order."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import ClassVar

from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.batch.prompts import PromptRow, RowError
from nanogpt_cli.generation.engine import NewToken, Request
from nanogpt_cli.generation.prompt import Prompt, PromptText
from nanogpt_cli.generation.report import SampleReport
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.stops import cut_at_stops
from nanogpt_cli.generation.text import Piece
from nanogpt_cli.sampling.draws import Draws
from nanogpt_cli.tokenizers.streaming import TextStream

LOOK_AHEAD = 4096
"""Samples that may be on their way or done while the oldest of them is not: the most held."""


@dataclass(frozen=True)
class SampleRow:
    """One row of a batch's output: a sample with its row's number, or the row's error.

    With `error`, all that only a sample has is None, and there is one such row whatever the
    number of samples. For the other fields see `SampleReport`.
    """

    schema: ClassVar[str] = SampleReport.schema

    id: str | int | None
    row: int
    index: int
    prompt: str | None
    text: str | None
    ids: list[int] | None
    finish_reason: str | None
    seed: int
    device: str
    dtype: str
    step: str | None
    batch_invariant: bool | None
    prompt_tokens: int | None
    new_tokens: int | None
    settings: dict[str, object]
    logprobs: list[dict[str, object]] | None = None
    error: RowError | None = None


@dataclass
class Tally:
    """How a batch goes.

    Args:
        rows: given back so far, errors among them.
        failed: of these, errors.
        new_tokens: drawn so far.
        finish_reasons: how many samples each ended.
        cut_prompts: rows with more tokens than the model's context.
        spaced_prompts: rows that end in a space, where the tokenizer is of pieces of words.
        first_error: with its row's number.
        started: when the model was ready, by `time.perf_counter`, or None.
    """

    rows: int = 0
    failed: int = 0
    new_tokens: int = 0
    finish_reasons: Counter[str] = field(default_factory=Counter)
    cut_prompts: int = 0
    spaced_prompts: int = 0
    first_error: tuple[int, RowError] | None = None
    started: float | None = None

    @property
    def seconds(self) -> float:
        """Since the model was ready; 0 before."""
        return 0.0 if self.started is None else time.perf_counter() - self.started

    def add(self, row: SampleRow) -> None:
        """Count a finished row."""
        self.rows += 1
        if row.error is not None:
            self.failed += 1
            self.first_error = self.first_error or (row.row, row.error)
        else:
            self.finish_reasons[row.finish_reason or ""] += 1


def sample_rows(
    session: Session,
    rows: Iterable[PromptRow],
    settings: SampleSettings,
    *,
    wanted: Callable[[PromptRow, int], bool] = lambda _row, _index: True,
    batch_size: int | None = None,
    tally: Tally | None = None,
) -> Iterator[SampleRow]:
    """Yield each row's samples, in the order of rows, then of samples.

    A sample is the same whatever other rows there are. The model is loaded with the first row that
    needs it.

    Args:
        session: the model and its tokenizer.
        rows: read as far ahead as the engine has room, and never more than LOOK_AHEAD samples.
        settings: `rng` is "per-sample"; the seed is that of the rows without their own.
        wanted: whether to make a row's sample of a number.
        batch_size: samples side by side, at most; None for what memory allows.
        tally: kept up to date.

    Raises:
        NanoGPTError: a fault of the model; what is wrong with a row becomes a row instead.
    """
    return _Batch(session, settings, wanted, tally or Tally()).run(rows, batch_size)


class _Batch:
    """Samples on their way, by the number that the engine knows them by: their place in order."""

    def __init__(
        self,
        session: Session,
        settings: SampleSettings,
        wanted: Callable[[PromptRow, int], bool],
        tally: Tally,
    ) -> None:
        self.session, self.settings, self.wanted, self.tally = session, settings, wanted, tally
        self.live: dict[int, _Sample] = {}
        self.done: dict[int, SampleRow] = {}
        self.taken = self.given = 0
        self.exhausted = False

    def __contains__(self, number: object) -> bool:
        """Return whether the engine may let a request go: all but those on their way."""
        return number not in self.live

    def run(self, rows: Iterable[PromptRow], batch_size: int | None) -> Iterator[SampleRow]:
        samples = self._samples(rows)
        while not self.exhausted:
            requests = self._requests(samples)
            first = next(requests, None)
            if first is not None:
                self.session.prepare()  # compiled, if it can be: rows must not feel each other
                tokens = self.session.generate(
                    chain((first,), requests), self.settings, stopped=self, batch_size=batch_size
                )
                self.tally.started = self.tally.started or time.perf_counter()
                for token in tokens:
                    self._take(token)
                    yield from self._ready()
            yield from self._ready()

    def _samples(self, rows: Iterable[PromptRow]) -> Iterator[_Sample | SampleRow]:
        for row in rows:
            prompt: Prompt | None = None
            for index in range(self.settings.num_samples):
                if not self.wanted(row, index):
                    continue
                if prompt is None:
                    encoded = self._encode(row)
                    if isinstance(encoded, RowError):
                        if index == 0:
                            yield self._refused(row, encoded)
                        break
                    prompt = encoded
                yield _Sample(self.session, row, index, prompt, self._settings_of(row))

    def _settings_of(self, row: PromptRow) -> SampleSettings:
        return self.settings if row.seed is None else replace(self.settings, seed=row.seed)

    def _encode(self, row: PromptRow) -> Prompt | RowError:
        if row.error is not None or row.prompt is None:
            return row.error or RowError("the row has no prompt")
        try:
            prompt = self.session.encode(PromptText(row.prompt), special=self.settings.special)
        except NanoGPTError as error:
            return RowError(error.message, error.hint)
        self.tally.cut_prompts += len(prompt.ids) > self.session.config.block_size
        tokenizer = self.session.tokenizer
        if tokenizer.is_bpe:
            self.tally.spaced_prompts += tokenizer.token_bytes(prompt.ids[-1]) == b" "
        return prompt

    def _refused(self, row: PromptRow, error: RowError) -> SampleRow:
        settings = self._settings_of(row)
        return SampleRow(
            id=row.id,
            row=row.row,
            index=0,
            prompt=row.prompt,
            text=None,
            ids=None,
            finish_reason=None,
            seed=settings.seed,
            device=str(self.session.device),
            dtype=self.session.dtype_name,
            step=None,
            batch_invariant=None,
            prompt_tokens=None,
            new_tokens=None,
            settings=settings.as_dict(**self.session.identity),
            error=error,
        )

    def _requests(self, samples: Iterator[_Sample | SampleRow]) -> Iterator[Request]:
        """Yield what the engine is to do; end where too much would be held, to go on later."""
        while self.taken - self.given < LOOK_AHEAD:
            sample = next(samples, None)
            if sample is None:
                self.exhausted = True
                return
            number = self.taken
            self.taken += 1
            if isinstance(sample, SampleRow):
                self.done[number] = sample
            else:
                self.live[number] = sample
                yield sample.request(number)

    def _take(self, token: NewToken) -> None:
        sample = self.live.get(token.index)
        if sample is None:  # one more, of a sample that a stop text has ended
            return
        self.tally.new_tokens += token.id is not None
        if sample.feed(token):
            del self.live[token.index]
            self.done[token.index] = sample.row()

    def _ready(self) -> Iterator[SampleRow]:
        while self.given in self.done:
            row = self.done.pop(self.given)
            self.given += 1
            self.tally.add(row)
            yield row


class _Sample:
    """One sample on its way: its tokens and their text so far."""

    def __init__(
        self,
        session: Session,
        source: PromptRow,
        index: int,
        prompt: Prompt,
        settings: SampleSettings,
    ) -> None:
        self.session, self.source, self.index = session, source, index
        self.prompt, self.settings = prompt, settings
        self.stream = TextStream(session.tokenizer)
        self.pieces: list[Piece] = []
        self.end = ""

    def request(self, number: int) -> Request:
        draws = Draws(self.settings.seed, self.prompt.ids, self.index)
        return Request(number, self.prompt.ids, draws)

    def feed(self, token: NewToken) -> bool:
        """Add a token; return whether the sample ends with it."""
        text = "" if token.id is None else self.stream.feed(token.id)
        if token.finish_reason is not None:
            text += self.stream.finish()
        self.pieces.append(Piece(self.index, token.id, text, token.finish_reason, token.score))
        return self._meets_stop(text) or token.finish_reason is not None

    def _meets_stop(self, text: str) -> bool:
        stops = self.settings.stop
        if not stops:
            return False
        found = any(stop in self.end + text for stop in stops)
        kept = max(map(len, stops)) - 1
        self.end = (self.end + text)[-kept:] if kept else ""
        return found

    def row(self) -> SampleRow:
        """Return the finished sample."""
        pieces = self.pieces
        if self.settings.stop:
            pieces = list(cut_at_stops(pieces, self.settings.stop, set()))
        report = vars(self.session.report(self.prompt, self.settings, pieces))
        own = {"id": self.source.id, "prompt": self.source.prompt}
        return SampleRow(row=self.source.row, **{**report, **own})
