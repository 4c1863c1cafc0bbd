"""Which model and which work: named shapes, prompts, and the bytes that a token must move."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from nanogpt_cli.accounting.parameters import count_parameters
from nanogpt_cli.accounting.published import find_known_config
from nanogpt_cli.config import PRESETS, GPTConfig

TINY = GPTConfig(
    block_size=96, vocab_size=211, n_layer=3, n_head=3, n_embd=48, activation="gelu_tanh"
)
"""For `quick`: odd sizes show more faults than round ones."""


def find_shape(name: str) -> GPTConfig:
    """Return the configuration of a named shape.

    Raises:
        ValueError: an unknown name.
    """
    config = TINY if name == "tiny" else find_known_config(name)
    if config is None:
        raise ValueError(f"unknown shape {name!r}: known are tiny, {', '.join(PRESETS)}")
    return config


def weight_bytes(config: GPTConfig, bits: float) -> float:
    """Return the bytes of weights that one decoded token reads: all but wpe."""
    return count_parameters(config).nanogpt * bits / 8


@dataclass(frozen=True)
class Workload:
    """What every engine is asked for.

    Args:
        prompt_tokens: the shortest and the longest prompt; between them where they differ.
        new_tokens: continued by exactly so many.
        batch: prompts side by side.
        seed: of the prompts.
    """

    prompt_tokens: tuple[int, int]
    new_tokens: int
    batch: int = 1
    seed: int = 1

    def prompts(self, config: GPTConfig) -> list[list[int]]:
        """Return random ids, one list a row, no two rows alike.

        Raises:
            ValueError: a prompt and its new tokens do not fit into block_size.
        """
        shortest, longest = self.prompt_tokens
        if longest + self.new_tokens > config.block_size:
            raise ValueError(
                f"{longest} + {self.new_tokens} tokens do not fit into a block_size of "
                f"{config.block_size}: no peer slides its window as nanoGPT does"
            )
        draws = Random(self.seed)
        steps = max(1, self.batch - 1)
        lengths = [shortest + row * (longest - shortest) // steps for row in range(self.batch)]
        draws.shuffle(lengths)
        return [[draws.randrange(config.vocab_size) for _ in range(n)] for n in lengths]
