"""The output `nanogpt`: a ckpt.pt that stock nanoGPT loads, resumes and samples from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.checkpoints.architecture import HEAD, WTE
from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.envelope import MODEL_ARGS, OWN_KEY
from nanogpt_cli.checkpoints.torch_pickle import ordered
from nanogpt_cli.checkpoints.writing import Stored
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.conversion.optimizer import (
    cut_vocabulary,
    fits,
    fresh_optimizer,
    stored_optimizer,
)
from nanogpt_cli.conversion.plan import ModelPlan
from nanogpt_cli.conversion.settings import ConversionSettings
from nanogpt_cli.pickles import Global, Record

ARGUMENTS = ("n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size", "dropout")
"""What GPTConfig(**model_args) takes, in train.py's order."""

NO_ITERATIONS, NO_LOSS = 0, 1e9
"""What train.py begins with, for files that do not say how far they were trained."""

KNOWN_ENTRIES = {
    *("model", "optimizer", "model_args", "iter_num", "best_val_loss", "config", OWN_KEY),
}


@dataclass(frozen=True)
class Surroundings:
    """What stands round the weights in the output.

    Args:
        entries: the file's top level, without the weights, in its order.
        optimizer: "kept", "fresh" or None.
        left_out: what the source holds and the output will not.
        notes: what a user should hear.
    """

    entries: Mapping[str, object]
    optimizer: str | None
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def plan_surroundings(
    checkpoint: Checkpoint, model: ModelPlan, settings: ConversionSettings
) -> Surroundings:
    """Settle what stands round the weights."""
    notes: list[str] = []
    left_out: list[str] = []
    optimizer, kind = _plan_optimizer(checkpoint, model, settings, notes, left_out)
    iter_num, best_val_loss = checkpoint.iter_num, checkpoint.best_val_loss
    root = _entries_of(checkpoint)
    entries: dict[str, object] = {
        "optimizer": optimizer,
        "model_args": {name: getattr(model.config, name) for name in ARGUMENTS},
        "iter_num": NO_ITERATIONS if iter_num is None else iter_num,
        "best_val_loss": NO_LOSS if best_val_loss is None else best_val_loss,
        "config": _train_config(root, model.config),
        OWN_KEY: {"activation": model.config.activation},
    }
    extras = {name: value for name, value in root.items() if name not in KNOWN_ENTRIES}
    extras.pop(checkpoint.architecture.envelope.key, None)
    if settings.weights_only:
        left_out += [f"the entry {name!r}" for name in extras]
    else:
        entries |= {name: plain(value) for name, value in extras.items()}
    foreign = [name for name in checkpoint.architecture.envelope.model_args if _is_foreign(name)]
    left_out += [f"{name!r} of model_args, which nanoGPT lacks" for name in foreign]
    kept = {name: value for name, value in entries.items() if value is not None}
    return Surroundings(kept, kind, tuple(left_out), tuple(notes))


def build_root(
    surroundings: Surroundings, weights: Mapping[str, Stored], config: GPTConfig
) -> dict[str, object]:
    """Return the tree of the file; a tied head is the embedding's own tensor."""
    model: dict[object, object] = dict(weights.items())
    if config.tied_head:
        model[HEAD] = weights[WTE]
    return {"model": ordered(model), **surroundings.entries}


def plain(value: object) -> object:
    """Return a value of a pickle in the plain types that torch's weights-only reader takes.

    An object of a class becomes the dict of its fields, a bare name its text.
    """
    if isinstance(value, Record):
        return plain(value.items if value.items is not None else value.fields or list(value.args))
    if isinstance(value, dict):
        return {_plain_key(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, tuple):
        return tuple(plain(entry) for entry in value)
    if isinstance(value, set | frozenset):
        return [plain(entry) for entry in sorted(value, key=repr)]
    if isinstance(value, Global):
        return value.name
    if isinstance(value, bytearray):
        return bytes(value)
    if value is None or isinstance(value, bool | int | float | str | bytes | TensorInfo):
        return value
    return repr(value)


def _plain_key(key: object) -> object:
    return key if isinstance(key, str | int | float | bool | bytes) else repr(key)


def _is_foreign(name: str) -> bool:
    return name not in MODEL_ARGS


def _entries_of(checkpoint: Checkpoint) -> Mapping[str, object]:
    """Return the source's top level, where it is a checkpoint's and no bare state dict."""
    root = checkpoint.contents.root
    is_bare = checkpoint.architecture.envelope.family == "bare"
    return root if isinstance(root, dict) and not is_bare else {}


def _train_config(root: Mapping[str, object], config: GPTConfig) -> object:
    """Return nanoGPT's `config`, its sizes those of the output, or None where there is none."""
    found = root.get("config")
    if not isinstance(found, dict | Record):
        return None
    settings = plain(found)
    if not isinstance(settings, dict):
        return None
    sizes = {name: getattr(config, name) for name in ("vocab_size", "bias") if name in settings}
    return {**settings, **sizes}


def _plan_optimizer(
    checkpoint: Checkpoint,
    model: ModelPlan,
    settings: ConversionSettings,
    notes: list[str],
    left_out: list[str],
) -> tuple[object, str | None]:
    held = stored_optimizer(checkpoint)
    if settings.fresh_optimizer:
        fresh, values = fresh_optimizer(model.config, checkpoint.train_config)
        listed = ", ".join(f"{name} {value:g}" for name, value in values.items())
        notes.append(f"a fresh optimizer, with {listed}: train.py resumes with these settings")
        if held is not None:
            left_out.append("the source's optimizer, for a fresh one")
        return fresh, "fresh"
    if held is not None and settings.weights_only:
        left_out.append("the optimizer")
    elif held is not None:
        kept = _kept_optimizer(held, checkpoint, model)
        if kept is not None:
            return plain(kept), "kept"
        notes.append("the source's optimizer does not fit the model in the output: left out")
        left_out.append("the optimizer")
    notes.append(
        "no optimizer in the output: train.py's resume wants one; --fresh-optimizer writes it"
    )
    return None, None


def _kept_optimizer(
    held: Mapping[str, object], checkpoint: Checkpoint, model: ModelPlan
) -> Mapping[str, object] | None:
    """Return the source's optimizer as it fits the output, or None."""
    source = checkpoint.architecture
    if model.config.bias != source.config.bias:
        return None
    is_nanogpts = source.envelope.family == "nanogpt"
    if model.config.vocab_size != source.config.vocab_size:
        if not fits(held, source):
            return None
        return cut_vocabulary(held, source.config, model.config.vocab_size)
    return held if is_nanogpts or fits(held, source) else None
