"""What a folder of parts says of itself: `manifest.json`, the same whatever made the parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.batch.written import START_AGAIN, differences

MANIFEST = "manifest.json"

MUST_AGREE = ("num_samples", "seed", "dtype", "alternatives")
"""Beside the settings, what a run must have in common with the one that it goes on with."""


@dataclass(frozen=True)
class PartEntry:
    """A finished part.

    Args:
        name: its file.
        first_row: the number of its first prompt.
        prompts: how many prompts.
        rows: lines of the file, errors among them.
        failed: of these, errors.
        new_tokens: in all of them.
        bytes: size of the file.
        sha256: of the file.
    """

    name: str
    first_row: int
    prompts: int
    rows: int
    failed: int
    new_tokens: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A folder of parts.

    Args:
        complete: whether all parts are there; else the run is under way, or was ended.
        rows_per_part: prompts of a part.
        num_samples: of every prompt.
        seed: of rows without their own.
        dtype: as rows have it.
        alternatives: scored beside each token, or None for no scores.
        step: what computes, or None where that is not known before it is done.
        settings: as rows have them, digest included.
        prompts: how many there are.
        rows: lines of all parts.
        failed: of these, errors.
        new_tokens: in all of them.
        bytes: of all parts.
        parts: in the order of rows; empty before all are there.
    """

    schema: ClassVar[str] = "nanogpt.parts/1"

    complete: bool
    rows_per_part: int
    num_samples: int
    seed: int
    dtype: str
    alternatives: int | None
    step: str | None
    settings: Mapping[str, object]
    prompts: int
    rows: int = 0
    failed: int = 0
    new_tokens: int = 0
    bytes: int = 0
    parts: tuple[PartEntry, ...] = ()

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps({"schema": self.schema, **asdict(self)}, indent=1) + "\n"

    def check(self, now: Manifest, place: str) -> None:
        """Refuse to go on with this folder by another run.

        Raises:
            UsageError: settings that would give other rows.
        """
        changes = differences(self.settings, now.settings)
        if not changes:
            changes = differences(
                *({key: vars(it)[key] for key in MUST_AGREE} for it in (self, now))
            )
        if not changes and None not in (self.step, now.step):
            changes = differences({"step": self.step}, {"step": now.step})
        if not changes and self.settings["digest"] != now.settings["digest"]:
            changes = "the weights or the tokenizer are not the same"
        if changes:
            raise UsageError(f"{place!r} was made with other settings: {changes}", hint=START_AGAIN)


def read_manifest(data: bytes, place: str) -> Manifest:
    """Return the manifest that a file holds.

    Raises:
        UsageError: it is none.
    """
    try:
        values: Any = json.loads(data)
        is_ours = values.pop("schema") == Manifest.schema
        known = {field.name for field in fields(Manifest)}
        entries = tuple(PartEntry(**entry) for entry in values.pop("parts"))
        found = Manifest(**{key: values[key] for key in values if key in known}, parts=entries)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_ours = False
    if not is_ours or type(found.rows_per_part) is not int or found.rows_per_part < 1:
        raise UsageError(
            f"{place!r} is no manifest of a batch: there is nothing to resume",
            hint="give another --output, or --force to replace the parts",
        )
    return found
