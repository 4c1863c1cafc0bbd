"""The errors a user can meet. What is not one of these is a bug and shows a traceback."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class NanoGPTError(Exception):
    """A failure that is told as `error: message` and `hint: hint`, without a traceback.

    Args:
        message: what was found, then the limit; lower case, no full stop.
        hint: what to type instead, or None.
        exit_code: 1 could not do it, 2 wrong usage, 3 did it and the answer is no.
    """

    exit_code = 1

    def __init__(
        self, message: str, hint: str | None = None, *, exit_code: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code


class UsageError(NanoGPTError):
    """A flag or an argument that cannot be meant."""

    exit_code = 2


class ConfigError(NanoGPTError):
    """A model configuration that no GPT can have."""


class CheckpointError(NanoGPTError):
    """A file that is no checkpoint, is damaged, or holds another architecture."""


class TokenizerError(NanoGPTError):
    """A token table that is missing, damaged, or does not fit the model."""


def name_some(names: Iterable[object], limit: int = 5) -> str:
    """Return at most `limit` names, repr'd and comma-separated, then the count of the rest."""
    listed = list(names)
    shown = ", ".join(repr(name) for name in listed[:limit])
    rest = len(listed) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number and its noun: `1 head`, `1,024 heads`.

    Args:
        number: how many.
        noun: of one.
        plural: of any other number, where it is not the noun with an s.
    """
    return f"1 {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name that a mistyped word is likeliest to mean, or None.

    Case, and hyphens for underscores, make no difference.

    Args:
        word: what was typed.
        known: what could have been.
        cutoff: how alike they must be, 0 to 1.
    """
    by_spelling = {_spelling(name): name for name in known}
    close = get_close_matches(_spelling(word), by_spelling, n=1, cutoff=cutoff)
    return by_spelling[close[0]] if close else None


def _spelling(word: str) -> str:
    return word.lower().replace("_", "-")


def did_you_mean(word: str, known: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """Return the hint for a mistyped word: the nearest name, or else `otherwise`."""
    close = nearest(word, known, cutoff)
    return otherwise if close is None else f"did you mean {close}?"
