"""The entries of a mapping in a torch file, whatever object it is, and the object with others.

State dicts, configs and optimizers come as dicts, OrderedDicts, namespaces and instances of
unknown classes; what is changed here is a copy, and is written back as the same kind of object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.plans import Stored
from nanogpt_cli.checkpoints.torch_files.dump import Called
from nanogpt_cli.pickles import Record

PARAMETERS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")


def entries_of(value: object) -> dict[object, object] | None:
    """Return the entries of a dict or the attributes of an object, or None where it has none.

    It may be the object's own dict: it is not to be changed.
    """
    if isinstance(value, dict):
        return value
    if not isinstance(value, Record):
        return None
    if isinstance(value.items, dict):
        return value.items
    if isinstance(value.state, dict):
        return value.state
    if _has_slots(value):
        return {name: entry for part in value.state for name, entry in (part or {}).items()}  # type: ignore[attr-defined]
    if len(value.args) == 1 and isinstance(value.args[0], dict):  # SimpleNamespace(**entries)
        return value.args[0]
    return None


def with_entries(value: object, changed: Mapping[object, object]) -> object:
    """Return a copy of a mapping in which entries that it has are replaced.

    Args:
        value: what `entries_of` knows.
        changed: new entries by key.
    """
    assert entries_of(value) is not None, "only mappings have entries"
    if isinstance(value, dict):
        return _replaced(value, changed)
    assert isinstance(value, Record), "a mapping is a dict or a record"
    if isinstance(value.items, dict):
        return replace(value, items=_replaced(value.items, changed))
    if isinstance(value.state, dict):
        return replace(value, state=_replaced(value.state, changed))
    if _has_slots(value):
        parts = tuple(part and _replaced(part, changed) for part in value.state)  # type: ignore[attr-defined]
        return replace(value, state=parts)
    return replace(value, args=(_replaced(value.args[0], changed),))  # type: ignore[arg-type]


def with_all_entries(value: object, entries: dict[object, object]) -> object:
    """Return a copy of a dict or an OrderedDict with these entries in place of its own."""
    if not isinstance(value, Record):
        return entries
    if isinstance(value.items, dict):
        return replace(value, items=entries)
    return replace(value, state=entries)


def tensor_of(value: object) -> TensorInfo | None:
    """Return the tensor that a value is, be it wrapped as a Parameter, or None."""
    if isinstance(value, Called) and value.class_name in PARAMETERS and value.args:
        value = value.args[0]
    return value if isinstance(value, TensorInfo) else None


def with_tensor(value: object, tensor: Stored) -> object:
    """Return `value`, which `tensor_of` knows, with another tensor in it."""
    return replace(value, args=(tensor, *value.args[1:])) if isinstance(value, Called) else tensor


def _replaced(
    entries: dict[object, object], changed: Mapping[object, object]
) -> dict[object, object]:
    return {key: changed.get(key, entry) for key, entry in entries.items()}


def _has_slots(value: Record) -> bool:
    """Return whether the state is the pair that classes with __slots__ give."""
    return (
        isinstance(value.state, tuple)
        and len(value.state) == 2
        and isinstance(value.state[1], dict)
        and (value.state[0] is None or isinstance(value.state[0], dict))
    )
