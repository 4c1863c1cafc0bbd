"""A checkpoint's tokenizer, checked against its model: what text is to it, known without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.generation.prompt import Prompt, PromptText, encode_prompt
from nanogpt_cli.tokenizers.base import Tokenizer
from nanogpt_cli.tokenizers.search import find_tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that a model knows.

    Args:
        tokenizer: which fits the model.
        config: the model's.
        notes: what a user should hear about the choice.
    """

    tokenizer: Tokenizer
    config: GPTConfig
    notes: tuple[str, ...] = ()

    def encode(self, prompt: PromptText, *, special: bool = True) -> Prompt:
        """Return a prompt's ids, each of which the model has.

        Raises:
            UsageError: characters that the tokenizer lacks.
            NanoGPTError: an id that the model lacks.
        """
        return encode_prompt(
            prompt,
            self.tokenizer,
            vocab_size=self.config.vocab_size,
            block_size=self.config.block_size,
            special=special,
        )


def find_vocabulary(
    checkpoint: Checkpoint, *, tokenizer: str | None = None, meta: Path | None = None
) -> Vocabulary:
    """Return the vocabulary of a checkpoint whose model can be computed.

    Args:
        checkpoint: opened, its weights unread.
        tokenizer: "gpt2", "char", "ids", a path, or None for the checkpoint's own.
        meta: a meta.pkl, or None.

    Raises:
        NanoGPTError: no fitting tokenizer, or an unknown n_head.
    """
    checkpoint.architecture.require_n_head()
    dataset = checkpoint.train_config.get("dataset")
    found, notes = find_tokenizer(
        vocab_size=checkpoint.config.vocab_size,
        near=checkpoint.folder,
        dataset=dataset if isinstance(dataset, str) else None,
        tokenizer=tokenizer,
        meta=meta,
    )
    return Vocabulary(found, checkpoint.config, notes)
