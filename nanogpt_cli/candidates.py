"""What a word on the command line can become: files, checkpoints, names. For shell completion.

A function here takes what was typed so far and gives (word, what it is), the description empty
where there is none. Folders end in a slash. Names are read, never files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from nanogpt_cli.checkpoints.finding.refs import DEMO, STOCK

Candidates = list[tuple[str, str]]

WEIGHTS = (".pt", ".pth", ".safetensors", ".bin")
"""How the files end that are offered as checkpoints; what a file is, is decided by its content."""


def files(incomplete: str) -> Candidates:
    """Return the files and folders that a path can become."""
    return [(path, "") for path in _paths(incomplete)]


def checkpoints(incomplete: str) -> Candidates:
    """Return the folders, the files that may hold weights, and the models known by name."""
    known = {DEMO: "the small model in the package"}
    known |= {name: f"{hub_id} on the hub" for name, hub_id in STOCK.items()}
    found = [path for path in _paths(incomplete) if path.lower().endswith((*WEIGHTS, "/"))]
    return [*_beginning(known, incomplete), *((path, "") for path in found)]


def named(known: Mapping[str, str], *, or_files: bool = False) -> Callable[[str], Candidates]:
    """Return a function that offers `known`, name and description, and files if they will do."""

    def offer(incomplete: str) -> Candidates:
        return _beginning(known, incomplete) + (files(incomplete) if or_files else [])

    return offer


def _beginning(known: Mapping[str, str], incomplete: str) -> Candidates:
    return [(name, text) for name, text in known.items() if name.startswith(incomplete)]


def _paths(incomplete: str) -> Iterable[str]:
    """Return the paths that begin so, in order; those with a leading dot only if it was typed."""
    folder, slash, start = incomplete.rpartition("/")
    try:
        with os.scandir(Path(folder + slash).expanduser()) as entries:
            found = [
                folder + slash + entry.name + ("/" if entry.is_dir() else "")
                for entry in entries
                if entry.name.startswith(start)
                and (start or not entry.name.startswith("."))
                and entry.name.isprintable()
            ]
    except (OSError, ValueError, RuntimeError):  # no such folder, a zero byte, no home
        return []
    return sorted(found)
