"""The receipt of a crop: what was cut, and every byte before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from nanogpt_cli.checkpoints.plans import Stored
from nanogpt_cli.checkpoints.torch_files.write import plan_storages

POSITIONS = "position table"
WEIGHTS = "other weights"
SECOND_HEAD = "second copy of the head"
MASKS = "causal masks"
OPTIMIZER_POSITIONS = "optimizer, position table"
OPTIMIZER = "optimizer, the rest"
OTHER = "other tensors"
ENVELOPE = "everything but tensors"

PARTS = (
    *(POSITIONS, WEIGHTS, SECOND_HEAD, MASKS),
    *(OPTIMIZER_POSITIONS, OPTIMIZER, OTHER, ENVELOPE),
)
"""The parts of a checkpoint, in the receipt's order."""


@dataclass(frozen=True)
class PartBytes:
    """One line of the receipt."""

    name: str
    before_bytes: int
    after_bytes: int


@dataclass(frozen=True)
class Cut:
    """A tensor that lost rows, or a setting that changed.

    Args:
        name: as the output has it.
        before: shape, or value.
        after: the same, cut.
    """

    name: str
    before: tuple[int, ...] | int
    after: tuple[int, ...] | int


@dataclass(frozen=True)
class Cast:
    """What a change of number format cost.

    Args:
        dtype: of every weight in the output.
        changed: how many weights have another value than before; None in a dry run.
        vanished: how many of those became zero.
        largest_difference: the largest absolute change of a weight.
        largest_in: the weight's tensor, "" where nothing changed.
    """

    dtype: str
    changed: int | None = None
    vanished: int | None = None
    largest_difference: float | None = None
    largest_in: str = ""


@dataclass(frozen=True)
class Verification:
    """How the written model's logits compare with the source's, over the kept positions.

    Args:
        positions: how many there are.
        largest_difference: absolute; 0 unless the number format changed.
        top_1_agreement: share of positions with the same likeliest token.
    """

    positions: int
    largest_difference: float
    top_1_agreement: float


@dataclass(frozen=True)
class CropReport:
    """What a crop did, or in a dry run would do.

    Args:
        input: the file or folder that was read.
        output: the one that was written.
        container: the input's format, for people.
        parts: bytes of the files that hold weights, part by part.
        before_bytes: of those files in all, which is the sum of the parts.
        after_bytes: the same in the output.
        cuts: what was cut.
        dropped: entries that `weights_only` left out.
        cast: None where number formats were kept.
        verification: None where it was not asked for, or not written.
        is_copy: nothing was to be done, and the output is a copy of the input.
        dry_run: nothing was written.
        notes: what a user should hear.
    """

    schema: ClassVar[str] = "nanogpt.crop/1"

    input: str
    output: str
    container: str
    block_size_before: int
    block_size_after: int
    parts: tuple[PartBytes, ...]
    before_bytes: int
    after_bytes: int
    cuts: tuple[Cut, ...]
    dropped: tuple[str, ...]
    weights_only: bool
    cast: Cast | None
    verification: Verification | None
    is_copy: bool
    dry_run: bool
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        assert self.before_bytes == sum(part.before_bytes for part in self.parts), "parts add up"
        assert self.after_bytes == sum(part.after_bytes for part in self.parts), "parts add up"


@dataclass(frozen=True)
class Ledger:
    """Tensors by part, as they were and as they will be."""

    before: list[tuple[str, Stored]]
    after: list[tuple[str, Stored]]

    def note(self, part: str, before: Stored, after: Stored) -> None:
        """Enter a tensor, and what becomes of it."""
        self.before.append((part, before))
        self.after.append((part, after))

    def drop(self, part: str, before: Stored) -> None:
        """Enter a tensor that the output lacks."""
        self.before.append((part, before))

    def receipt(self, before_bytes: int, after_bytes: int) -> tuple[PartBytes, ...]:
        """Return the parts of files of these sizes; shared bytes count where they occur first."""
        before, after = _sizes(self.before, before_bytes), _sizes(self.after, after_bytes)
        return tuple(
            PartBytes(name, before.get(name, 0), after.get(name, 0))
            for name in PARTS
            if before.get(name) or after.get(name)
        )


def _sizes(entries: Sequence[tuple[str, Stored]], total_bytes: int) -> dict[str, int]:
    storages = plan_storages([tensor for _, tensor in entries])
    counted: set[int] = set()
    sizes: dict[str, int] = {}
    for part, tensor in entries:
        storage = storages.of[id(tensor)]
        if id(storage) not in counted:
            counted.add(id(storage))
            sizes[part] = sizes.get(part, 0) + storage.nbytes
    return sizes | {ENVELOPE: total_bytes - sum(sizes.values())}
