"""The output `nanogpt`: a ckpt.pt that stock nanoGPT loads, resumes and samples from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.checkpoints.envelope import MODEL_ARGS, OWN_KEY
from nanogpt_cli.checkpoints.plans import Stored
from nanogpt_cli.checkpoints.stored_names import HEAD, WTE
from nanogpt_cli.checkpoints.torch_files.dump import ordered
from nanogpt_cli.checkpoints.torch_files.records import entries_of
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.conversion.optimizer import (
    cut_vocabulary,
    fits,
    fresh_optimizer,
    stored_optimizer,
)
from nanogpt_cli.conversion.plain import NotPlainError, plain, plain_entries
from nanogpt_cli.conversion.plan import ModelPlan
from nanogpt_cli.conversion.settings import ConversionSettings

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
        "config": _train_config(root, model.config, left_out),
        OWN_KEY: {"activation": model.config.activation},
    }
    extras = {name: value for name, value in root.items() if name not in KNOWN_ENTRIES}
    extras.pop(checkpoint.architecture.envelope.key, None)
    entries = {name: value for name, value in entries.items() if value is not None}
    if settings.weights_only:
        left_out += [f"the entry {name!r}" for name in extras]
    else:
        entries |= plain_entries(extras, left_out)
    foreign = [name for name in checkpoint.architecture.envelope.model_args if _is_foreign(name)]
    left_out += [f"{name!r} of model_args, which nanoGPT lacks" for name in foreign]
    return Surroundings(entries, kind, tuple(left_out), tuple(notes))


def build_root(
    surroundings: Surroundings, weights: Mapping[str, Stored], config: GPTConfig
) -> dict[str, object]:
    """Return the tree of the file; a tied head is the embedding's own tensor."""
    model: dict[object, object] = dict(weights.items())
    if config.tied_head:
        model[HEAD] = weights[WTE]
    return {"model": ordered(model), **surroundings.entries}


def _is_foreign(name: str) -> bool:
    return name not in MODEL_ARGS


def _entries_of(checkpoint: Checkpoint) -> Mapping[str, object]:
    """Return the source's top level, where it is a checkpoint's and no bare state dict."""
    root = checkpoint.contents.root
    is_bare = checkpoint.architecture.envelope.family == "bare"
    return root if isinstance(root, dict) and not is_bare else {}


def _train_config(
    root: Mapping[str, object], config: GPTConfig, left_out: list[str]
) -> dict[str, object] | None:
    """Return nanoGPT's `config`, its sizes those of the output, or None where there is none."""
    found = entries_of(root.get("config"))
    if found is None:
        return None
    named = {name: value for name, value in found.items() if isinstance(name, str)}
    settings = plain_entries(named, left_out)
    for name in ("vocab_size", "bias"):
        if name in settings:
            settings[name] = getattr(config, name)
    return settings


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
            return kept, "kept"
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
    try:
        held = cast("Mapping[str, object]", plain(dict(held)))
    except NotPlainError:
        return None
    if model.config.bias != source.config.bias:
        return None
    is_nanogpts = source.envelope.family == "nanogpt"
    if model.config.vocab_size != source.config.vocab_size:
        if not fits(held, source):
            return None
        return cut_vocabulary(held, source.config, model.config.vocab_size)
    return held if is_nanogpts or fits(held, source) else None
