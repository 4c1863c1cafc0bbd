"""Which entry of an optimizer's state belongs to the position table, and cutting it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.plans import Stored
from nanogpt_cli.checkpoints.stored_names import WPE, canonical_name
from nanogpt_cli.checkpoints.torch_files.records import (
    entries_of,
    tensor_of,
    with_entries,
    with_tensor,
)
from nanogpt_cli.checkpoints.torch_files.write import tensors_in
from nanogpt_cli.checkpoints.writing.remaking import remake
from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.surgery.cutting import Cutter
from nanogpt_cli.surgery.report import OPTIMIZER, OPTIMIZER_POSITIONS

_LINEAR = ("attn.c_attn.weight", "c_proj.weight", "mlp.c_fc.weight", "lm_head.weight")
"""The ends of the names that nanoGPT of old let decay; embeddings did not."""


def is_optimizer(value: object) -> bool:
    """Return whether a value is what an optimizer's state_dict() returns."""
    entries = entries_of(value)
    return entries is not None and {"state", "param_groups"} <= entries.keys()


def cut_optimizer(value: object, cutter: Cutter, where: str) -> object:
    """Return an optimizer's state with the position table's moments cut like the table.

    Args:
        value: what `is_optimizer` knows.
        cutter: cuts, and keeps account.
        where: the entry's name in the file.

    Raises:
        CheckpointError: what belongs to the table cannot be told.
    """
    entries = entries_of(value)
    assert entries is not None, "an optimizer's state is a mapping"
    state = entries_of(entries["state"]) or {}
    table = cutter.architecture.weights[WPE].info.shape
    key = _find_table(entries["param_groups"], state, cutter, where)
    moments = entries_of(state.get(key)) or {}
    changed: dict[object, object] = {}
    for name, moment in moments.items():
        info = tensor_of(moment)
        if info is not None and info.shape == table:
            cut: Stored = cutter.cut_rows(f"{where}.state[{key}].{name}", info)
            if isinstance(cut, TensorInfo) and not cut.is_contiguous:
                cut = remake(cut)
            changed[name] = with_tensor(moment, cut)
            cutter.ledger.note(OPTIMIZER_POSITIONS, info, cut)
    counted = [tensor_of(moments[name]) for name in changed]
    for tensor in tensors_in(value):
        if not any(tensor is info for info in counted):
            cutter.ledger.note(OPTIMIZER, tensor, tensor)
    if not changed:
        return value
    new_state = with_entries(entries["state"], {key: with_entries(state[key], changed)})
    return with_entries(value, {"state": new_state})


def _find_table(
    groups: object, state: Mapping[object, object], cutter: Cutter, where: str
) -> object:
    """Return the key of the table's entry in `state`, or None where it has none."""
    weights = cutter.architecture.weights
    shapes = {name: weight.info.shape for name, weight in weights.items()}
    if not any(shapes[WPE] in _shapes(entry) for entry in state.values()):
        return None
    for names in _namings(groups, shapes):
        if all(_fits(names.get(key), entry, shapes) for key, entry in state.items()):
            return next((key for key, name in names.items() if name == WPE), None)
    raise CheckpointError(
        f"cannot tell which state in {where!r} belongs to {WPE!r}: "
        "its groups and shapes are in no order that nanoGPT's optimizer has",
        hint="--weights-only leaves the optimizer out",
    )


def _shapes(entry: object) -> list[tuple[int, ...]]:
    """Return the shapes of what an optimizer keeps of one parameter, counters left out."""
    infos = [tensor_of(moment) for moment in (entries_of(entry) or {}).values()]
    return [info.shape for info in infos if info is not None and info.shape not in ((), (1,))]


def _fits(name: str | None, entry: object, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    if name is None or name not in shapes:
        return False
    return all(shape == shapes[name] for shape in _shapes(entry))


def _namings(groups: object, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[object, str]]:
    """Yield what the keys of the state may stand for, the likeliest first."""
    keys, named = _keys(groups)
    if named:
        yield named
    names = list(shapes)
    matrices = [name for name in names if len(shapes[name]) >= 2]
    linear = sorted(name for name in matrices if name.endswith(_LINEAR))
    orders = (
        [matrices, [name for name in names if name not in matrices]],
        [linear, sorted(set(names) - set(linear))],
        [names],
    )
    for order in orders:
        if [len(group) for group in order] == [len(group) for group in keys]:
            pairs = zip(keys, order, strict=True)
            yield {
                key: name
                for group, named_group in pairs
                for key, name in zip(group, named_group, strict=True)
            }


def _keys(groups: object) -> tuple[list[list[object]], dict[object, str]]:
    """Return the keys of each group, and the names that the groups give them, if they do."""
    keys: list[list[object]] = []
    named: dict[object, str] = {}
    for group in groups if isinstance(groups, list) else []:
        entries = entries_of(group) or {}
        params = entries.get("params")
        keys.append(list(params) if isinstance(params, list | tuple) else [])
        names = entries.get("param_names", keys[-1])
        if isinstance(names, list) and len(names) == len(keys[-1]):
            pairs = zip(keys[-1], names, strict=True)
            named |= {key: canonical_name(name) for key, name in pairs if isinstance(name, str)}
    return keys, named
