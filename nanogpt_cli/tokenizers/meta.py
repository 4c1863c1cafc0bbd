"""What a `meta.pkl` says: a table of tokens, another tokenizer's name, or neither.

The file is a stranger's pickle. It is read as data, whatever it asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli import pickles
from nanogpt_cli.errors import NanoGPTError, TokenizerError
from nanogpt_cli.tokenizers.files import read_bytes
from nanogpt_cli.tokenizers.tables import find_table

_GPT2_NAMES = frozenset({"gpt2", "gpt-2", "gpt2-bpe", "tiktoken", "tiktoken-gpt2", "r50k_base"})

_NAME_KEYS = ("tokenizer", "tokenizer_name", "tokenizer_type", "encoding", "encoding_name")

_HINT = "give another table with --meta, or --tokenizer gpt2, or --tokenizer ids for bare token ids"


@dataclass(frozen=True)
class Meta:
    """A `meta.pkl`, understood.

    Args:
        tokens: id to token; empty where the file has no table.
        is_gpt2: whether it names GPT-2's encoding instead of a table.
    """

    tokens: dict[int, str]
    is_gpt2: bool = False


def read_meta(path: Path) -> Meta:
    """Read a `meta.pkl` without executing anything.

    Raises:
        TokenizerError: it is no pickle of plain values, or its tables cannot be meant.
    """
    data = read_bytes(path)
    if not data:
        raise TokenizerError(f"{path} is empty: it must be a pickled table of tokens", _HINT)
    try:
        return _understand(pickles.load(data, name=path.name).value)
    except NanoGPTError as error:
        message = "it is text, and no pickle" if data.isascii() and b"\0" not in data else ""
        raise TokenizerError(f"{path}: {message or error.message}", _HINT) from error


def _understand(value: object) -> Meta:
    if not isinstance(value, dict | list | tuple):
        raise TokenizerError(f"it holds {_describe(value)}: it must be a dict of tables")
    tokens = find_table(value)
    if tokens or not isinstance(value, dict):
        return Meta(tokens)
    return Meta({}, is_gpt2=_names_gpt2(value))


def _names_gpt2(named: Mapping[object, object]) -> bool:
    for key in _NAME_KEYS:
        value = named.get(key)
        if value is None:
            continue
        if not isinstance(value, str):
            raise TokenizerError(f"its {key} is {_describe(value)}: it must be a name")
        if value.lower() not in _GPT2_NAMES:
            raise TokenizerError(f"it has no table and names {value!r}: only gpt2 is known by name")
        return True
    return False


def _describe(value: object) -> str:
    if isinstance(value, pickles.Record):
        return f"an object of class {value.class_name}"
    return f"a {type(value).__name__}"
