"""What a user asks of a run of samples, checked before a model is loaded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from nanogpt_cli.errors import UsageError
from nanogpt_cli.sampling import Filter, build_filters

RNGS = ("per-sample", "nanogpt")


@dataclass(frozen=True)
class SampleSettings:
    """The settings that decide a sample's text, beside the model and the prompt.

    Args:
        num_samples: how many texts.
        max_new_tokens: tokens a text, at most; 0 adds none.
        temperature: 0 is greedy, 1 the model's own distribution.
        top_k: how many ids survive; 0 is all.
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
        _ = self.filters

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The filters of the sampling pipeline that change something."""
        return build_filters({"temperature": self.temperature, "top_k": self.top_k})

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
            "rng": self.rng,
            "ignore_eos": self.ignore_eos,
        }
        text = json.dumps({**values, **identity}, sort_keys=True, default=str)
        return {**values, "digest": hashlib.sha256(text.encode()).hexdigest()[:16]}
