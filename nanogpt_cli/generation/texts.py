"""The texts that an engine makes side by side: begun, advanced, slid, put off, let go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from nanogpt_cli.generation.diagnosis import check_finite
from nanogpt_cli.generation.steps.base import Step
from nanogpt_cli.model import GPT
from nanogpt_cli.sampling.draws import Draws

if TYPE_CHECKING:
    from torch import Tensor

MOST_TEXTS = 128
"""Texts side by side where memory would allow more: beyond, a step grows as fast as its tokens."""

MEMORY_BUDGET_BYTES = 2 << 30
"""What the texts side by side may take, caches and draws, where nobody says how many."""

DRAW_BYTES = 32
"""What a draw takes for each id of the vocabulary: logits, their filtered copies, their sums."""

ELEMENT_BYTES = 4
"""Of a cached number, at most."""


@dataclass(frozen=True)
class Request:
    """One sample to make.

    Args:
        number: the caller's, given back as `NewToken.index`; no two alike in a run.
        prompt: at least one id, each in [0, vocab_size). Requests of one prompt that follow each
            other share its prefill.
        draws: the sample's own uniforms.
    """

    number: int
    prompt: Sequence[int]
    draws: Draws


@dataclass(eq=False)
class _Text:
    """A sample under way.

    Args:
        ids: the prompt's and the new ones.
        nbytes: what it takes, cache and draw.
        cache: None while it waits for room.
        length: positions in the cache.
    """

    request: Request
    ids: list[int]
    nbytes: int
    cache: Any = None
    length: int = 0
    new_tokens: int = 0


class Texts:
    """The texts side by side, with their logits and the ids seen in each."""

    def __init__(
        self,
        model: GPT,
        step: Step[Any],
        requests: Iterable[Request],
        max_new_tokens: int,
        batch_size: int | None,
        window_stride: int,
    ) -> None:
        self.model, self.step, self.stride = model, step, window_stride
        self.config = model.config
        self.max_new_tokens = max_new_tokens
        self.limit, self.budget = batch_size or MOST_TEXTS, batch_size is None
        self.waiting = iter(requests)
        self.parked: list[_Text] = []  # begun, and put off for want of memory
        self.rows: list[_Text] = []
        V = self.config.vocab_size
        self.logits = torch.empty(0, V, device=self.step.device)  # (B, V)
        self.seen = torch.empty(0, V, dtype=torch.bool, device=self.step.device)  # (B, V)
        self._donor: _Donor | None = None  # of the prompt that was run last
        self._held: Request | None = None
        self._ahead: Tensor | None = None

    def admit(self) -> bool:
        """Take in texts while there is room; say whether there are any."""
        new: list[_Text] = []
        while len(self.rows) + len(new) < self.limit:
            text = self._next([*self.rows, *new])
            if text is None:
                break
            new.append(text)
        while new:
            try:
                logits = self._begin(new)
            except (RuntimeError, MemoryError) as error:
                half = len(new) // 2
                self._shrink(error, len(self.rows) + half)
                for text in new[half:]:
                    self._put_off(text)
                new = new[:half]
                continue
            self.rows += new
            seen = torch.zeros(len(new), self.config.vocab_size, dtype=torch.bool)
            for row, text in enumerate(new):
                seen[row, text.ids] = True
            self.logits = torch.cat((self.logits, logits))
            self.seen = torch.cat((self.seen, seen.to(self.seen.device)))
            break
        return bool(self.rows)

    def require_finite(self) -> None:
        """Raise NanoGPTError where the logits are not all finite."""
        texts = [(text.ids, text.new_tokens) for text in self.rows]
        check_finite(self.model, self.logits, texts)

    def run_ahead(self, drawn: Tensor) -> list[int]:
        """Return the drawn ids; begin the next step, where it is one for all, before waiting.

        Args:
            drawn: (B,) int64.
        """
        finite = torch.isfinite(self.logits.sum(dim=-1)).long()
        fetched = self.step.fetch(torch.cat((drawn, finite)))
        roomy = all(text.length < text.cache.capacity for text in self.rows)
        last = all(text.new_tokens == self.max_new_tokens - 1 for text in self.rows)
        if roomy and not last:
            lengths = [text.length for text in self.rows]
            self._ahead = self.step.decode(drawn, lengths, [text.cache for text in self.rows])
        numbers = fetched()
        if not all(numbers[len(self.rows) :]):
            self.require_finite()
        return numbers[: len(self.rows)]

    def advance(self, staying: Sequence[int], drawn: Tensor, ids: Sequence[int]) -> None:
        """Let the other rows go, add the drawn ids to these, and compute their next logits.

        Args:
            staying: the numbers of rows.
            drawn: (B,) int64.
            ids: the same, as a list.
        """
        chosen = torch.tensor(staying, dtype=torch.long, device=drawn.device)
        if len(staying) < len(self.rows):
            self.rows = [self.rows[row] for row in staying]
            self.seen, drawn = self.seen[chosen], drawn[chosen]
        for text, row in zip(self.rows, staying, strict=True):
            text.ids.append(ids[row])
            text.new_tokens += 1
        self.seen.scatter_(1, drawn.unsqueeze(1), True)
        if self._ahead is not None:
            whole, self._ahead = self._ahead, None
            self.logits = whole if len(whole) == len(staying) else whole[chosen]
            for text in self.rows:
                text.length += 1
            return
        while True:
            try:
                self.logits = self._next_logits(drawn)
            except (RuntimeError, MemoryError) as error:
                keep = len(self.rows) // 2
                self._shrink(error, keep)
                self._park(keep)
                drawn = drawn[:keep]
                continue
            return

    def _next(self, beside: Sequence[_Text]) -> _Text | None:
        """Return the next text to begin, or None where there is none, or no room beside others."""
        if self.parked:
            return self.parked.pop()
        request, self._held = self._held or next(self.waiting, None), None
        if request is None:
            return None
        needed = self._bytes_of(request)
        if self.budget and beside:
            room = MEMORY_BUDGET_BYTES - sum(text.nbytes for text in beside)
            if needed > room:
                self._held = request
                return None
        return _Text(request, list(request.prompt), needed)

    def _bytes_of(self, request: Request) -> int:
        c = self.config
        capacity = min(len(request.prompt) + self.max_new_tokens, c.block_size)
        return 2 * c.n_layer * c.n_embd * capacity * ELEMENT_BYTES + DRAW_BYTES * c.vocab_size

    def _begin(self, new: Sequence[_Text]) -> Tensor:
        """Fill the caches of texts, each prompt run once for those of it that follow each other.

        Returns:
            (len(new), V) logits.
        """
        block_size = self.config.block_size
        latest, donors, run = self._donor, [], []
        for text in new:
            if text.new_tokens or latest is None or latest.prompt != text.request.prompt:
                capacity = self._capacity_of(text)
                donors.append(_Donor(text.request.prompt, self.step.open(capacity)))
                run.append((text.ids[-block_size:], donors[-1]))
                # A text that was put off has more than its prompt in its cache.
                latest = None if text.new_tokens else donors[-1]
            else:
                donors.append(latest)
        if run:
            logits = self.step.prefill(
                [window for window, _ in run], [donor.cache for _, donor in run]
            )
            for (_, donor), row in zip(run, logits, strict=True):
                donor.logits = row
        for text, donor in zip(new, donors, strict=True):
            text.length = min(len(text.ids), block_size)
            if donor.is_taken:
                text.cache = self.step.fork(donor.cache, text.length, self._capacity_of(text))
            else:
                text.cache, donor.is_taken = donor.cache, True
        self._donor = latest
        return torch.stack([donor.logits for donor in donors])

    def _capacity_of(self, text: _Text) -> int:
        longest = len(text.ids) + self.max_new_tokens - text.new_tokens
        return min(longest, self.config.block_size)

    def _next_logits(self, drawn: Tensor) -> Tensor:
        """Return (B, V): one step for the texts with room, the window afresh for the full.

        Once a window slides, its ids have other positions, and so their keys are others.
        """
        if not self.rows:
            return self.logits[:0]
        block_size = self.config.block_size
        full = [text for text in self.rows if text.length == block_size]
        room = [text for text in self.rows if text.length < block_size]
        is_full = torch.tensor([text in full for text in self.rows], device=drawn.device)
        parts = []
        if room:
            lengths, caches = [text.length for text in room], [text.cache for text in room]
            parts.append(self.step.decode(drawn[~is_full] if full else drawn, lengths, caches))
        if full:
            if self._donor is not None and any(text.cache is self._donor.cache for text in full):
                self._donor = None
            windows = [text.ids[-(block_size - self.stride + 1) :] for text in full]
            parts.append(self.step.prefill(windows, [text.cache for text in full]))
        for text in room:
            text.length += 1
        for text in full:
            text.length = block_size - self.stride + 1
        if len(parts) == 1:
            return parts[0]
        logits = self.logits.new_empty(len(self.rows), self.config.vocab_size)
        logits[~is_full], logits[is_full] = parts
        return logits

    def _shrink(self, error: Exception, keep: int) -> None:
        """Take in no more texts than fit, or raise again what is no want of memory."""
        if not _is_out_of_memory(error) or keep < 1:
            raise error
        self.limit, self._donor = keep, None
        if self.step.device.type == "cuda":
            torch.cuda.empty_cache()

    def _park(self, keep: int) -> None:
        """Put all but the first rows off."""
        for text in self.rows[keep:]:
            self._put_off(text)
        self.rows, self.seen, self.logits = self.rows[:keep], self.seen[:keep], self.logits[:keep]

    def _put_off(self, text: _Text) -> None:
        """Let a text begin again, with what it has, when there is room."""
        text.cache = None
        self.parked.append(text)


@dataclass(eq=False)
class _Donor:
    """A prompt that was run: its positions stay in a cache until the window there slides.

    Args:
        logits: (V,), of its last id, once it was run.
        is_taken: whether the cache is a text's own.
    """

    prompt: Sequence[int]
    cache: Any
    logits: Tensor = field(init=False)
    is_taken: bool = False


def _is_out_of_memory(error: Exception) -> bool:
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in words)
