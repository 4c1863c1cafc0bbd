"""What a pickle held, in the plain types that torch's weights-only reader takes."""

from __future__ import annotations

from collections.abc import Mapping

from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.torch_files.records import entries_of
from nanogpt_cli.pickles import Global, Record

PLAIN = bool | int | float | str | bytes | TensorInfo


class NotPlainError(Exception):
    """A value that no plain type stands for; the text names its class."""


def plain(value: object) -> object:
    """Return a value in plain types: an object as the dict of its fields, a bare name as text.

    Raises:
        NotPlainError: an object without fields, such as an array or a date.
    """
    if isinstance(value, Record):
        entries = entries_of(value)
        if entries is None:
            raise NotPlainError(value.class_name)
        return plain(entries)
    if isinstance(value, dict):
        return {_plain_key(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, tuple):
        return tuple(plain(entry) for entry in value)
    if isinstance(value, set | frozenset):
        return [plain(entry) for entry in sorted(value, key=repr)]
    if isinstance(value, Global):
        return value.name
    if isinstance(value, bytearray):
        return bytes(value)
    if value is None or isinstance(value, PLAIN):
        return value
    raise NotPlainError(type(value).__name__)


def plain_entries(mapping: Mapping[str, object], left_out: list[str]) -> dict[str, object]:
    """Return the entries that can be made plain; the others are told in `left_out`."""
    kept = {}
    for name, value in mapping.items():
        try:
            kept[name] = plain(value)
        except NotPlainError as error:
            left_out.append(f"the entry {name!r}, which holds a {error}")
    return kept


def _plain_key(key: object) -> object:
    return key if isinstance(key, str | int | float | bool | bytes) else repr(key)
