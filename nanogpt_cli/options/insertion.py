"""Options that come from a registry, put into a command's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

Command = Callable[..., None]


def insert_options(command: Command, before: str, options: Mapping[str, tuple[Any, Any]]) -> None:
    """Give a command that takes `**others` an option for each of them.

    Args:
        command: its signature is changed in place.
        before: the parameter that they stand before in the help.
        options: by parameter name, the `Annotated` type and the default.
    """
    signature = inspect.signature(command, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    named = [
        parameter.replace(kind=keyword)
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    place = [parameter.name for parameter in named].index(before)
    ordered = [*named[:place], *added, *named[place:]]
    command.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
