"""The subcommands, one module each. An addition is its module and a line in COMMANDS."""

from __future__ import annotations

from collections.abc import Callable

from nanogpt_cli.commands.bench import bench
from nanogpt_cli.commands.convert import convert
from nanogpt_cli.commands.crop import crop
from nanogpt_cli.commands.doctor import doctor
from nanogpt_cli.commands.inspect import inspect
from nanogpt_cli.commands.params import params
from nanogpt_cli.commands.sample import sample

COMMANDS: tuple[Callable[..., None], ...] = (
    sample,
    params,
    crop,
    convert,
    inspect,
    bench,
    doctor,
)
"""In --help order. A command's name is its function's, its help the docstring."""
