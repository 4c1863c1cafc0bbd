"""What a user asks of a run of samples, checked before a model is loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from nanogpt_cli.errors import UsageError
from nanogpt_cli.sampling import DEFAULTS, Filter, build_filters

RNGS = ("per-sample", "nanogpt")
MOST_SAMPLES = 1_000_000_000
NANOGPTS_FILTERS = {"temperature", "top_k"}
"""All that sample.py has."""


@dataclass(frozen=True)
class SampleSettings:
    """The settings that decide a sample's text, beside the model and the prompt.

    Args:
        num_samples: how many texts.
        max_new_tokens: tokens a text, at most; 0 adds none.
        filters: the parameter of each filter of the sampling pipeline, by its option's name; one
            that is left out has its default.
        stop: texts before which a sample ends.
        logprobs: score each token, with so many alternatives; None for no scores.
        seed: any integer (64 bits where `rng` is "nanogpt").
        rng: "per-sample", or "nanogpt" for sample.py's own loop.
        ignore_eos: go on past end-of-text.
        special: whether `<|endoftext|>` in the prompt is the token.
        window_stride: past block_size, how many of the oldest ids are dropped at once.

    Raises:
        UsageError: a value out of range.
    """

    num_samples: int = 1
    max_new_tokens: int = 500
    filters: Mapping[str, float] = field(default_factory=dict)
    seed: int = 1337
    rng: str = "per-sample"
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    special: bool = True
    logprobs: int | None = None
    window_stride: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.num_samples <= MOST_SAMPLES:
            raise UsageError(
                f"--num-samples {self.num_samples}: it must be 1 to {MOST_SAMPLES:,}",
                hint="leave it out for one",
            )
        if self.max_new_tokens < 0:
            raise UsageError(
                f"--max-new-tokens {self.max_new_tokens}: it must be at least 0",
                hint="0 prints the prompt alone",
            )
        if self.rng not in RNGS:
            raise UsageError(f"unknown rng {self.rng!r}", hint=f"give {' or '.join(RNGS)}")
        if self.logprobs is not None and self.logprobs < 0:
            raise UsageError(
                f"--logprobs {self.logprobs}: it must be at least 0",
                hint="0 gives the drawn token's alone",
            )
        if self.logprobs is not None and self.rng == "nanogpt":
            raise UsageError(
                "--rng nanogpt is sample.py's own loop, which gives no --logprobs",
                hint="leave one of them out",
            )
        if self.window_stride < 1:
            raise UsageError(
                f"--window-stride {self.window_stride}: it must be at least 1",
                hint="1 is exact: each token sees the last block_size ids",
            )
        if self.window_stride > 1 and self.rng == "nanogpt":
            raise UsageError(
                "--rng nanogpt is sample.py's own loop, which has no --window-stride",
                hint="leave one of them out",
            )
        if "" in self.stop:
            raise UsageError(
                "--stop '': a stop text must have at least one character",
                hint="--max-new-tokens N ends a text after N tokens",
            )
        unknown = sorted({f.option for f in self.build_filters()} - NANOGPTS_FILTERS)
        if self.rng == "nanogpt" and unknown:
            flags = ", ".join("--" + option.replace("_", "-") for option in unknown)
            raise UsageError(
                f"--rng nanogpt is sample.py's own loop, which knows no {flags}",
                hint=f"leave out --rng, or {flags}",
            )

    def build_filters(self) -> tuple[Filter, ...]:
        """Return the filters of the sampling pipeline that change something, in its order."""
        return build_filters({**DEFAULTS, **self.filters})

    def value_of(self, option: str) -> float:
        """Return a filter's parameter, given or by default."""
        return self.filters.get(option, DEFAULTS[option])

    @property
    def is_greedy(self) -> bool:
        """Whether every token is the likeliest."""
        return self.value_of("temperature") == 0

    def as_dict(self, **identity: object) -> dict[str, object]:
        """Return the settings that change a text, with a digest of them and of `identity`.

        The number of samples and the seed (a field of its own in every row) are left out.
        """
        values: dict[str, object] = {
            "max_new_tokens": self.max_new_tokens,
            **DEFAULTS,
            **self.filters,
            "rng": self.rng,
            "ignore_eos": self.ignore_eos,
            "stop": list(self.stop),
            "special": self.special,
            "window_stride": self.window_stride,
        }
        text = json.dumps({**values, **identity}, sort_keys=True, default=str)
        return {**values, "digest": hashlib.sha256(text.encode()).hexdigest()[:16]}
