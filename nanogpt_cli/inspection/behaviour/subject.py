"""What is looked at: a model in memory and the tokens of a text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from nanogpt_cli.checkpoints import load_model
from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.generation.diagnosis import name_bad_tensor
from nanogpt_cli.generation.prompt import FILE_PREFIX, PromptText, encode_prompt
from nanogpt_cli.generation.session import Session
from nanogpt_cli.inspection.behaviour.labels import Token, find_token, label_token, spell_token
from nanogpt_cli.model import GPT
from nanogpt_cli.tokenizers.base import Tokenizer

TOKEN_FILE_SUFFIX = ".bin"
"""nanoGPT's data/*/val.bin: uint16 token ids, little-endian, and nothing else."""


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
        token, V = find_token(self.tokenizer, text), self.model.config.vocab_size
        if token >= V:
            raise UsageError(
                f"{text!r} is id {token}, and the model's {V} ids end at {V - 1}",
                hint="give another token, or the model's own --tokenizer",
            )
        return token

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


def read_subject(session: Session, prompt: PromptText | Path, name: str) -> Subject:
    """Load the model and return it with all the tokens of a prompt.

    With a 16-bit dtype the weights are rounded to it; the arithmetic is float32 on every device.

    Args:
        session: the checkpoint with its tokenizer.
        prompt: a text, or a file of uint16 tokens.
        name: the checkpoint, for people.

    Raises:
        UsageError: characters that the tokenizer lacks, or a token file that is not there.
        NanoGPTError: an id that the model lacks, or a token file that cannot be read.
    """
    V = session.config.vocab_size
    if isinstance(prompt, Path):
        ids: Sequence[int] = read_token_file(prompt, V)
        return Subject(name, load_exact(session), session.tokenizer, ids)
    # What is cut is told by `last_block`, where anything is.
    encoded = encode_prompt(
        prompt,
        session.tokenizer,
        vocab_size=V,
        block_size=max(len(prompt.text), 1) * 8,
        special=True,
    )
    model = load_exact(session)
    return Subject(name, model, session.tokenizer, encoded.ids, encoded.text, encoded.notes)


def load_exact(session: Session) -> GPT:
    """Return the session's model in eval mode on its device, its arithmetic in float32."""
    model = load_model(session.checkpoint).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if session.dtype != torch.float32:
            parameter.data = parameter.data.to(session.dtype).to(torch.float32)
    return model.to(session.device)


def name_token_file(spec: str | None) -> Path | None:
    """Return the token file that `FILE:x.bin` means, or None for any other prompt."""
    if spec is None or not spec.startswith(FILE_PREFIX) or not spec.endswith(TOKEN_FILE_SUFFIX):
        return None
    return Path(spec.removeprefix(FILE_PREFIX))


def read_token_file(path: Path, vocab_size: int) -> Sequence[int]:
    """Return the ids of a file of little-endian uint16 tokens.

    Raises:
        UsageError: no such file.
        NanoGPTError: it cannot be read, is empty or of an odd length, or has an id that the model
            lacks.
    """
    shown = repr(str(path))
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(
            f"no token file at {str(path.absolute())!r}",
            hint="FILE:x.bin reads uint16 token ids, as nanoGPT's prepare.py writes them",
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NanoGPTError(f"cannot read the token file {shown}: {reason}") from error
    if not data or len(data) % 2:
        raise NanoGPTError(
            f"the token file {shown} has {len(data):,} bytes: uint16 tokens take two each",
            hint="text goes in a file with another name than .bin",
        )
    ids = array("H", data)
    if array("H", b"\1\0")[0] != 1:
        ids.byteswap()
    if max(ids) >= vocab_size:
        place = next(place for place, token in enumerate(ids) if token >= vocab_size)
        raise NanoGPTError(
            f"token {place:,} of {shown} is id {ids[place]}, and the model's {vocab_size} ids end "
            f"at {vocab_size - 1}",
            hint="the file was made with another tokenizer, or is no file of uint16 tokens",
        )
    return ids
