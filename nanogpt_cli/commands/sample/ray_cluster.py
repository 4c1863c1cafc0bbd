"""The cluster of `--engine ray`: the one that RAY_ADDRESS names, or one of our own, kept quiet."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nanogpt_cli import output
from nanogpt_cli.commands.sample.ray_plan import INSTALL
from nanogpt_cli.errors import NanoGPTError

if TYPE_CHECKING:
    from nanogpt_cli.generation.parts.layout import Machine

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_LOG_LEVEL": "WARNING",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}
"""What Ray reads as it starts, where the user has set nothing: it tells nobody, and says little."""


@contextlib.contextmanager
def open_cluster() -> Iterator[list[Machine]]:
    """Give the machines of a cluster for the block; nothing that Ray says goes to stdout.

    Raises:
        NanoGPTError: Ray is not whole, or no cluster is where RAY_ADDRESS says.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        from nanogpt_cli.generation.parts import cluster
    except ImportError as error:
        raise NanoGPTError(f"Ray Data cannot be used: {error}", hint=INSTALL) from error
    address = os.environ.get("RAY_ADDRESS") or None
    with contextlib.redirect_stdout(_Aside()), cluster.connect(address) as machines:
        yield machines


class _Aside(io.TextIOBase):
    """Takes what Ray prints of lost workers, and says it on stderr, without colours."""

    def write(self, text: str) -> int:
        for line in text.splitlines():
            plain = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
            if plain:
                output.say(f"ray: {plain}")
        return len(text)
