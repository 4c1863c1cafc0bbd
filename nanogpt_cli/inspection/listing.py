"""The tensors of a checkpoint, one a row, from names and shapes alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

from nanogpt_cli.checkpoints import Checkpoint, TensorInfo
from nanogpt_cli.errors import UsageError, name_some
from nanogpt_cli.inspection.optimizer import OptimizerState, read_optimizer
from nanogpt_cli.inspection.stored import StoredTensor, list_stored

SORTS: dict[str, Callable[[TensorRow], Any] | None] = {
    "file": None,
    "name": lambda row: row.name,
    "size": lambda row: (-row.stored_bytes, row.name),
}


@dataclass(frozen=True)
class TensorRow:
    """A stored tensor.

    Args:
        name: as stored.
        canonical: nanoGPT's name for it, or for the weight whose moment it is; None for others.
        section: "weights", "head", "masks", "adam_m", "adam_v" or "other".
        dtype: torch's name.
        shape: as stored.
        elements: how many.
        stored_bytes: of its elements.
        transposed: whether nanoGPT stores it the other way round.
        shares_with: the tensor before it in the file that has the same bytes, or None.
    """

    name: str
    canonical: str | None
    section: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    stored_bytes: int
    transposed: bool
    shares_with: str | None

    @property
    def is_optimizers(self) -> bool:
        """Whether it is part of an optimizer's state."""
        return self.section in ("adam_m", "adam_v") or self.name.startswith("optim")

    def matches(self, pattern: str) -> bool:
        """Return whether the stored name or nanoGPT's matches a glob."""
        return any(fnmatchcase(name, pattern) for name in (self.name, self.canonical or self.name))


@dataclass(frozen=True)
class TensorsReport:
    """Rows, and what was left out of them.

    Args:
        path: the checkpoint.
        tensors: the rows.
        tensors_in_file: how many there are without filter, the optimizer's included.
        optimizer_tensors_left_out: those of the optimizer that were not asked for.
    """

    path: str
    tensors: tuple[TensorRow, ...]
    tensors_in_file: int
    optimizer_tensors_left_out: int
    schema: ClassVar[str] = "nanogpt.inspect-tensors/1"


@dataclass(frozen=True)
class Selection:
    """Rows that were asked for, each with its place, of all that there are."""

    chosen: tuple[tuple[TensorRow, TensorInfo], ...]
    in_file: int
    optimizer_left_out: int


def list_tensors(
    checkpoint: Checkpoint,
    *,
    pattern: str | None = None,
    sort: str = "file",
    optimizer: bool = False,
) -> TensorsReport:
    """Return the tensors of a checkpoint; arguments and errors as in `select`."""
    selection = select(checkpoint, pattern=pattern, sort=sort, optimizer=optimizer)
    return TensorsReport(
        str(checkpoint.located.path),
        tuple(row for row, _ in selection.chosen),
        selection.in_file,
        selection.optimizer_left_out,
    )


def select(
    checkpoint: Checkpoint,
    *,
    pattern: str | None = None,
    sort: str = "file",
    optimizer: bool = False,
) -> Selection:
    """Return the tensors that are asked for.

    Args:
        checkpoint: opened, its weights unread.
        pattern: a glob that the stored name or nanoGPT's must match, or None.
        sort: one of SORTS; "size" is largest first.
        optimizer: whether to list the optimizer's tensors, too.

    Raises:
        UsageError: no tensor matches the pattern.
    """
    pairs = _rows(checkpoint, list_stored(checkpoint))
    kept = [pair for pair in pairs if optimizer or not pair[0].is_optimizers]
    chosen = [pair for pair in kept if pattern is None or pair[0].matches(pattern)]
    if pattern is not None and not chosen:
        names = name_some(row.name for row, _ in kept)
        raise UsageError(
            f"no tensor's name matches {pattern!r}: the names are {names}",
            hint="quote a pattern such as '*.attn.*'",
        )
    key = SORTS[sort]
    if key is not None:
        chosen.sort(key=lambda pair: key(pair[0]))
    return Selection(tuple(chosen), len(pairs), len(pairs) - len(kept))


def _rows(checkpoint: Checkpoint, stored: list[StoredTensor]) -> list[tuple[TensorRow, TensorInfo]]:
    weights = checkpoint.architecture.weights
    owners = _owner_names(read_optimizer(checkpoint))
    first: dict[tuple[Path, str, int, tuple[int, ...], str], str] = {}
    pairs = []
    for tensor in stored:
        info = tensor.info
        place = (info.path, info.member, info.offset, info.shape, info.dtype)
        weight = weights.get(tensor.canonical)
        twin = first.setdefault(place, tensor.name)
        row = TensorRow(
            name=tensor.name,
            canonical=tensor.canonical or owners.get(tensor.name),
            section=tensor.section,
            dtype=info.dtype,
            shape=info.shape,
            elements=info.numel,
            stored_bytes=info.nbytes,
            transposed=weight is not None and weight.transposed,
            shares_with=None if twin == tensor.name or not info.numel else twin,
        )
        pairs.append((row, info))
    return pairs


def _owner_names(state: OptimizerState | None) -> dict[str, str]:
    """Return the stored name of each entry of the optimizer to its weight's."""
    if state is None:
        return {}
    return {
        f"{state.key}.state.{index}.{field}": owner
        for index, owner in state.owners.items()
        for field in state.entries.get(index, {})
    }
