"""Checks of what stands beside the weights: settings, loss, tokenizer, waste, foreign classes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.errors import count_of
from nanogpt_cli.inspection.checks import FAULT, OK, WARN, Check
from nanogpt_cli.inspection.stored import count_bytes, list_stored
from nanogpt_cli.inspection.tokenizer import report_tokenizer
from nanogpt_cli.inspection.training import report_training

SIZES = ("n_layer", "n_head", "n_embd", "block_size")


def check_settings(
    checkpoint: Checkpoint, *, tokenizer: str | None, meta: Path | None
) -> list[Check]:
    """Check everything but tensors."""
    return [
        _check_config(checkpoint),
        _check_heads(checkpoint),
        _check_loss(checkpoint),
        _check_tokenizer(checkpoint, tokenizer, meta),
        _check_storage(checkpoint),
        _check_globals(checkpoint),
    ]


def _check_config(checkpoint: Checkpoint) -> Check:
    """Check model_args against the weights, and `config` against model_args.

    train.py writes `config` before it takes sizes over from GPT-2 or a file that it resumes, so
    that the two must agree for a model from scratch alone.
    """
    args = checkpoint.architecture.envelope.model_args
    config = checkpoint.train_config
    bias = args.get("bias")
    if isinstance(bias, bool) and bias != checkpoint.config.bias:
        found = "has" if checkpoint.config.bias else "has no"
        return Check("config", FAULT, f"model_args says bias {bias}, and the model {found} biases")
    if not config or not args:
        return Check("config", OK, "nothing states the sizes twice")
    differing = _differing(config, args)
    if not differing:
        return Check("config", OK, "config and model_args agree")
    init_from = config.get("init_from")
    if init_from == "scratch":
        detail = f"config contradicts model_args in {len(differing)} settings"
        return Check("config", FAULT, detail, differing)
    detail = f"config differs from model_args, as train.py leaves it with init_from {init_from!r}"
    return Check("config", OK if isinstance(init_from, str) else WARN, detail, differing)


def _differing(config: Mapping[str, object], args: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(
        f"{name} is {config[name]!r} in config, {args[name]!r} in model_args"
        for name in (*SIZES, "bias")
        if name in config and name in args and config[name] != args[name]
    )


def _check_heads(checkpoint: Checkpoint) -> Check:
    if checkpoint.architecture.n_head_known:
        return Check("n_head", OK, count_of(checkpoint.config.n_head, "head"))
    return Check("n_head", WARN, "nothing says how many heads there are: give --n-head")


def _check_loss(checkpoint: Checkpoint) -> Check:
    loss = report_training(checkpoint).loss
    if loss.nats_per_token is None:
        return Check("loss", OK, "the file states none")
    found = f"best_val_loss {loss.nats_per_token:.4f}, ln(vocab_size) "
    found += f"{loss.uniform_nats_per_token:.4f}"
    if loss.is_untrained:
        return Check("loss", WARN, f"{found}: untrained")
    if loss.is_worse_than_guessing:
        return Check("loss", WARN, f"{found}: worse than guessing")
    return Check("loss", OK, found)


def _check_tokenizer(checkpoint: Checkpoint, tokenizer: str | None, meta: Path | None) -> Check:
    found = report_tokenizer(checkpoint, tokenizer=tokenizer, meta=meta)
    if found.status == "missing":
        return Check("tokenizer", WARN, found.message)
    if found.status != "fits":
        uses = tuple(
            f"{use.name} at byte {use.offset:,}"
            for use in found.refused
            if use.verdict == "refused"
        )
        return Check("tokenizer", FAULT, found.message, uses)
    ids = "any ids" if found.n_vocab is None else f"{found.n_vocab:,} ids"
    padding = f" and {count_of(found.padding_rows, 'row')} of padding" if found.padding_rows else ""
    return Check("tokenizer", OK, f"{found.name}: {ids}{padding}, as the model has")


def _check_storage(checkpoint: Checkpoint) -> Check:
    stored = count_bytes(list_stored(checkpoint), 0)
    if stored.unused_bytes > stored.tensor_bytes // 100:
        detail = (
            f"{stored.unused_bytes:,} of {stored.tensor_bytes:,} bytes belong to no tensor: "
            "slices were saved with all that they were cut from"
        )
        return Check("storage", WARN, detail)
    return Check("storage", OK, "no bytes but the tensors' own")


def _check_globals(checkpoint: Checkpoint) -> Check:
    inert = tuple(
        f"{use.name} at byte {use.offset:,}"
        for use in checkpoint.contents.globals
        if use.verdict == "inert"
    )
    if inert:
        detail = f"{len(inert)} foreign classes, kept as data: torch.load would import them"
        return Check("pickle", WARN, detail, inert)
    return Check("pickle", OK, "nothing in it needs foreign code")
