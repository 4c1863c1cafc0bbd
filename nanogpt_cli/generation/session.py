"""A checkpoint, its tokenizer and its model, ready to continue prompts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TypedDict

import torch

from nanogpt_cli.checkpoints import Checkpoint, load_model
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.generation.devices import choose_device, choose_dtype, idle_gpu_note
from nanogpt_cli.generation.engine import Engine, NewToken, Request
from nanogpt_cli.generation.forbidden import forbidden_ids
from nanogpt_cli.generation.prompt import Prompt, PromptText, can_spell
from nanogpt_cli.generation.reference import build_seeded, generate_like_nanogpt
from nanogpt_cli.generation.report import (
    SampleReport,
    Timing,
    digest_tokens,
    digest_weights,
    spell_score,
)
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.steps.choose import StepChoice, make_step
from nanogpt_cli.generation.steps.eager import EagerStep
from nanogpt_cli.generation.stops import cut_at_stops
from nanogpt_cli.generation.text import Piece, in_order, stream_text
from nanogpt_cli.generation.vocabulary import Vocabulary, find_vocabulary
from nanogpt_cli.sampling import DEFAULTS
from nanogpt_cli.sampling.draws import SampleDraws
from nanogpt_cli.sampling.sampler import Sampler

PATIENCE_SECONDS = 20.0
"""How long a checkpoint may keep changing before its reading is given up."""

WAIT_SECONDS = 0.05

UNTRAINED_SHARE = 0.05
"""A loss this near ln(vocab_size) is what a model without training has."""


class Session:
    """A model in memory with its tokenizer.

    Args:
        checkpoint: opened, its weights unread.
        vocabulary: the checkpoint's, if it was found before; else it is looked for.
        tokenizer: "gpt2", "char", "ids", a path, or None for the checkpoint's own.
        meta: a meta.pkl, or None.
        device: "auto", "cpu", "cuda", "cuda:N", "mps".
        dtype: "auto", "float32", "bfloat16", "float16". On the CPU the 16-bit ones round the
            weights, and the arithmetic stays float32.
        choice: how to compute beside that.
        notify: is told what is worth a note while the model is loaded.

    Raises:
        NanoGPTError: no fitting tokenizer, an impossible device or dtype, or an unknown n_head.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        vocabulary: Vocabulary | None = None,
        tokenizer: str | None = None,
        meta: Path | None = None,
        device: str = "auto",
        dtype: str = "auto",
        choice: StepChoice | None = None,
        notify: Callable[[str], None] = lambda _note: None,
    ) -> None:
        self.checkpoint = checkpoint
        self.vocabulary = vocabulary or find_vocabulary(checkpoint, tokenizer=tokenizer, meta=meta)
        self.tokenizer = self.vocabulary.tokenizer
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        self.choice = choice or StepChoice()
        self.notify = notify
        self._engine: Engine | None = None
        self.notes = (
            *checkpoint.notes,
            *self.vocabulary.notes,
            *_untrained_note(checkpoint),
            *idle_gpu_note(device),
        )

    @property
    def config(self) -> GPTConfig:
        """The model's configuration."""
        return self.checkpoint.config

    @property
    def dtype_name(self) -> str:
        """The dtype without torch's name before it."""
        return str(self.dtype).removeprefix("torch.")

    def encode(self, prompt: PromptText, *, special: bool = True) -> Prompt:
        """Return the prompt's ids, checked against tokenizer and model."""
        return self.vocabulary.encode(prompt, special=special)

    def opening(self, prompt: Prompt) -> str:
        """Return what stands before a sample's new text when the prompt is echoed."""
        between = self.tokenizer.separator.decode() if prompt.text else ""
        return prompt.text + between

    def advise(self, settings: SampleSettings) -> Iterator[str]:
        """Say which settings have no effect."""
        V, top_k = self.config.vocab_size, settings.value_of("top_k")
        if top_k > V and top_k != DEFAULTS["top_k"]:
            yield f"--top-k {top_k} has no effect: the vocabulary has {V} ids"
        if settings.is_greedy and settings.seed != SampleSettings().seed:
            yield f"--seed {settings.seed} has no effect: a temperature of 0 draws nothing"
        for stop in settings.stop:
            if not can_spell(self.tokenizer, stop):
                yield f"--stop {stop!r} has no effect: the vocabulary cannot spell it"

    def sample(
        self, prompt: Prompt, settings: SampleSettings, timing: Timing | None = None
    ) -> Iterator[Piece]:
        """Load the model and continue the prompt; samples come in order, token by token.

        Raises:
            NanoGPTError: what the engine or the tokenizer meets on the way.
        """
        stopped: set[int] = set()
        pieces = stream_text(self._tokens(prompt, settings, stopped), self.tokenizer)
        if settings.stop:
            pieces = cut_at_stops(pieces, settings.stop, stopped)
        return in_order(pieces if timing is None else timing.watch(pieces))

    def _tokens(
        self, prompt: Prompt, settings: SampleSettings, stopped: set[int]
    ) -> Iterator[NewToken]:
        if settings.rng == "nanogpt":
            model = build_seeded(self.checkpoint, settings.seed, self.device)
            return generate_like_nanogpt(
                model,
                prompt.ids,
                num_samples=settings.num_samples,
                max_new_tokens=settings.max_new_tokens,
                temperature=settings.value_of("temperature"),
                top_k=int(settings.value_of("top_k")),
                dtype=self.dtype,
                stopped=stopped,
            )
        self.prepare(settings.num_samples * settings.max_new_tokens)
        draws = SampleDraws(settings.seed, prompt.ids, range(settings.num_samples))
        requests = (Request(i, prompt.ids, draws[i]) for i in range(settings.num_samples))
        return self.generate(requests, settings, stopped=stopped)

    def generate(
        self,
        requests: Iterable[Request],
        settings: SampleSettings,
        *,
        stopped: Container[int] = (),
        batch_size: int | None = None,
    ) -> Iterator[NewToken]:
        """Serve requests of any prompts with these settings, whose seed and number play no part.

        Args:
            requests: asked for lazily.
            settings: `rng` is "per-sample".
            stopped: the numbers of requests to let go; looked into after every token.
            batch_size: requests side by side, at most; None for what memory allows.
        """
        sampler = Sampler(
            settings.build_filters(),
            greedy=settings.is_greedy,
            forbidden=forbidden_ids(self.tokenizer, self.config.vocab_size, self.device),
        )
        return self.engine.generate(
            requests,
            sampler,
            max_new_tokens=settings.max_new_tokens,
            end_of_text=None if settings.ignore_eos else self.tokenizer.end_of_text,
            stopped=stopped,
            logprobs=settings.logprobs,
            batch_size=batch_size,
            window_stride=settings.window_stride,
        )

    def prepare(self, new_tokens: float = math.inf) -> None:
        """Load the model and choose its step, if that is still to do.

        Args:
            new_tokens: how many the run may make, over all samples: a long one earns compiling.
        """
        if self._engine is not None:
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._engine is None:
            try:
                self._engine = self._load(new_tokens)
            except CheckpointError:
                # A training saved its next checkpoint meanwhile, or is at it: that one then.
                is_late = time.monotonic() > deadline
                if is_late or not self.checkpoint.has_changed or "identity" in self.__dict__:
                    raise
                self._open_again(deadline)

    def _load(self, new_tokens: float) -> Engine:
        is_copied = self.choice.quantize or self.dtype != torch.float32 or self.device.type != "cpu"
        model = load_model(self.checkpoint, mapped=bool(is_copied)).eval()
        step, notes = make_step(
            model, self.dtype, self.choice, new_tokens, self.device, self.notify
        )
        self.checkpoint.require_unchanged()
        for note in notes:
            self.notify(note)
        return Engine(model, step)

    def _open_again(self, deadline: float) -> None:
        """Take the checkpoint as it now is, once it is whole.

        Raises:
            CheckpointError: it is not by the deadline.
            NanoGPTError: it is another model.
        """
        while True:
            try:
                self.checkpoint = self.checkpoint.open_again()
                break
            except CheckpointError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(WAIT_SECONDS)
        iter_num = self.checkpoint.iter_num
        now = "" if iter_num is None else f", and is now of iter_num {iter_num}"
        self.notify(f"the checkpoint was written again while it was read{now}")

    def compute_as(self, step: str) -> None:
        """Go on as earlier texts were computed, where the choice is left open.

        Args:
            step: `SampleReport.step` of those.
        """
        if self.choice.compile == "auto":
            self.choice = replace(self.choice, compile=step != EagerStep.name)

    @property
    def engine(self) -> Engine:
        """The model made ready to decode."""
        self.prepare()
        assert self._engine is not None, "prepare makes the engine"
        return self._engine

    @cached_property
    def identity(self) -> dict[str, str]:
        """What changes a text beside the settings: weights, tokens, number format."""
        return {
            "weights": digest_weights(self.checkpoint.architecture),
            "tokens": digest_tokens(self.tokenizer),
            "dtype": self.dtype_name,
            **({"quantize": self.choice.quantize} if self.choice.quantize else {}),
        }

    def _computed_by(self, settings: SampleSettings) -> _ComputedBy:
        if settings.rng == "nanogpt":  # one text after the other
            return {"step": "reference", "batch_invariant": True}
        step = self.engine.step
        return {"step": step.name, "batch_invariant": step.batch_invariant}

    def report(self, prompt: Prompt, settings: SampleSettings, pieces: list[Piece]) -> SampleReport:
        """Return the report of one sample from all of its pieces."""
        ids = [piece.id for piece in pieces if piece.id is not None]
        scores = [piece.score for piece in pieces if piece.score is not None]
        return SampleReport(
            id=None,
            index=pieces[0].index,
            prompt=prompt.text,
            text="".join(piece.text for piece in pieces),
            ids=ids,
            finish_reason=pieces[-1].finish_reason or "length",
            seed=settings.seed,
            device=str(self.device),
            dtype=self.dtype_name,
            **self._computed_by(settings),
            prompt_tokens=len(prompt.ids),
            new_tokens=len(ids),
            settings=settings.as_dict(**self.identity),
            logprobs=None
            if settings.logprobs is None
            else [spell_score(self.tokenizer, score) for score in scores],
        )


class _ComputedBy(TypedDict):
    step: str
    batch_invariant: bool


def _untrained_note(checkpoint: Checkpoint) -> tuple[str, ...]:
    loss, uniform = checkpoint.best_val_loss, math.log(checkpoint.config.vocab_size)
    if loss is None or abs(loss - uniform) > UNTRAINED_SHARE * uniform:
        return ()
    return (
        f"the model is untrained: its best_val_loss {loss:.4f} is near ln(vocab_size) "
        f"{uniform:.4f}, what guessing gives",
    )
