"""Which models `nanogpt params` was asked about: by name, in a file, or from flags alone."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from nanogpt_cli.accounting import ModelReport, StoredBytes, Workload, account, find_known_config
from nanogpt_cli.config import PRESETS, GPTConfig
from nanogpt_cli.errors import ConfigError, UsageError, did_you_mean
from nanogpt_cli.output import note

if TYPE_CHECKING:
    from nanogpt_cli.checkpoints import Checkpoint

LARGEST_SIZE = 2**31 - 1


@dataclass(frozen=True)
class Subject:
    """A model to account for.

    Args:
        name: what the user called it.
        config: its sizes, flags applied.
        changed: the fields of it that flags changed.
        n_head_known: whether `config.n_head` is more than a stand-in.
        stored: what its file holds; None without a file, or where flags changed the sizes.
    """

    name: str
    config: GPTConfig
    changed: tuple[str, ...] = ()
    n_head_known: bool = True
    stored: StoredBytes | None = None

    def account(self, work: Workload) -> ModelReport:
        """Return the account of this model under a workload."""
        return account(
            self.config,
            self.name,
            work,
            changed=self.changed,
            n_head_known=self.n_head_known,
            stored=self.stored,
        )


def resolve(name: str | None, sizes: Mapping[str, int], *, offline: bool = False) -> Subject:
    """Find a model's sizes: by name, in a file, or from flags alone.

    Args:
        name: a stock name, a checkpoint, or None for flags alone.
        sizes: GPTConfig fields set by flags; they win.
        offline: fetch nothing.

    Raises:
        UsageError: no such name or path, nothing given, or sizes that no GPT can have.
        CheckpointError: the file cannot be read.
    """
    if name is None:
        return _from_flags(sizes)
    known = None if _exists(name) else find_known_config(name)
    if known is not None:
        return _override(Subject(name, known), sizes)
    _refuse_unknown_name(name)
    return _from_checkpoint(name, sizes, offline=offline)


def _from_flags(sizes: Mapping[str, int]) -> Subject:
    if not sizes:
        raise UsageError(
            "no model was given",
            hint=f"give a checkpoint, one of {', '.join(PRESETS)}, or sizes such as --n-layer 6",
        )
    subject = _override(Subject("custom", GPTConfig()), sizes)
    fields = ("n_layer", "n_head", "n_embd", "block_size", "vocab_size", "bias")
    kept = [
        f"{field} {getattr(subject.config, field)}"
        for field in fields
        if field not in sizes and getattr(subject.config, field) == getattr(GPTConfig(), field)
    ]
    if kept:
        note(f"nanoGPT's defaults for what was not given: {', '.join(kept)}")
    return replace(subject, changed=())


def _override(subject: Subject, sizes: Mapping[str, int]) -> Subject:
    """Apply the flags; heads that no longer divide the width give way, as no figure needs them."""
    _check_sizes(sizes)
    before: GPTConfig = subject.config
    wanted: dict[str, Any] = dict(sizes)
    width = sizes.get("n_embd", before.n_embd)
    if "n_head" not in sizes and width % before.n_head:
        wanted["n_head"] = width // 64 if width % 64 == 0 else 1
        note(
            f"n_head {before.n_head} does not divide n_embd {width}, so n_head is taken as "
            f"{wanted['n_head']}; no figure here depends on it"
        )
    try:
        config = replace(before, **wanted)
    except ConfigError as error:
        raise UsageError(error.message, error.hint) from error
    changed = tuple(name for name in wanted if getattr(config, name) != getattr(before, name))
    stored = None if changed and set(changed) != {"n_head"} else subject.stored
    return replace(
        subject,
        config=config,
        changed=changed,
        n_head_known=subject.n_head_known or "n_head" in wanted,
        stored=stored,
    )


def _check_sizes(sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        if size > LARGEST_SIZE:
            raise UsageError(
                f"{name} is {size}: sizes up to {LARGEST_SIZE:,} are counted",
                f"give a smaller --{name.replace('_', '-')}",
            )


def _exists(name: str) -> bool:
    try:
        return os.path.lexists(name)
    except ValueError:  # a zero byte, which no path can have
        return False


def _refuse_unknown_name(name: str) -> None:
    """Tell a misspelt model from a missing path: a word without dots and slashes is a model."""
    if not re.fullmatch(r"[\w-]+", name) or name == "demo" or _exists(name):
        return
    known = [*PRESETS, "distilgpt2", "demo"]
    others = "or give a path, a hub id owner/name, or sizes such as --n-layer 12 --n-embd 768"
    raise UsageError(
        f"unknown model {name!r}: known are {', '.join(known)}",
        hint=did_you_mean(name, known, others, cutoff=0.9),
    )


def _from_checkpoint(name: str, sizes: Mapping[str, int], *, offline: bool) -> Subject:
    from nanogpt_cli.checkpoints import open_checkpoint

    checkpoint = open_checkpoint(name, offline=offline)
    for message in checkpoint.notes:
        note(message)
    subject = Subject(
        name,
        checkpoint.config,
        n_head_known=checkpoint.architecture.n_head_known,
        stored=_measure_file(checkpoint),
    )
    return _override(subject, sizes)


def _measure_file(checkpoint: Checkpoint) -> StoredBytes:
    """Add up what the file holds, the head of a tied model once."""
    weights: dict[str, int] = {}
    for weight in checkpoint.architecture.weights.values():
        dtype = weight.info.dtype
        weights[dtype] = weights.get(dtype, 0) + weight.info.nbytes
    masks = sum(info.nbytes for info in checkpoint.architecture.masks.values())
    root = checkpoint.contents.root
    optimizer = root.get("optimizer") if isinstance(root, Mapping) else None
    return StoredBytes(weights, masks, _add_tensors(optimizer))


def _add_tensors(value: object) -> int:
    from nanogpt_cli.checkpoints import TensorInfo

    if isinstance(value, TensorInfo):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(_add_tensors(item) for item in value.values())
    return sum(_add_tensors(item) for item in value) if isinstance(value, list | tuple) else 0


def parse_count(text: str) -> int:
    """Return the number that `300B`, `1.5e9`, `10_000` or `2,000K` stands for.

    Raises:
        UsageError: no whole number, or none that a text can have as its length.
    """
    units = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}
    found = re.fullmatch(r"([\d.,_]{1,40}(?:[eE]\d{1,2})?)([KMBT]?)", text.strip(), re.IGNORECASE)
    try:
        plain = re.sub("[,_]", "", found[1]) if found else "none"
        count = Decimal(plain).scaleb(units[found[2].upper()] if found else 0)
    except InvalidOperation:
        count = Decimal("nan")
    if not count.is_finite() or count != count.to_integral_value() or count < 1:
        raise UsageError(
            f"{text!r} is no count of tokens", hint="give a whole number, such as 300B or 500M"
        )
    return int(count)
