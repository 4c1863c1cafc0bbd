"""The texts that an engine makes side by side: begun, advanced, slid, put off, let go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
        self._donor: tuple[_Text, Tensor] | None = None  # whose prompt was last run, its logits
        self._held: Request | None = None
        self._ahead: Tensor | None = None

    def admit(self) -> bool:
        """Take in texts while there is room; say whether there are any."""
        new: list[tuple[_Text, Tensor]] = []
        while len(self.rows) + len(new) < self.limit:
            text = self._next(self.rows + [text for text, _ in new])
            if text is None:
                break
            try:
                new.append((text, self._begin(text)))
            except (RuntimeError, MemoryError) as error:
                self.parked.append(text)
                self._shrink(error, len(self.rows) + len(new))
        if new:
            seen = torch.zeros(len(new), self.config.vocab_size, dtype=torch.bool)
            for row, (text, _) in enumerate(new):
                seen[row, text.ids] = True
            self.rows += [text for text, _ in new]
            self.logits = torch.cat((self.logits, *(logits for _, logits in new)))
            self.seen = torch.cat((self.seen, seen.to(self.seen.device)))
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

    def _begin(self, text: _Text) -> Tensor:
        """Fill a text's cache, from its neighbour's where they share a prompt; return (1, V)."""
        window = text.ids[-self.config.block_size :]
        still = self.max_new_tokens - text.new_tokens
        capacity = min(len(window) + still, self.config.block_size)
        text.length = len(window)
        if self._donor is not None and not text.new_tokens:
            donor, logits = self._donor
            if donor.request.prompt == text.request.prompt:
                text.cache = self.step.fork(donor.cache, len(window), capacity)
                return logits
        self._donor = None
        text.cache = self.step.open(capacity)
        logits = self.step.prefill(window, text.cache)
        if not text.new_tokens:
            # The cache's first positions stay as they are until the window slides.
            self._donor = (_Text(text.request, [], 0, text.cache), logits)
        return logits

    def _next_logits(self, drawn: Tensor) -> Tensor:
        """Return (B, V): one step for the texts with room, the window afresh for the full."""
        c = self.config
        full = [row for row, text in enumerate(self.rows) if text.length == c.block_size]
        room = [row for row, text in enumerate(self.rows) if text.length < c.block_size]
        if not self.rows:
            return self.logits[:0]
        logits = self.logits.new_empty(len(self.rows), c.vocab_size) if full else self.logits
        if room:
            texts = [self.rows[row] for row in room]
            ids = drawn[torch.tensor(room, device=drawn.device)] if full else drawn
            stepped = self.step.decode(
                ids, [text.length for text in texts], [text.cache for text in texts]
            )
            if not full:
                logits = stepped
            else:
                logits[torch.tensor(room, device=drawn.device)] = stepped
        for row in full:
            logits[row] = self._slide(self.rows[row])
        for row in room:
            self.rows[row].length += 1
        return logits

    def _slide(self, text: _Text) -> Tensor:
        """Run a full text's last ids afresh: their positions, and so their keys, have changed."""
        if self._donor is not None and self._donor[0].cache is text.cache:
            self._donor = None
        window = text.ids[-(self.config.block_size - self.stride + 1) :]
        logits = self.step.prefill(window, text.cache)
        text.length = len(window)
        return logits[0]

    def _shrink(self, error: Exception, keep: int) -> None:
        """Take in no more texts than fit, or raise again what is no want of memory."""
        if not _is_out_of_memory(error) or keep < 1:
            raise error
        self.limit, self._donor = keep, None
        if self.step.device.type == "cuda":
            torch.cuda.empty_cache()

    def _park(self, keep: int) -> None:
        """Put all but the first rows off; they begin again when there is room."""
        for text in self.rows[keep:]:
            text.cache = None
            self.parked.append(text)
        self.rows, self.seen, self.logits = self.rows[:keep], self.seen[:keep], self.logits[:keep]


def _is_out_of_memory(error: Exception) -> bool:
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in words)
