"""Cutting a state dict: the position table, the masks, nothing else; and casting it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nanogpt_cli.checkpoints.architecture import Architecture
from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.plans import Stored
from nanogpt_cli.checkpoints.stored_names import HEAD, WPE, WTE, canonical_name, strip_prefixes
from nanogpt_cli.checkpoints.torch_files.records import (
    entries_of,
    tensor_of,
    with_all_entries,
    with_entries,
    with_tensor,
)
from nanogpt_cli.checkpoints.writing.remaking import CastLoss, remake
from nanogpt_cli.pickles import Record
from nanogpt_cli.surgery.report import MASKS, OTHER, POSITIONS, SECOND_HEAD, WEIGHTS, Cut, Ledger


@dataclass
class Cutter:
    """Cuts one model's tensors and keeps account of it.

    Args:
        architecture: the model as it is.
        block_size: how many positions to keep.
        dtype: what its weights become, None for what they are.
        keeps_tied_head: whether the format can name one matrix twice.
    """

    architecture: Architecture
    block_size: int
    dtype: str | None = None
    keeps_tied_head: bool = True
    loss: CastLoss = field(default_factory=CastLoss)
    cuts: list[Cut] = field(default_factory=list)
    ledger: Ledger = field(default_factory=lambda: Ledger([], []))
    _made: dict[str, Stored] = field(default_factory=dict)

    def cut_state(self, state: object) -> object:
        """Return a state dict, of whatever class, cut, its prefixes gone."""
        entries = entries_of(state)
        assert entries is not None, "a state dict is a mapping"
        kept = with_all_entries(state, self.cut_entries(entries))
        return _without_prefixes_in_metadata(kept)

    def cut_entries(self, entries: Mapping[object, object]) -> dict[object, object]:
        """Return the entries of a state dict, cut, under names without prefixes."""
        tensors = {key: tensor_of(value) for key, value in entries.items()}
        for key, info in tensors.items():  # the head may come before the embedding that it is
            if info is not None and canonical_name(str(key)) == WTE:
                self._made[WTE] = self._cast(WTE, info)
        kept: dict[object, object] = {}
        for key, value in entries.items():
            info = tensors[key]
            if info is None:
                kept[key] = value
                continue
            tensor = self._cut(str(key), info)
            if tensor is not None:
                kept[strip_prefixes(str(key))] = with_tensor(value, tensor)
        return kept

    def kept_names(self, files: Mapping[str, object]) -> dict[str, object]:
        """Return an index of stored names as the output has them."""
        return {
            strip_prefixes(key): file
            for key, file in files.items()
            if not self._is_left_out(canonical_name(key))
        }

    def _is_left_out(self, name: str) -> bool:
        is_tied_head = name == HEAD and self.architecture.config.tied_head
        return is_tied_head and not self.keeps_tied_head

    def _cut(self, key: str, info: TensorInfo) -> Stored | None:
        """Return what becomes of one tensor of the state dict; None is nothing."""
        name, part = canonical_name(key), WEIGHTS
        tensor: Stored
        if name == WPE:
            part, tensor = POSITIONS, self._cast(WPE, self.cut_rows(strip_prefixes(key), info))
        elif key in self.architecture.masks:
            part, tensor = MASKS, self._cut_mask(strip_prefixes(key), info)
        elif name == WTE:
            tensor = self._made[WTE]
        elif self._is_left_out(name):
            self.ledger.drop(SECOND_HEAD, info)
            return None
        elif name == HEAD and self.architecture.config.tied_head:
            part, tensor = SECOND_HEAD, self._made[WTE]
        elif name in self.architecture.weights:
            tensor = self._cast(name, info)
        else:
            part, tensor = OTHER, info
        self.ledger.note(part, info, tensor)
        return tensor

    def cut_rows(self, name: str, info: TensorInfo) -> TensorInfo:
        """Return the first rows of the position table, or of a tensor that belongs to it."""
        if info.shape[0] <= self.block_size:
            return info
        shape = (self.block_size, *info.shape[1:])
        self.cuts.append(Cut(name, info.shape, shape))
        return replace(info, shape=shape)

    def _cut_mask(self, name: str, info: TensorInfo) -> Stored:
        """Return the upper left corner of a mask; a mask without axes is a number."""
        N = self.block_size
        if len(info.shape) != 4 or max(info.shape[2:]) <= N:
            return info
        made = remake(info, lambda mask: mask[:, :, :N, :N])
        self.cuts.append(Cut(name, info.shape, made.shape))
        return made

    def _cast(self, name: str, info: TensorInfo) -> Stored:
        """Return a weight in the wanted type, without gaps where those would hold cut rows."""
        is_cut = name == WPE and info.shape != self.architecture.weights[WPE].info.shape
        if self.dtype in (None, info.dtype) and (info.is_contiguous or not is_cut):
            return info
        return remake(info, dtype=self.dtype, name=name, loss=self.loss)


def set_block_size(value: object, block_size: int) -> object:
    """Return a config of whatever class with its block_size changed, if it has one."""
    entries = entries_of(value)
    if entries is None or entries.get("block_size") is None:
        return value
    return with_entries(value, {"block_size": block_size})


def _without_prefixes_in_metadata(state: object) -> object:
    """Return a state dict whose `_metadata`, versions by module, names modules as its keys do."""
    attributes = state.state if isinstance(state, Record) else None
    metadata = attributes.get("_metadata") if isinstance(attributes, dict) else None
    versions = entries_of(metadata)
    if versions is None or not isinstance(state, Record) or not isinstance(attributes, dict):
        return state
    cleaned: dict[object, object] = {
        strip_prefixes(f"{name}.").removesuffix("."): version for name, version in versions.items()
    }
    renamed = with_all_entries(metadata, cleaned)
    return replace(state, state={**attributes, "_metadata": renamed})
