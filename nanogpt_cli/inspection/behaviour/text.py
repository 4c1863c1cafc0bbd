"""The text that a model is looked at with, as tokens; light: no model is needed for it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.generation.prompt import FILE_PREFIX, PromptText, encode_prompt
from nanogpt_cli.generation.vocabulary import Vocabulary

TOKEN_FILE_SUFFIX = ".bin"
"""nanoGPT's data/*/val.bin: uint16 token ids, little-endian, and nothing else."""


@dataclass(frozen=True)
class Tokens:
    """A text as ids.

    Args:
        ids: at least one, each of which the model has.
        text: empty where only a start token is fed or a token file was read.
        notes: what a user should hear.
    """

    ids: Sequence[int]
    text: str = ""
    notes: tuple[str, ...] = ()


def read_tokens(prompt: PromptText | Path, vocabulary: Vocabulary) -> Tokens:
    """Return all the tokens of a prompt.

    Args:
        prompt: a text, or a file of uint16 tokens.
        vocabulary: the model's.

    Raises:
        UsageError: characters that the tokenizer lacks, or a token file that is not there.
        NanoGPTError: an id that the model lacks, or a token file that cannot be read.
    """
    V = vocabulary.config.vocab_size
    if isinstance(prompt, Path):
        return Tokens(read_token_file(prompt, V))
    # What is cut is told by `Subject.last_block`, where anything is.
    encoded = encode_prompt(
        prompt,
        vocabulary.tokenizer,
        vocab_size=V,
        block_size=max(len(prompt.text), 1) * 8,
        special=True,
    )
    return Tokens(encoded.ids, encoded.text, encoded.notes)


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
        raise NanoGPTError(
            f"cannot read the token file {shown}: {reason}",
            hint="FILE:x.bin reads uint16 token ids, as nanoGPT's prepare.py writes them",
        ) from error
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
