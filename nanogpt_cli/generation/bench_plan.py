"""What a bench measures, checked before a model is loaded: light."""

from __future__ import annotations

from dataclasses import dataclass

from nanogpt_cli.errors import UsageError, did_you_mean

WEIGHTS = ("float32", "bfloat16", "float16", "int8")
"""The number formats that a step can keep weights in."""


@dataclass(frozen=True)
class BenchPlan:
    """What to measure.

    Args:
        weights: number formats, each with a row for each batch size.
        prompt_tokens: of each prompt.
        new_tokens: of each text, two at least.
        rounds: how often.

    Raises:
        UsageError: a number out of range.
    """

    weights: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    prompt_tokens: int
    new_tokens: int
    rounds: int

    def __post_init__(self) -> None:
        _require_least("--prompt-tokens", self.prompt_tokens, 1)
        _require_least("--new-tokens", self.new_tokens, 2)
        _require_least("--rounds", self.rounds, 1)
        for size in self.batch_sizes:
            _require_least("--batch-size", size, 1)

    def require_known_weights(self) -> None:
        """Raise UsageError for a number format that there is none of."""
        for weights in self.weights:
            if weights not in WEIGHTS:
                hint = did_you_mean(weights, WEIGHTS, f"give {', '.join(WEIGHTS)}")
                raise UsageError(f"unknown dtype {weights!r}", hint=hint)

    def require_room(self, block_size: int) -> None:
        """Raise UsageError where the texts are longer than the model's context."""
        if self.prompt_tokens + self.new_tokens > block_size:
            raise UsageError(
                f"{self.prompt_tokens} prompt tokens and {self.new_tokens} new ones are more than "
                f"the model's {block_size} positions",
                hint="give a smaller --prompt-tokens or --new-tokens",
            )


def _require_least(flag: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError(
            f"{flag} {value}: it must be at least {least}",
            hint=f"give {flag} {least} or more, or leave it out",
        )
