"""The subcommands, one module each. An addition is its module and a line in COMMANDS."""

from __future__ import annotations

from collections.abc import Callable

from nanogpt_cli.commands.params import params

COMMANDS: tuple[Callable[..., None], ...] = (params,)
"""In --help order. A command's name is its function's, its help the docstring."""
