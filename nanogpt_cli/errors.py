"""The errors a user can meet. What is not one of these is a bug and shows a traceback."""

from __future__ import annotations

from collections.abc import Iterable


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
