"""What is looked at: a model in memory and the tokens of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from nanogpt_cli.checkpoints import load_model
from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.diagnosis import name_bad_tensor
from nanogpt_cli.generation.session import Session
from nanogpt_cli.inspection.behaviour.labels import Token, find_token, label_token, spell_token
from nanogpt_cli.inspection.behaviour.text import Tokens
from nanogpt_cli.model import GPT
from nanogpt_cli.tokenizers.base import Tokenizer


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and the tokens that it is run on.

    Args:
        name: the checkpoint, for people.
        model: in eval mode, its arithmetic in float32.
        tokenizer: the model's.
        ids: at least one, each of which the model has; for some views more than block_size.
        text: the prompt; empty where only a start token is fed or a token file was read.
        notes: what a user should hear.
        dropped: tokens of the prompt before `ids` that the model cannot see.
    """

    name: str
    model: GPT
    tokenizer: Tokenizer
    ids: Sequence[int]
    text: str = ""
    notes: tuple[str, ...] = ()
    dropped: int = 0

    @cached_property
    def idx(self) -> torch.Tensor:
        """The tokens as the model takes them, (1, T) int64 on its device."""
        with torch.inference_mode(False):  # kept, and used in and outside of that mode
            return self.window(0, len(self.ids))

    @cached_property
    def labels(self) -> list[str]:
        """The tokens as `label_token` shows them."""
        return [self.label(token) for token in self.ids]

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens with their texts."""
        return tuple(self.spell(token) for token in self.ids)

    def spell(self, token: int) -> Token:
        """Return any token of the vocabulary with its text."""
        return spell_token(self.tokenizer, token)

    def find(self, text: str) -> int:
        """Return the one token that a text is, which the model has.

        Raises:
            UsageError: it is none, or several, or one that the model lacks.
        """
        return find_token(self.tokenizer, text, self.model.config.vocab_size)

    def label(self, token: int) -> str:
        """Return any token of the vocabulary as one visible line."""
        return label_token(self.tokenizer, token)

    def window(self, start: int, stop: int) -> torch.Tensor:
        """Return a run of the tokens, (1, stop - start) int64 on the model's device."""
        device = self.model.transformer.wte.weight.device
        return torch.tensor(self.ids[start:stop], dtype=torch.long, device=device)[None]

    def last_block(self) -> Subject:
        """Return the subject with at most block_size tokens, the last ones; a note tells."""
        block_size, count = self.model.config.block_size, len(self.ids)
        if count <= block_size:
            return self
        note = f"the prompt has {count:,} tokens and the model sees the last {block_size:,} of them"
        return replace(
            self,
            ids=self.ids[-block_size:],
            notes=(*self.notes, note),
            dropped=count - block_size,
        )

    def require_finite(self, logits: torch.Tensor, idx: torch.Tensor) -> None:
        """Refuse logits that are NaN or infinite.

        Args:
            logits: (..., V), what the model made of idx.
            idx: (B, T) int64.

        Raises:
            NanoGPTError: with the name of the first bad tensor.
        """
        if torch.isfinite(logits).all():
            return
        where = name_bad_tensor(self.model, idx)
        raise NanoGPTError(
            f"the model's logits are not finite: the first bad tensor is {where}",
            hint="nanogpt inspect CKPT --check lists every tensor with such values",
        )


def read_subject(session: Session, tokens: Tokens, name: str) -> Subject:
    """Load the model and return it with the tokens of a text.

    With a 16-bit dtype the weights are rounded to it; the arithmetic is float32 on every device.

    Args:
        session: the checkpoint with its tokenizer.
        tokens: of the text.
        name: the checkpoint, for people.
    """
    model = load_exact(session)
    return Subject(name, model, session.tokenizer, tokens.ids, tokens.text, tokens.notes)


def load_exact(session: Session) -> GPT:
    """Return the session's model in eval mode on its device, its arithmetic in float32."""
    model = load_model(session.checkpoint).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if session.dtype != torch.float32:
            parameter.data = parameter.data.to(session.dtype).to(torch.float32)
    return model.to(session.device)
