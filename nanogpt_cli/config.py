"""GPTConfig: the numbers that define a GPT. Standard library only; model.py re-exports it."""

from __future__ import annotations

from dataclasses import dataclass

from nanogpt_cli.errors import ConfigError

ACTIVATIONS = ("gelu", "gelu_tanh")
"""Exact GELU (nanoGPT), and its tanh approximation (OpenAI, HF `gelu_new`, minGPT)."""

ATTENTIONS = ("sdpa", "manual")

PRESETS: dict[str, dict[str, int]] = {
    "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768},
    "gpt2-medium": {"n_layer": 24, "n_head": 16, "n_embd": 1024},
    "gpt2-large": {"n_layer": 36, "n_head": 20, "n_embd": 1280},
    "gpt2-xl": {"n_layer": 48, "n_head": 25, "n_embd": 1600},
}
"""OpenAI's four sizes, all with block_size 1024, vocab_size 50257 and biases."""


@dataclass
class GPTConfig:
    """nanoGPT's GPTConfig, then our own fields, whose defaults keep nanoGPT's behaviour.

    Args:
        block_size: longest sequence, in tokens; rows of wpe.
        vocab_size: rows of wte; 50257 padded to a multiple of 64 by default.
        bias: whether Linear and LayerNorm layers have biases.
        activation: "gelu" or "gelu_tanh".
        tied_head: whether lm_head.weight is wte.weight.
        attention: "sdpa", or "manual" for the explicit softmax with a stored mask.

    Raises:
        ConfigError: a size below 1, n_embd not divisible by n_head, or an unknown name.
    """

    block_size: int = 1024
    vocab_size: int = 50304
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0
    bias: bool = True
    activation: str = "gelu"
    tied_head: bool = True
    attention: str = "sdpa"

    def __post_init__(self) -> None:
        for name in ("block_size", "vocab_size", "n_layer", "n_head", "n_embd"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(
                    f"{name} is {value!r}: it must be an integer of at least 1",
                    hint=f"nanoGPT's own is {getattr(GPTConfig, name)}",
                )
        if self.n_embd % self.n_head:
            raise ConfigError(
                f"n_embd {self.n_embd} is not divisible by n_head {self.n_head}",
                hint="every head has n_embd / n_head columns",
            )
        if not 0.0 <= self.dropout <= 1.0:
            raise ConfigError(
                f"dropout is {self.dropout!r}: it must lie in 0 to 1", hint="0 drops nothing"
            )
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ConfigError(f"unknown activation {self.activation!r}: known are {known}")
        if self.attention not in ATTENTIONS:
            known = ", ".join(ATTENTIONS)
            raise ConfigError(f"unknown attention {self.attention!r}: known are {known}")
