"""Finding the table of tokens among the plain values of a file.

nanoGPT calls its tables `stoi` and `itos`. Others call them what they like, so without those
names tables are known by their shape, and two of them by being each other's inverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import TypeAlias, TypeGuard

from nanogpt_cli.errors import TokenizerError, name_some
from nanogpt_cli.tokenizers.ranks import MOST_IDS

ToId: TypeAlias = Mapping[str, int]
ToToken: TypeAlias = Mapping[int, str]


def find_table(
    value: Mapping[object, object] | list[object] | tuple[object, ...],
) -> dict[int, str]:
    """Return id to token; empty where `value` holds no table.

    Raises:
        TokenizerError: ids that cannot be meant, or tables that contradict each other.
    """
    named: dict[object, object] = {"the table": value}
    if not _is_bare_table(value):
        named = dict(value) if isinstance(value, Mapping) else dict(enumerate(value))
    if named.get("stoi") or named.get("itos"):
        return _merge(_expect_to_id(named.get("stoi")), _expect_to_token(named.get("itos")))
    return _find_by_shape(named)


def _find_by_shape(named: Mapping[object, object]) -> dict[int, str]:
    to_ids = {key: item for key, item in named.items() if _is_to_id(item)}
    to_tokens = {
        key: table for key, item in named.items() if (table := _as_to_token(item)) is not None
    }
    for one, other in product(to_ids.values(), to_tokens.values()):
        if _invert(one) == other:
            return _merge(one, other)
    if len(to_ids) > 1 or len(to_tokens) > 1:
        names = name_some([*to_ids, *to_tokens])
        raise TokenizerError(f"no two of its tables {names} belong together")
    return _merge(next(iter(to_ids.values()), None), next(iter(to_tokens.values()), None))


def _is_bare_table(value: object) -> bool:
    """Return whether the whole value is one table: counts beside tables are none."""
    if _is_to_id(value):
        return len(value) > 1 and sorted(value.values()) == list(range(len(value)))
    return _as_to_token(value) is not None


def _is_to_id(value: object) -> TypeGuard[ToId]:
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(key, str) and isinstance(item, int) for key, item in value.items())
    )


def _as_to_token(value: object) -> ToToken | None:
    """Return `value` as id to token if that is its shape: a dict, or a list in order of ids."""
    table = dict(enumerate(value)) if isinstance(value, list | tuple) else value
    if (
        isinstance(table, Mapping)
        and table
        and all(isinstance(key, int) and isinstance(item, str) for key, item in table.items())
    ):
        return table
    return None


def _expect_to_id(value: object) -> ToId | None:
    if not value:
        return None
    if not _is_to_id(value):
        raise TokenizerError("its stoi is no dict of strings to integers")
    return value


def _expect_to_token(value: object) -> ToToken | None:
    if not value:
        return None
    table = _as_to_token(value)
    if table is None:
        raise TokenizerError("its itos is no list of strings and no dict of integers to strings")
    return table


def _merge(to_id: ToId | None, to_token: ToToken | None) -> dict[int, str]:
    """Return id to token from one table, or from two that say the same."""
    for token, number in (to_id or {}).items():
        _check_id(number, token)
    for number, token in (to_token or {}).items():
        _check_id(number, token)
    tokens = dict(to_token) if to_token is not None else _invert(to_id or {})
    expected = to_id if to_id is not None else {token: number for number, token in tokens.items()}
    if len(expected) != len(tokens):
        raise TokenizerError(
            f"its tables do not agree: {len(expected)} different tokens have {len(tokens)} ids"
        )
    for token, number in expected.items():
        if tokens.get(number) != token:
            raise TokenizerError(
                f"its tables do not agree: {token!r} has id {number}, and id {number} is "
                + (repr(tokens[number]) if number in tokens else "missing")
            )
    return tokens


def _check_id(number: int, token: str) -> None:
    if isinstance(number, bool) or not 0 <= number < MOST_IDS:
        raise TokenizerError(
            f"the id of {token!r} is {number!r}: ids are integers from 0 to {MOST_IDS - 1}"
        )


def _invert(to_id: ToId) -> dict[int, str]:
    return {number: token for token, number in to_id.items()}
