"""The subcommands, one module each. An addition is its module and a line in COMMANDS."""

from __future__ import annotations

from collections.abc import Callable

COMMANDS: tuple[Callable[..., None], ...] = ()
"""In --help order. A command's name is its function's, its help the docstring."""
