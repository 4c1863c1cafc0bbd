"""`/set` of `sample -i`: settings by name, checked as those of the command line are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nanogpt_cli.errors import UsageError, did_you_mean, name_some
from nanogpt_cli.sampling import DEFAULTS

if TYPE_CHECKING:
    from nanogpt_cli.generation.settings import SampleSettings

_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


def _flag(text: str) -> bool:
    return {"on": True, "true": True, "off": False, "false": False}[text.lower()]


def _stop(text: str) -> tuple[str, ...]:
    """Return one stop text; quotes keep its blanks, and \\n is a newline."""
    quoted = re.fullmatch(r"(['\"])(.*)\1", text, re.DOTALL)
    inner = quoted[2] if quoted else text
    return (re.sub(r"\\[nt\\]", lambda found: _ESCAPES[found[0]], inner),)


_PLAIN: dict[str, tuple[Callable[[str], object], str]] = {
    "num_samples": (int, "a whole number"),
    "max_new_tokens": (int, "a whole number"),
    "seed": (int, "a whole number"),
    "stop": (_stop, "a text"),
    "ignore_eos": (_flag, "on or off"),
    "special": (_flag, "on or off"),
    "window_stride": (int, "a whole number"),
}
"""The fields of SampleSettings that a line may change, beside the filters."""

NAMES = (*_PLAIN, *DEFAULTS)


def list_settings(settings: SampleSettings) -> Iterator[str]:
    """Give each setting as name and value, in the words that `/set` takes."""
    for name in NAMES:
        yield f"{name} {_shown(_value(settings, name))}"


def change_setting(settings: SampleSettings, words: str) -> SampleSettings:
    """Return the settings with one changed.

    Args:
        words: `temperature 0.5`, `top-k=50`.

    Raises:
        UsageError: no such setting, or a value that it cannot have.
    """
    given, _, text = re.sub(r"^(\S+?)\s*[=\s]\s*", r"\1 ", words).partition(" ")
    name = _find(given)
    if not text:
        raise UsageError(
            f"/set {name} needs a value; it is {_shown(_value(settings, name))}",
            hint=f"/unset {name} gives it back its first one",
        )
    kind, wanted = _PLAIN.get(name) or _filter_kind(name)
    try:
        value = kind(text.strip())
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"{name} {text!r}: it must be {wanted}", f"it is {_shown(_value(settings, name))} now"
        ) from error
    return _with(settings, name, value)


def reset_setting(settings: SampleSettings, start: SampleSettings, words: str) -> SampleSettings:
    """Return the settings with one as it was at the start.

    Raises:
        UsageError: no such setting.
    """
    name = _find(words)
    return _with(settings, name, _value(start, name))


def _find(given: str) -> str:
    name = given.lstrip("-").replace("-", "_")
    if name in NAMES:
        return name
    listed = f"the settings are {', '.join(NAMES)}"
    raise UsageError(f"no such setting {given!r}", hint=did_you_mean(name, NAMES, listed))


def _filter_kind(name: str) -> tuple[Callable[[str], object], str]:
    whole = isinstance(DEFAULTS[name], int)
    return (int, "a whole number") if whole else (float, "a number")


def _value(settings: SampleSettings, name: str) -> object:
    return settings.value_of(name) if name in DEFAULTS else getattr(settings, name)


def _with(settings: SampleSettings, name: str, value: object) -> SampleSettings:
    """Return the settings with one replaced, which checks them all."""
    if name in DEFAULTS:
        filters: dict[str, Any] = {**settings.filters, name: value}
        return replace(settings, filters=filters)
    return replace(settings, **{name: value})  # type: ignore[arg-type]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return name_some(value) if value else "none"
    return str(value)
