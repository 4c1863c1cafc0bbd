"""The account of a conversion, as plain values: for the table, for --json, for conversion.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

Target = Literal["nanogpt", "hf", "safetensors"]


@dataclass(frozen=True)
class SourceFacts:
    """Where the weights came from.

    Args:
        given: the reference as it was typed.
        path: the file or folder that it stands for.
        container: its format, for people.
        revision: commit of a hub model, or None.
        size_bytes: of all files that hold weights.
        activation: "gelu" or "gelu_tanh", as the source has it.
        activation_source: "file" or "assumed".
    """

    given: str | None
    path: str
    container: str
    revision: str | None
    size_bytes: int
    activation: str
    activation_source: str


@dataclass(frozen=True)
class ModelFacts:
    """The model in the output."""

    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    bias: bool
    activation: str
    tied_head: bool
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class TensorRow:
    """One tensor of the output.

    Args:
        name: in the output.
        source: nanoGPT's name of what it was made from; None for zeros that the format wants.
        shape: in the output.
        dtype: in the output.
        transposed: whether its stored axes were swapped on the way.
    """

    name: str
    source: str | None
    shape: tuple[int, ...]
    dtype: str
    transposed: bool


@dataclass(frozen=True)
class OutputFile:
    """One file that was written; the hash is None where the output is a single file."""

    name: str
    size_bytes: int
    sha256: str | None = None


@dataclass(frozen=True)
class LogitFigures:
    """Two models' logits on the same ids, side by side.

    Args:
        positions: how many were compared.
        largest_logit: absolute, over both.
        largest_difference: absolute.
        tolerance: what the difference may be.
        top1_agreement: share of positions whose likeliest id is the same.
    """

    positions: int
    largest_logit: float
    largest_difference: float
    tolerance: float
    top1_agreement: float

    @property
    def agree(self) -> bool:
        """Whether the difference is within the tolerance; a difference that is NaN is not."""
        return self.largest_difference <= self.tolerance


@dataclass(frozen=True)
class Verification:
    """What was found when the output was read again.

    Args:
        weights: how many were compared, bit for bit (after the cast, where there was one).
        other_tensors: how many tensors beside the weights were, the optimizer's first of all.
        source_model: the implementation that ran the source: "transformers" or "nanogpt".
        output_model: the one that ran the output.
        logits: the output against the source, its weights rounded to the output's dtype.
        rounding: the same against the source as it is; None where nothing was rounded.
    """

    weights: int
    other_tensors: int
    source_model: str
    output_model: str
    logits: LogitFigures
    rounding: LogitFigures | None = None


@dataclass(frozen=True)
class Cast:
    """What a change of type cost.

    Args:
        elements: how many were cast.
        changed: how many of them have another value than before.
        vanished: how many of those became zero.
        largest_change: absolute.
        where: the tensor that has it, or None.
    """

    elements: int
    changed: int
    vanished: int
    largest_change: float
    where: str | None


@dataclass(frozen=True)
class ConversionReport:
    """What was, or would be, converted.

    Args:
        dry_run: whether nothing was written.
        output: the file or folder.
        to: its format.
        optimizer: "kept", "fresh" or None.
        iter_num: iterations trained, as the output says; None where its format has no word for it.
        best_val_loss: nats per token, likewise.
        tokenizer: kind of the tokenizer, or None where none is known.
        tensors: the weights, in the order of the output.
        left_out: what the source holds and the output does not, for people.
        files: what was written; empty for a dry run.
        output_bytes: of all files, or of the weights alone for a dry run.
        cast: what --dtype cost; None where no type changed, and for a dry run.
        fingerprint: of the weights, the same in every format; None where it was not computed.
        verification: None where it was not done.
        notes: what a user should hear.
    """

    schema: ClassVar[str] = "nanogpt.convert/1"

    dry_run: bool
    source: SourceFacts
    output: str
    to: Target
    model: ModelFacts
    optimizer: str | None
    iter_num: int | None
    best_val_loss: float | None
    tokenizer: str | None
    tensors: tuple[TensorRow, ...]
    left_out: tuple[str, ...]
    files: tuple[OutputFile, ...]
    output_bytes: int
    cast: Cast | None
    fingerprint: str | None
    verification: Verification | None
    notes: tuple[str, ...]
