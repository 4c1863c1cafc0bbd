"""What a conversion will write, settled before a byte is read: names, shapes, types, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nanogpt_cli.checkpoints import Architecture, Checkpoint
from nanogpt_cli.checkpoints.stored_names import CONV1D, HEAD, WTE, Weight
from nanogpt_cli.checkpoints.zero_biases import first_nonzero, is_bias, without_biases
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.conversion.report import TensorRow
from nanogpt_cli.conversion.settings import ConversionSettings
from nanogpt_cli.errors import CheckpointError, UsageError, count_of

HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class PlannedTensor:
    """One tensor of the output.

    Args:
        row: its name, shape and type, and what it is made from.
        weight: what it is made from; None for zeros.
    """

    row: TensorRow
    weight: Weight | None


@dataclass(frozen=True)
class ModelPlan:
    """The model that the output will hold.

    Args:
        architecture: the source's, with the activation that was asked for and, where they are
            dropped, without its zero biases.
        config: the output's.
        tensors: in the order of the output.
        left_out: what the source holds and the output will not, for people.
        notes: what a user should hear.
    """

    architecture: Architecture
    config: GPTConfig
    tensors: tuple[PlannedTensor, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The types of the output's weights, each once."""
        return tuple(dict.fromkeys(tensor.row.dtype for tensor in self.tensors))


def plan_model(
    checkpoint: Checkpoint, settings: ConversionSettings, n_vocab: int | None
) -> ModelPlan:
    """Settle which tensors the output will have.

    Args:
        checkpoint: the source.
        settings: what was asked for.
        n_vocab: ids of the tokenizer, or None where that is not known.

    Raises:
        UsageError: the number of heads is not known.
        CheckpointError: something that the output cannot carry.
    """
    checkpoint.architecture.require_n_head()
    _refuse_reordered_attention(checkpoint, settings)
    notes: list[str] = []
    architecture = _adapted(checkpoint.architecture, settings, notes)
    config = replace(architecture.config)
    if settings.trim_vocab:
        config.vocab_size = _trimmed(config.vocab_size, n_vocab, notes)
    tensors = tuple(_tensors(architecture, config, settings))
    if settings.to == "nanogpt" and not config.tied_head:
        notes.append(
            "the head is not tied to the embedding: both matrices are in the file, and stock "
            "nanoGPT would tie them when it loads it"
        )
    left_out = tuple(_left_out(checkpoint, architecture, config))
    return ModelPlan(architecture, config, tensors, left_out, tuple(notes))


def _refuse_reordered_attention(checkpoint: Checkpoint, settings: ConversionSettings) -> None:
    """Refuse a flag that changes what a model in half precision computes."""
    flag = (checkpoint.contents.hf_config or {}).get("reorder_and_upcast_attn")
    if flag in (None, False):
        return
    weights = checkpoint.architecture.weights.values()
    dtypes = {settings.dtype} if settings.dtype else {weight.info.dtype for weight in weights}
    halves = sorted(dtype for dtype in dtypes if dtype in HALVES)
    if halves:
        raise CheckpointError(
            f"config.json has reorder_and_upcast_attn {flag!r}: it changes what the model computes "
            f"in {halves[0]}, and nothing here carries it",
            hint="give --dtype float32, where it changes nothing",
        )


def _adapted(
    architecture: Architecture, settings: ConversionSettings, notes: list[str]
) -> Architecture:
    """Return the architecture with the activation and the biases that were asked for."""
    config = replace(architecture.config)
    weights = architecture.weights
    if settings.activation is not None and settings.activation != config.activation:
        notes.append(f"--activation {settings.activation}: the source has {config.activation}")
        config.activation = settings.activation
    if settings.drop_zero_biases:
        biases = {name: weight.info for name, weight in weights.items() if is_bias(name)}
        trained = first_nonzero(biases)
        if trained is not None:
            raise CheckpointError(
                f"--drop-zero-biases: {trained!r} is not zero", hint="leave the flag out"
            )
        if not biases:
            notes.append("--drop-zero-biases has no effect: the model has no biases")
        weights, config.bias = without_biases(weights), False
    return replace(architecture, config=config, weights=weights)


def _trimmed(vocab_size: int, n_vocab: int | None, notes: list[str]) -> int:
    if n_vocab is None:
        raise UsageError(
            "--trim-vocab needs a tokenizer, which says how many rows are in use",
            hint="name it with --tokenizer or --meta",
        )
    if n_vocab == vocab_size:
        notes.append(f"--trim-vocab has no effect: the tokenizer has all {vocab_size} ids")
    return n_vocab


def _tensors(
    architecture: Architecture, config: GPTConfig, settings: ConversionSettings
) -> Iterator[PlannedTensor]:
    to_conv1d = settings.to == "hf"
    for name, weight in architecture.weights.items():
        shape = weight.shape
        if name in (WTE, HEAD):
            shape = (config.vocab_size, *shape[1:])
        turned = to_conv1d and name.endswith(CONV1D)
        row = TensorRow(
            name=name,
            source=name,
            shape=shape[::-1] if turned else shape,
            dtype=settings.dtype or weight.info.dtype,
            transposed=turned != weight.transposed,
        )
        yield PlannedTensor(row, weight)
        if to_conv1d and not config.bias and _wants_bias(name):
            bias = name.removesuffix("weight") + "bias"
            yield PlannedTensor(TensorRow(bias, None, (weight.shape[0],), row.dtype, False), None)


def _wants_bias(name: str) -> bool:
    """Return whether Hugging Face's GPT-2 has a bias beside this weight."""
    return name.endswith((*CONV1D, "ln_1.weight", "ln_2.weight", "ln_f.weight"))


def _left_out(
    checkpoint: Checkpoint, architecture: Architecture, config: GPTConfig
) -> Iterator[str]:
    source = checkpoint.architecture
    if source.masks:
        yield f"{count_of(len(source.masks), 'causal mask')}, no parameters"
    dropped = len(source.weights) - len(architecture.weights)
    if dropped:
        yield f"{count_of(dropped, 'bias', 'biases')}, all zero"
    trimmed = source.config.vocab_size - config.vocab_size
    if trimmed:
        yield f"{count_of(trimmed, 'row')} of the vocabulary that the tokenizer lacks"
    for prefix in source.prefixes:
        yield f"the prefix {prefix!r} of tensor names"
