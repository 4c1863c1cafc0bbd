"""What a user asks of a run of samples, checked before a model is loaded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from nanogpt_cli.errors import UsageError
from nanogpt_cli.sampling import PIPELINE, Filter, build_filters
from nanogpt_cli.sampling.repetition_penalty import RepetitionPenalty
from nanogpt_cli.sampling.temperature import Temperature
from nanogpt_cli.sampling.top_k import TopK

RNGS = ("per-sample", "nanogpt")


@dataclass(frozen=True)
class SampleSettings:
    """The settings that decide a sample's text, beside the model and the prompt.

    Args:
        num_samples: how many texts.
        max_new_tokens: tokens a text, at most; 0 adds none.
        temperature: 0 is greedy, 1 the model's own distribution.
        top_k: how many ids survive; 0 is all.
        top_p: the share of probability that survives; 1 is all.
        min_p: the least odds against the likeliest id; 0 is none.
        repetition_penalty: what seen ids' logits are divided by; 1 is off.
        stop: texts before which a sample ends.
        logprobs: score each token, with so many alternatives; None for no scores.
        seed: any integer (64 bits where `rng` is "nanogpt").
        rng: "per-sample", or "nanogpt" for sample.py's own loop.
        ignore_eos: go on past end-of-text.

    Raises:
        UsageError: a value out of range.
    """

    num_samples: int = 1
    max_new_tokens: int = 500
    temperature: float = 0.8
    top_k: int = 200
    seed: int = 1337
    rng: str = "per-sample"
    ignore_eos: bool = False
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise UsageError(f"--num-samples {self.num_samples}: it must be at least 1")
        if self.max_new_tokens < 0:
            raise UsageError(
                f"--max-new-tokens {self.max_new_tokens}: it must be at least 0",
                hint="0 prints the prompt alone",
            )
        if self.rng not in RNGS:
            raise UsageError(f"unknown rng {self.rng!r}", hint=f"give {' or '.join(RNGS)}")
        if self.logprobs is not None and self.logprobs < 0:
            raise UsageError(f"--logprobs {self.logprobs}: it must be at least 0")
        if self.logprobs is not None and self.rng == "nanogpt":
            raise UsageError("--rng nanogpt is sample.py's own loop, which gives no --logprobs")
        if "" in self.stop:
            raise UsageError("--stop '': a stop text must have at least one character")
        filters = self.filters
        if self.rng == "nanogpt" and not all(isinstance(f, Temperature | TopK) for f in filters):
            raise UsageError(
                "--rng nanogpt is sample.py's own loop, which knows temperature and top-k alone",
                hint="leave --rng out, or --top-p, --min-p and --repetition-penalty",
            )

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The filters of the sampling pipeline that change something.

        A greedy choice is the same after those that keep the likeliest id, so they are left out.
        """
        filters = build_filters({f.option: getattr(self, f.option) for f in PIPELINE})
        if not self.is_greedy:
            return filters
        return tuple(f for f in filters if isinstance(f, RepetitionPenalty))

    @property
    def is_greedy(self) -> bool:
        """Whether every token is the likeliest."""
        return self.temperature == 0

    def as_dict(self, **identity: object) -> dict[str, object]:
        """Return the settings that change a text, with a digest of them and of `identity`.

        The number of samples and the seed (a field of its own in every row) are left out.
        """
        values: dict[str, object] = {
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "rng": self.rng,
            "ignore_eos": self.ignore_eos,
            "stop": list(self.stop),
        }
        text = json.dumps({**values, **identity}, sort_keys=True, default=str)
        return {**values, "digest": hashlib.sha256(text.encode()).hexdigest()[:16]}
