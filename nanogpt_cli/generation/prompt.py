"""What a model is given to continue: from where it is read, and as which ids."""

from __future__ import annotations

import codecs
import io
import os
import select
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.tokenizers.base import Tokenizer, replace_surrogates, start_id

DEFAULT_PROMPT = "\n"
FILE_PREFIX = "FILE:"
STDIN = "-"
PIPE_PATIENCE_SECONDS = 2.0
WIDE_ENCODINGS = {
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
"""Byte-order marks, in the order to look for them: UTF-32's little one begins with UTF-16's."""
SPACE = b" "
"""A token of BPE tables (GPT-2's 220) that text seldom holds: a space begins the next word's."""


@dataclass(frozen=True)
class PromptText:
    """A prompt as text.

    Args:
        text: what the user gave, decoded.
        given: whether anyone gave it; the default newline is not given.
        notes: what a user should hear.
    """

    text: str
    given: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prompt:
    """A prompt as ids.

    Args:
        text: what is echoed; empty where only a start token is fed.
        ids: at least one.
        notes: what a user should hear.
    """

    text: str
    ids: tuple[int, ...]
    notes: tuple[str, ...] = ()


def read_prompt(spec: str | None, stdin: BinaryIO | None) -> PromptText:
    """Return the prompt that `--prompt` means.

    Args:
        spec: text; `FILE:path`; `-` for stdin; None for stdin where it is a pipe or a file with
            something in it, else a newline.
        stdin: standard input as bytes, or None where there is none.

    Raises:
        UsageError: a file that is not there.
        NanoGPTError: a file that cannot be read.
    """
    if spec is None:
        return _read_piped(stdin)
    if spec == STDIN:
        return _read_stdin(stdin)
    if spec.startswith(FILE_PREFIX):
        return _read_file(Path(spec.removeprefix(FILE_PREFIX)))
    text, count = replace_surrogates(_recover(spec))
    notes = ("the prompt holds bytes that are no text: each became U+FFFD",) if count else ()
    return PromptText(text, notes=notes)


def at_hand(spec: str | None) -> bool:
    """Return whether the prompt is there already: whoever writes to a pipe may need some time."""
    return spec not in (None, STDIN)


def _recover(argument: str) -> str:
    """Return an argument as the UTF-8 that was typed, whatever the locale took it for."""
    try:
        return os.fsencode(argument).decode("utf-8", errors="surrogateescape")
    except UnicodeError:
        return argument


def _read_stdin(stdin: BinaryIO | None) -> PromptText:
    """Read standard input to its end, as `-` asks for; one that is closed is empty.

    Raises:
        NanoGPTError: it is there and cannot be read.
    """
    try:
        return _decode(stdin.read() if stdin is not None else b"", "standard input")
    except OSError as error:
        raise NanoGPTError(
            f"cannot read standard input: {error.strerror}", hint="give the text: --prompt TEXT"
        ) from error


def _read_piped(stdin: BinaryIO | None) -> PromptText:
    default = PromptText(DEFAULT_PROMPT, given=False)
    try:
        descriptor = stdin.fileno() if stdin is not None else -1
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError, io.UnsupportedOperation):
        return default
    assert stdin is not None, "a descriptor was had from it"
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        ready, _, _ = select.select([descriptor], [], [], PIPE_PATIENCE_SECONDS)
        if not ready:
            note = "standard input is a pipe that sent nothing: starting from a newline"
            return PromptText(DEFAULT_PROMPT, given=False, notes=(f"{note}; --prompt - waits",))
    elif not stat.S_ISREG(mode):
        return default
    try:
        data = stdin.read()
    except OSError:  # open for writing alone
        return default
    return _decode(data, "standard input") if data else default


def _read_file(path: Path) -> PromptText:
    try:
        return _decode(path.read_bytes(), repr(str(path)))
    except FileNotFoundError as error:
        raise UsageError(
            f"no prompt file at {str(path.absolute())!r}",
            hint="FILE:path reads a prompt from a file; --prompt TEXT takes the text itself",
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NanoGPTError(
            f"cannot read the prompt file {str(path)!r}: {reason}",
            hint="FILE:path reads a prompt from a file; --prompt TEXT takes the text itself",
        ) from error


def _decode(data: bytes, source: str) -> PromptText:
    """Decode UTF-8, or UTF-16 or -32 that says so; the mark that does is no part of the prompt."""
    for encoding, marks in WIDE_ENCODINGS.items():
        if data.startswith(marks):
            return PromptText(data.decode(encoding, errors="replace"))
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return PromptText(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        note = f"{source} is not UTF-8 at byte {error.start}: such bytes became U+FFFD"
        return PromptText(data.decode("utf-8", errors="replace"), notes=(note,))


def encode_prompt(
    prompt: PromptText, tokenizer: Tokenizer, *, vocab_size: int, block_size: int, special: bool
) -> Prompt:
    """Return the ids of a prompt, each of which the model has.

    Args:
        prompt: the text.
        tokenizer: of the model.
        vocab_size: ids that the model has.
        block_size: only for the note on what is cut.
        special: whether `<|endoftext|>` in the text is the token.

    Raises:
        UsageError: characters that the tokenizer lacks.
        NanoGPTError: an id that the model lacks.
    """
    text, notes = prompt.text, list(prompt.notes)
    if not prompt.given and not can_spell(tokenizer, text):
        text = ""
        notes.append("the vocabulary has no newline to start from: starting from its first token")
    ids = tokenizer.encode(text, special=special) if text else []
    if not ids:
        return Prompt("", (start_id(tokenizer),), tuple(notes))
    for token in ids:
        if not 0 <= token < vocab_size:
            raise NanoGPTError(
                f"the prompt holds id {token} ({_spelled(tokenizer, token)}), "
                f"and the model's {vocab_size} ids end at {vocab_size - 1}",
                hint="the tokenizer is not the model's: see --tokenizer",
            )
    if tokenizer.is_bpe and tokenizer.token_bytes(ids[-1]) == SPACE:
        notes.append(
            "the prompt ends in a space, which these models seldom saw: text goes better without it"
        )
    if len(ids) > block_size:
        notes.append(
            f"the prompt has {len(ids)} tokens and the model sees the last {block_size} of them"
        )
    return Prompt(text, tuple(ids), tuple(notes))


def can_spell(tokenizer: Tokenizer, text: str) -> bool:
    """Return whether the tokenizer has ids for a text."""
    try:
        return bool(tokenizer.encode(text))
    except UsageError:
        return False


def _spelled(tokenizer: Tokenizer, token: int) -> str:
    try:
        return repr(tokenizer.token_bytes(token).decode("utf-8", errors="backslashreplace"))
    except NanoGPTError:
        return "no text"
