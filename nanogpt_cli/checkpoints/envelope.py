"""What lies around the weights in a file: the state dict, the config, the run's facts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from nanogpt_cli.checkpoints.contents import Contents, TensorInfo
from nanogpt_cli.checkpoints.raw import read_scalar
from nanogpt_cli.config import ACTIVATIONS
from nanogpt_cli.errors import CheckpointError, name_some
from nanogpt_cli.pickles import Record

STATE_DICT_KEYS = ("model", "model_state_dict", "model_state", "state_dict", "sd")
CONFIG_KEYS = ("model_args", "config", "model_config", "gpt_config", "args", "hparams")
OWN_KEY = "nanogpt_cli"
"""Our one top-level key in a .pt file: what stock nanoGPT's model_args has no word for."""

SIZE_NAMES = {"n_layer", "n_head", "n_embd", "block_size", "vocab_size"}
MODEL_ARGS = SIZE_NAMES | {"bias", "dropout"}


@dataclass(frozen=True)
class Envelope:
    """A file's weights, and what is written beside them.

    Args:
        weights: the state dict, under stored names.
        family: "nanogpt" (model_args), "build-nanogpt", "bare" (nothing beside), "other".
        model_args: the model's sizes as the file states them; may be empty.
        own: what our own key holds ("activation").
        iter_num: iterations trained, or None.
        best_val_loss: nats per token, or None.
        train_config: nanoGPT's flat `config` dict, or empty.
        notes: what a user should hear.
        key: the entry of the file that is the state dict; "" where the file is one.
    """

    weights: Mapping[str, TensorInfo]
    family: str
    model_args: Mapping[str, object] = field(default_factory=dict)
    own: Mapping[str, object] = field(default_factory=dict)
    iter_num: int | None = None
    best_val_loss: float | None = None
    train_config: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    key: str = ""


def open_envelope(contents: Contents) -> Envelope:
    """Find the state dict and the facts beside it.

    Raises:
        CheckpointError: no state dict, or a pickled object in its place.
    """
    root = _as_mapping(contents.root)
    if root is None:
        kind = _kind(contents.root)
        raise CheckpointError(
            f"the file holds {kind}, not a state dict or a checkpoint dict",
            hint="a checkpoint is written by torch.save({'model': model.state_dict()}, path)",
        )
    if (bare := _state_dict(root)) is not None:
        own = _own(contents.metadata)
        return Envelope(bare, "bare", model_args=_own_args(contents.metadata), own=own)
    if isinstance(contents.root, Record) and "_modules" in root:
        raise _whole_object("the file", contents.root)
    key, weights = _find_state_dict(root)
    model_args, family = _model_args(root)
    train_config = root.get("config")
    return Envelope(
        weights,
        family,
        model_args=model_args,
        own=_own(_as_mapping(root.get(OWN_KEY)) or {}),
        iter_num=_integer(root, "iter_num", "step", "iteration", "iter"),
        best_val_loss=_number(root, "best_val_loss", "val_loss"),
        train_config=train_config if isinstance(train_config, dict) else {},
        notes=_foreign_args(model_args) if key == "model" and family == "nanogpt" else (),
        key=key,
    )


def _as_mapping(value: object) -> Mapping[str, object] | None:
    """Return a dict, or the fields of an inert record or namespace, else None."""
    if isinstance(value, Record):
        value = value.items if isinstance(value.items, dict) else value.fields
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return value
    return None


def _state_dict(value: object) -> Mapping[str, TensorInfo] | None:
    """Return `value` if it is a dict of named tensors (non-tensors such as a count aside)."""
    mapping = _as_mapping(value)
    if not mapping:
        return None
    tensors = {key: info for key, info in mapping.items() if isinstance(info, TensorInfo)}
    named = any(key.endswith(".weight") for key in tensors)
    return tensors if named and len(tensors) * 2 > len(mapping) else None


def _find_state_dict(root: Mapping[str, object]) -> tuple[str, Mapping[str, TensorInfo]]:
    for key in (*STATE_DICT_KEYS, *(key for key in root if key not in STATE_DICT_KEYS)):
        if key in root and (found := _state_dict(root[key])) is not None and key != "optimizer":
            return key, found
    for key in STATE_DICT_KEYS:
        if isinstance(record := root.get(key), Record):
            raise _whole_object(repr(key), record)
    keys = f"its keys are {name_some(root)}" if root else "it is empty"
    raise CheckpointError(
        f"no state dict in the file: {keys}",
        hint="a checkpoint is written by torch.save({'model': model.state_dict()}, path)",
    )


def _whole_object(where: str, record: Record) -> CheckpointError:
    return CheckpointError(
        f"{where} holds a whole pickled object of class {record.class_name!r}, which is not opened",
        hint="save model.state_dict() instead of the model",
    )


def _model_args(root: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    for key in CONFIG_KEYS:
        mapping = _as_mapping(root.get(key))
        if mapping is None or not SIZE_NAMES & mapping.keys():
            continue
        args = {name: value for name, value in mapping.items() if name in MODEL_ARGS}
        if key == "model_args":
            return mapping, "nanogpt"
        is_build = isinstance(root[key], Record) and not {"bias", "dropout"} & mapping.keys()
        return args, "build-nanogpt" if is_build else "other"
    return {}, "other"


def _foreign_args(model_args: Mapping[str, object]) -> tuple[str, ...]:
    foreign = [name for name, value in model_args.items() if name not in MODEL_ARGS and value]
    if not foreign:
        return ()
    return (
        f"model_args has settings that nanoGPT lacks, taken as without effect: "
        f"{name_some(foreign)}",
    )


def _own(mapping: Mapping[str, object]) -> dict[str, object]:
    activation = mapping.get("activation")
    if activation is None:
        return {}
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise CheckpointError(
            f"the file names activation {activation!r}: known are {known}",
            hint="a newer nanogpt may have written it: update nanogpt-cli",
        )
    return {"activation": activation}


def _own_args(metadata: Mapping[str, str]) -> dict[str, object]:
    """Return the sizes that a safetensors file's string metadata states."""
    return {
        name: int(value)
        for name, value in metadata.items()
        if name in SIZE_NAMES and value.isdecimal() and len(value) < 10
    }


def _integer(root: Mapping[str, object], *names: str) -> int | None:
    value = _number(root, *names)
    return int(value) if value is not None and value == int(value) else None


def _number(root: Mapping[str, object], *names: str) -> float | None:
    for name in names:
        value = root.get(name)
        if isinstance(value, TensorInfo) and value.numel == 1:
            value = read_scalar(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value if abs(value) <= sys.float_info.max else None
    return None


def _kind(value: object) -> str:
    if isinstance(value, TensorInfo):
        return "a single tensor"
    if isinstance(value, Record):
        return f"a pickled object of class {value.class_name!r}"
    return f"a {type(value).__name__}"
