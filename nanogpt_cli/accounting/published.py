"""Models whose sizes are known without a file, and the names they were published under."""

from __future__ import annotations

from nanogpt_cli.accounting.parameters import count_parameters
from nanogpt_cli.config import PRESETS, GPTConfig

GPT2_VOCAB_SIZE = 50257
PADDING_LIMIT = 128
"""This many spare rows or more are another vocabulary."""

_NAMED_SIZES: dict[str, dict[str, int]] = {
    **PRESETS,
    "distilgpt2": {"n_layer": 6, "n_head": 12, "n_embd": 768},
    "sshleifer/tiny-gpt2": {"n_layer": 2, "n_head": 2, "n_embd": 2},
}

_ALIASES = {
    **{f"openai-community/{name}": name for name in PRESETS},
    "distilbert/distilgpt2": "distilgpt2",
    "microsoft/DialoGPT-small": "gpt2",
    "microsoft/DialoGPT-medium": "gpt2-medium",
    "microsoft/DialoGPT-large": "gpt2-large",
}

KNOWN_NAMES = (*_NAMED_SIZES, *_ALIASES)

LABELS = {
    "gpt2": ("124M", "117M"),
    "gpt2-medium": ("355M", "345M"),
    "gpt2-large": ("774M", "762M"),
    "gpt2-xl": ("1558M", "1542M"),
    "distilgpt2": ("82M",),
}
"""Today's name of each size, then the one it was first published under."""


def find_known_config(name: str) -> GPTConfig | None:
    """Return the configuration of a stock name or hub id, a `@revision` allowed, or None."""
    bare = name.partition("@")[0] if "/" in name else name
    sizes = _NAMED_SIZES.get(_ALIASES.get(bare, bare))
    if sizes is None:
        return None
    return GPTConfig(
        block_size=1024,
        vocab_size=GPT2_VOCAB_SIZE,
        n_layer=sizes["n_layer"],
        n_head=sizes["n_head"],
        n_embd=sizes["n_embd"],
        activation="gelu_tanh",
    )


def find_published(config: GPTConfig) -> tuple[str, tuple[str, ...]] | None:
    """Return the published name of a model of these sizes, and its labels, or None.

    Heads change no count and are not compared; a padded vocabulary is another size.
    """
    counts = count_parameters(config)
    for name, labels in LABELS.items():
        stock = find_known_config(name)
        if stock and config.n_layer == stock.n_layer and counts == count_parameters(stock):
            return name, labels
    return None


def count_padding_rows(config: GPTConfig) -> int | None:
    """Return how many rows of wte pad GPT-2's vocabulary to a round number.

    Returns:
        0 for GPT-2's own 50257, and None for any other vocabulary.
    """
    spare = config.vocab_size - GPT2_VOCAB_SIZE
    is_round = config.vocab_size % 8 == 0
    return spare if spare == 0 or (is_round and 0 < spare < PADDING_LIMIT) else None
