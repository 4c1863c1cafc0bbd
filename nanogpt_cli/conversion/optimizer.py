"""The optimizer's state in a nanoGPT file: kept, cut with the vocabulary, or made new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nanogpt_cli.checkpoints import Architecture, Checkpoint, TensorInfo
from nanogpt_cli.checkpoints.fitting import parameter_shapes
from nanogpt_cli.checkpoints.stored_names import HEAD, WTE
from nanogpt_cli.config import GPTConfig

MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
"""AdamW's tensors of a parameter's own shape."""

DEFAULTS = {"weight_decay": 0.1, "learning_rate": 6e-4, "beta1": 0.9, "beta2": 0.95}
"""nanoGPT's own settings, for files that hold none."""


def stored_optimizer(checkpoint: Checkpoint) -> Mapping[str, object] | None:
    """Return the optimizer's state dict in a file, or None."""
    root = checkpoint.contents.root
    held = root.get("optimizer") if isinstance(root, dict) else None
    if isinstance(held, dict) and isinstance(held.get("param_groups"), list):
        return held
    return None


def parameter_order(config: GPTConfig) -> list[str]:
    """Return the parameters as AdamW numbers them: all of two axes, then all of one."""
    shapes = parameter_shapes(config)
    decayed = [name for name, shape in shapes.items() if len(shape) >= 2]
    return decayed + [name for name in shapes if name not in set(decayed)]


def fits(held: Mapping[str, object], architecture: Architecture) -> bool:
    """Return whether an optimizer's moments have the shapes of the model's parameters, in order."""
    shapes = parameter_shapes(architecture.config)
    order = parameter_order(architecture.config)
    state = held.get("state")
    if not isinstance(state, dict) or not set(state) <= set(range(len(order))):
        return False
    for number, entry in state.items():
        moments = [entry.get(name) for name in MOMENTS] if isinstance(entry, dict) else []
        found = {moment.shape for moment in moments if isinstance(moment, TensorInfo)}
        if found - {shapes[order[number]]}:
            return False
    return True


def cut_vocabulary(
    held: Mapping[str, object], config: GPTConfig, vocab_size: int
) -> dict[str, object]:
    """Return an optimizer whose moments of the embedding, and of an untied head, have fewer rows.

    Args:
        held: one that fits a model of this config.
        config: of the source.
        vocab_size: rows that are kept.
    """
    numbers = {number for number, name in enumerate(parameter_order(config)) if name in (WTE, HEAD)}
    state = held["state"]
    assert isinstance(state, dict), "one that fits has a state"
    cut = {
        number: _cut_entry(entry, vocab_size) if number in numbers else entry
        for number, entry in state.items()
    }
    return {**held, "state": cut}


def _cut_entry(entry: Mapping[str, object], rows: int) -> dict[str, object]:
    return {
        name: replace(value, shape=(rows, *value.shape[1:]))
        if name in MOMENTS and isinstance(value, TensorInfo)
        else value
        for name, value in entry.items()
    }


def fresh_optimizer(
    config: GPTConfig, train_config: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, float]]:
    """Return the state dict of an AdamW that has taken no step, and the settings in it.

    The groups are nanoGPT's. The settings, which win over train.py's own when it resumes, are the
    file's where it has them.
    """
    settings = {
        name: float(value)
        if isinstance(value := train_config.get(name), int | float) and not isinstance(value, bool)
        else default
        for name, default in DEFAULTS.items()
    }
    order = parameter_order(config)
    shapes = parameter_shapes(config)
    decayed = sum(len(shapes[name]) >= 2 for name in order)
    groups = [
        _group(settings, settings["weight_decay"], list(range(decayed))),
        _group(settings, 0.0, list(range(decayed, len(order)))),
    ]
    return {"state": {}, "param_groups": groups}, settings


def _group(
    settings: Mapping[str, float], weight_decay: float, numbers: list[int]
) -> dict[str, object]:
    return {
        "lr": settings["learning_rate"],
        "betas": (settings["beta1"], settings["beta2"]),
        "eps": 1e-8,
        "weight_decay": weight_decay,
        "amsgrad": False,
        "foreach": None,
        "maximize": False,
        "capturable": False,
        "differentiable": False,
        "fused": None,
        "decoupled_weight_decay": True,
        "params": numbers,
    }
