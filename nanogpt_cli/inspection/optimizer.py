"""The optimizer's state in a training checkpoint: which moments belong to which weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nanogpt_cli.checkpoints import Architecture, Checkpoint, TensorInfo
from nanogpt_cli.checkpoints.raw import read_scalar
from nanogpt_cli.checkpoints.stored_names import WPE, WTE

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class OptimizerState:
    """What an optimizer's state_dict holds.

    Args:
        key: the entry of the file that it is.
        indices: of the parameters, in the order of its groups.
        entries: index to what is kept for that parameter.
        owners: index to the name of the weight; empty where the counts disagree.
        order: whose order of parameters that is; "" where none fits every shape.
        learning_rates: one a group.
    """

    key: str
    indices: tuple[int, ...]
    entries: Mapping[int, Mapping[str, object]]
    owners: Mapping[int, str]
    order: str
    learning_rates: tuple[float | None, ...]

    def moment(self, index: int, name: str) -> TensorInfo | None:
        """Return one of MOMENTS of a parameter, where it is a tensor."""
        value = self.entries.get(index, {}).get(name)
        return value if isinstance(value, TensorInfo) else None

    def steps(self) -> dict[int, int]:
        """Return index to the steps taken, where the state says it."""
        found = {index: _number(entry.get("step")) for index, entry in self.entries.items()}
        return {index: int(step) for index, step in found.items() if step is not None}

    def find(self, name: str, moment: str) -> TensorInfo | None:
        """Return a weight's moment, or None."""
        owned = (index for index, owner in self.owners.items() if owner == name)
        return next((self.moment(index, moment) for index in owned), None)


def read_optimizer(checkpoint: Checkpoint) -> OptimizerState | None:
    """Return the optimizer's state, or None where the file holds none that can be made out."""
    root = checkpoint.contents.root
    if not isinstance(root, Mapping):
        return None
    for key, value in root.items():
        if isinstance(value, Mapping) and {"state", "param_groups"} <= value.keys():
            state, groups = value["state"], value["param_groups"]
            if isinstance(state, Mapping) and isinstance(groups, list):
                return _read(checkpoint.architecture, str(key), state, groups)
    return None


def _read(
    architecture: Architecture, key: str, state: Mapping[object, object], groups: list[object]
) -> OptimizerState:
    known = [group for group in groups if isinstance(group, Mapping)]
    indices = tuple(index for group in known for index in _indices(group.get("params")))
    entries = {
        index: entry
        for index, entry in state.items()
        if isinstance(index, int) and isinstance(entry, Mapping)
    }
    owners, order = _match(architecture, indices, entries)
    rates = tuple(_number(group.get("lr")) for group in known)
    return OptimizerState(key, indices, entries, owners, order, rates)


def _indices(params: object) -> Iterable[int]:
    return (each for each in params if isinstance(each, int)) if isinstance(params, list) else ()


def _match(
    architecture: Architecture,
    indices: Sequence[int],
    entries: Mapping[int, Mapping[str, object]],
) -> tuple[dict[int, str], str]:
    """Return index to weight, in the first known order in which every moment's shape fits."""
    orders = _orders(architecture)
    shapes = {name: weight.info.shape for name, weight in architecture.weights.items()}
    for order, names in orders.items():
        if len(names) != len(indices):
            continue
        owners = dict(zip(indices, names, strict=True))
        if all(_fits(entries.get(index), shapes[name]) for index, name in owners.items()):
            return owners, order
    names = orders["train.py"]
    same_count = len(names) == len(indices)
    return (dict(zip(indices, names, strict=True)) if same_count else {}), ""


def _fits(entry: Mapping[str, object] | None, shape: tuple[int, ...]) -> bool:
    moments = (entry.get(name) for name in MOMENTS) if entry else ()
    return all(each.shape == shape for each in moments if isinstance(each, TensorInfo))


def _orders(architecture: Architecture) -> dict[str, list[str]]:
    """Return the orders in which trainers hand a GPT's parameters to AdamW.

    Source: configure_optimizers of nanoGPT's model.py, today's and that of its first months, in
    which decayed and other parameters were sorted by name and embeddings did not decay.
    """
    names = list(architecture.weights)
    axes = {name: len(architecture.weights[name].shape) for name in names}
    linear = [name for name in names if axes[name] >= 2 and name not in (WTE, WPE)]
    return {
        "train.py": sorted(names, key=lambda name: axes[name] < 2),
        "an early train.py": sorted(linear) + sorted(set(names) - set(linear)),
        "the model": names,
    }


def _number(value: object) -> float | None:
    if isinstance(value, TensorInfo) and value.numel == 1:
        value = read_scalar(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 2**63 else None
