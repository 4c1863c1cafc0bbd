"""What a model answers to a fixed row of ids, by the implementation that the model is made for.

Hugging Face weights run in transformers' GPT2LMHeadModel, all others in our GPT; in float32, on
the CPU, one model in memory at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import GPT2LMHeadModel

from nanogpt_cli.checkpoints import Architecture, Checkpoint
from nanogpt_cli.checkpoints.loading import load_weights
from nanogpt_cli.checkpoints.stored_names import HEAD, WTE
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.checkpoints.zero_biases import is_bias
from nanogpt_cli.conversion.hf_folder import ACTIVATION_NAMES
from nanogpt_cli.conversion.report import LogitFigures
from nanogpt_cli.errors import NanoGPTError, name_some

POSITIONS = 64
"""How many ids are run, at most; tensors are compared whole, so more would tell nothing new."""

TOLERANCE = 1e-5
"""Of the largest logit, or of 1: what the order of float32 sums may change between two
implementations; a fault of the model is hundreds of times that."""

STEP, START = 7919, 11
"""Ids run through the vocabulary in steps of a prime, so that none comes twice in a row."""


class VerificationError(NanoGPTError):
    """What was written is not what was read: it is not kept."""

    exit_code = 3

    def __init__(
        self, message: str, hint: str = "look at the disk, and run the command again"
    ) -> None:
        super().__init__(message, hint)


def fixed_ids(block_size: int, vocab_size: int) -> Tensor:
    """Return the ids that models are compared on, (1, T) int64, T at most 64."""
    T = min(block_size, POSITIONS)
    return ((torch.arange(T) * STEP + START) % vocab_size)[None]


def is_transformers(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint's own implementation is transformers'."""
    weights = checkpoint.architecture.weights.values()
    return any(weight.transposed for weight in weights)


def run_source(
    checkpoint: Checkpoint, architecture: Architecture, ids: Tensor, *, rounded: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return a source's logits, (T, V) float32: as it is, and with its weights rounded.

    Args:
        checkpoint: the source.
        architecture: it, with the activation that was asked for.
        ids: (1, T).
        rounded: the type to round to; None leaves the second result the first.
    """
    if is_transformers(checkpoint):
        model: nn.Module = _assemble(checkpoint, architecture)
    else:
        model = load_weights(architecture, mapped=True)
    exact = _run(model, ids)
    if rounded is None:
        return exact, exact
    _round(model, getattr(torch, rounded))
    return exact, _run(model, ids)


def run_file(checkpoint: Checkpoint, ids: Tensor) -> Tensor:
    """Return the logits of an output in nanoGPT's layout, (T, V) float32."""
    return _run(load_weights(checkpoint.architecture, mapped=True), ids)


def run_folder(folder: Path, ids: Tensor) -> Tensor:
    """Return the logits of a Hugging Face folder as transformers loads it, (T, V) float32.

    Raises:
        VerificationError: transformers misses a weight, or finds one that it cannot use.
    """
    with _quiet():
        model, found = _library().GPT2LMHeadModel.from_pretrained(
            folder,
            torch_dtype=torch.float32,
            attn_implementation="eager",
            local_files_only=True,
            output_loading_info=True,
        )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if found[kind]:
            names = sorted(map(str, found[kind]))
            raise VerificationError(
                f"transformers reports {kind.replace('_', ' ')} in the output: {name_some(names)}"
            )
    return _run(model, ids)


def compare_logits(expected: Tensor, found: Tensor) -> LogitFigures:
    """Return how far two models' logits, (T, V) each, are apart; equal NaNs are no difference."""
    both_nan = expected.isnan() & found.isnan()
    difference = (expected - found).abs().masked_fill(both_nan | (expected == found), 0.0)
    largest = torch.cat((expected, found)).nan_to_num(0.0).abs().max().item()
    tolerance = TOLERANCE * max(1.0, largest) if math.isfinite(largest) else TOLERANCE
    agreeing = (expected.argmax(dim=-1) == found.argmax(dim=-1)).double().mean().item()
    return LogitFigures(
        positions=expected.shape[0],
        largest_logit=largest,
        largest_difference=difference.max().item(),
        tolerance=tolerance,
        top1_agreement=agreeing,
    )


@torch.no_grad()
def _run(model: nn.Module, ids: Tensor) -> Tensor:
    model.eval()
    if isinstance(model, GPT2LMHeadModel):
        logits: Tensor = model(input_ids=ids, use_cache=False).logits
    else:
        logits, _ = model(ids, ids)  # targets, or only the last position comes
    return logits[0].float()


@torch.no_grad()
def _round(model: nn.Module, dtype: torch.dtype) -> None:
    for parameter in model.parameters():
        parameter.copy_(parameter.to(dtype))  # in place: a second model would be in memory


def _assemble(checkpoint: Checkpoint, architecture: Architecture) -> GPT2LMHeadModel:
    """Build transformers' model round the stored tensors, in the layout that they have."""
    with _quiet(), torch.device("meta"):
        model = GPT2LMHeadModel(_gpt2_config(checkpoint, architecture))
    reader = TensorReader()
    state: dict[str, Tensor] = {
        name: reader.read(weight.info).to(torch.float32)
        for name, weight in checkpoint.architecture.weights.items()
    }
    state.setdefault(HEAD, state[WTE])
    for name, parameter in model.named_parameters():
        if is_bias(name):  # a source that dropped the biases Hugging Face's layers have
            state.setdefault(name, torch.zeros(parameter.shape))
    model.load_state_dict(state, assign=True, strict=True)
    if architecture.config.tied_head:
        model.lm_head.weight = model.transformer.wte.weight
    _fill_buffers(model)
    return model


def _library() -> Any:
    """Return transformers, whose own types say less than its documentation."""
    return transformers


def _gpt2_config(checkpoint: Checkpoint, architecture: Architecture) -> Any:
    """Return transformers' config, with the source's own word for the activation."""
    config = architecture.config
    stated: Mapping[str, object] = checkpoint.contents.hf_config or {}
    activation: Any = stated.get("activation_function", "gelu_new")
    source_activation = checkpoint.architecture.config.activation
    if checkpoint.contents.hf_config is None or config.activation != source_activation:
        activation = ACTIVATION_NAMES[config.activation]
    return _library().GPT2Config(
        vocab_size=config.vocab_size,
        n_positions=config.block_size,
        n_embd=config.n_embd,
        n_layer=config.n_layer,
        n_head=config.n_head,
        activation_function=activation,
        tie_word_embeddings=config.tied_head,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="eager",
    )


def _fill_buffers(model: nn.Module) -> None:
    """Give older transformers the constants that a model on the meta device lacks."""
    for name, buffer in list(model.named_buffers()):
        if buffer.is_meta:
            owner = model.get_submodule(name.rpartition(".")[0])
            mask = torch.ones(buffer.shape, dtype=torch.bool).tril()
            value = mask if buffer.dim() == 4 else torch.tensor(-1e4)
            setattr(owner, name.rpartition(".")[2], value.to(buffer.dtype))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' log and bars, which would say what our own report says."""
    log = _library().utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
