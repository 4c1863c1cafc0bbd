"""Cropping a torch file: its state dict, its configs, its optimizer; all else stays as it is."""

from __future__ import annotations

from dataclasses import dataclass

from nanogpt_cli.checkpoints.contents import Contents
from nanogpt_cli.checkpoints.envelope import CONFIG_KEYS
from nanogpt_cli.checkpoints.stored_names import WPE, canonical_name
from nanogpt_cli.checkpoints.torch_files.legacy_format import TorchLegacy
from nanogpt_cli.checkpoints.torch_files.records import entries_of, with_all_entries
from nanogpt_cli.checkpoints.torch_files.reread import reread
from nanogpt_cli.checkpoints.torch_files.write import plan_torch, tensors_in
from nanogpt_cli.checkpoints.torch_files.zip_write import ZipPlan
from nanogpt_cli.surgery.cutting import Cutter, set_block_size
from nanogpt_cli.surgery.optimizer import cut_optimizer, is_optimizer
from nanogpt_cli.surgery.report import OPTIMIZER, OTHER, Cut


@dataclass(frozen=True)
class TorchCrop:
    """A torch file to be written.

    Args:
        plan: the file.
        dropped: entries of the source that it lacks.
        notes: what a user should hear.
    """

    plan: ZipPlan
    dropped: tuple[str, ...]
    notes: tuple[str, ...]


def crop_torch(contents: Contents, cutter: Cutter, *, weights_only: bool) -> TorchCrop:
    """Return the plan of a cropped torch file.

    Args:
        contents: the source, one file.
        cutter: cuts its tensors, and keeps account.
        weights_only: leave the optimizer out.

    Raises:
        CheckpointError: which of the optimizer's moments to cut cannot be told.
    """
    notes: list[str] = []
    if contents.format == TorchLegacy.name:
        notes.append("the file is in torch's old format: the output is a zip, as torch writes now")
    root = reread(contents)
    key = cutter.architecture.envelope.key
    if not key:
        return TorchCrop(plan_torch(cutter.cut_state(root)), (), tuple(notes))
    entries = entries_of(root)
    assert entries is not None, "the envelope was opened as a mapping"
    kept: dict[object, object] = {}
    dropped: list[str] = []
    for name, value in entries.items():
        if name == key:
            kept[name] = cutter.cut_state(value)
        elif weights_only and _is_optimizer(value):
            dropped.append(str(name))
            for tensor in tensors_in(value):
                cutter.ledger.drop(OPTIMIZER, tensor)
        else:
            kept[name] = _crop_entry(str(name), value, cutter)
            if _has_another_table(value):
                notes.append(f"{name!r} holds another position table, which is kept as it is")
    return TorchCrop(plan_torch(with_all_entries(root, kept)), tuple(dropped), tuple(notes))


def _crop_entry(name: str, value: object, cutter: Cutter) -> object:
    """Return what becomes of an entry beside the weights."""
    if is_optimizer(value):
        return cut_optimizer(value, cutter, name)
    if isinstance(value, list) and _is_optimizer(value):
        parts = enumerate(value)
        return [_crop_entry(f"{name}[{at}]", part, cutter) for at, part in parts]
    for tensor in tensors_in(value):
        cutter.ledger.note(OTHER, tensor, tensor)
    if name not in CONFIG_KEYS:
        return value
    before = (entries_of(value) or {}).get("block_size")
    changed = set_block_size(value, cutter.block_size)
    if isinstance(before, int) and before != cutter.block_size:
        cutter.cuts.append(Cut(f"{name}.block_size", before, cutter.block_size))
    return changed


def _is_optimizer(value: object) -> bool:
    """Return whether a value is an optimizer's state, or a list with one."""
    return is_optimizer(value) or (isinstance(value, list) and any(map(is_optimizer, value)))


def _has_another_table(value: object) -> bool:
    entries = entries_of(value) or {}
    return any(isinstance(key, str) and canonical_name(key) == WPE for key in entries)
