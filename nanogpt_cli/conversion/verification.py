"""Reading an output again, as a stranger would, and holding it against its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from nanogpt_cli.checkpoints import Checkpoint, Located, TensorInfo, describe
from nanogpt_cli.checkpoints.architecture import read_architecture
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.conversion.logits import (
    VerificationError,
    compare_logits,
    fixed_ids,
    is_transformers,
    run_file,
    run_folder,
    run_source,
)
from nanogpt_cli.conversion.plan import HALVES, ModelPlan
from nanogpt_cli.conversion.report import LogitFigures, Target, Verification
from nanogpt_cli.errors import name_some

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes an element -> the integers that show its bits."""

ELEMENTS_AT_ONCE = 4 << 20
"""Of a weight, cast and compared."""

CONFIG_FIELDS = (
    *("block_size", "vocab_size", "n_layer", "n_head", "n_embd", "bias", "activation"),
    "tied_head",
)


def verify(
    checkpoint: Checkpoint,
    model: ModelPlan,
    target: Target,
    output: Path,
    *,
    entries: Mapping[str, object] | None = None,
) -> Verification:
    """Compare an output with its source: config, every tensor, and the logits of both.

    Args:
        checkpoint: the source.
        model: the plan that the output followed.
        target: the output's format.
        output: the file or folder, under whatever name.
        entries: what should stand round the weights in a torch file, with the source's tensors.

    Raises:
        VerificationError: something differs.
    """
    written = read_output(output)
    check_config(written.config, model.config)
    compared = compare_weights(model, written)
    beside = 0 if entries is None else compare_entries(entries, written)
    logits, rounding = compare_models(checkpoint, model, target, written)
    if not logits.agree:
        raise VerificationError(
            f"the output's logits differ from the source's by {logits.largest_difference:.3g}: "
            f"at most {logits.tolerance:.3g} is rounding",
            hint="nothing was kept; the source is as it was",
        )
    return Verification(
        weights=compared,
        other_tensors=beside,
        source_model="transformers" if is_transformers(checkpoint) else "nanogpt",
        output_model="transformers" if target == "hf" else "nanogpt",
        logits=logits,
        rounding=rounding,
    )


def read_output(output: Path) -> Checkpoint:
    """Open what was written with nothing but its own content to go by."""
    contents = describe(output)
    return Checkpoint(Located(None, output, "file"), contents, read_architecture(contents))


def check_config(found: GPTConfig, expected: GPTConfig) -> None:
    """Compare what an output says of its model.

    Raises:
        VerificationError: field and values that differ.
    """
    for name in CONFIG_FIELDS:
        if getattr(found, name) != getattr(expected, name):
            raise VerificationError(
                f"the output's {name} reads back as {getattr(found, name)!r}, "
                f"not {getattr(expected, name)!r}"
            )


def compare_weights(model: ModelPlan, written: Checkpoint) -> int:
    """Compare every weight in nanoGPT's layout, bit for bit after the cast; return how many.

    Raises:
        VerificationError: tensors that differ.
    """
    source, found = model.architecture.weights, written.architecture.weights
    dtypes = {tensor.row.source: tensor.row.dtype for tensor in model.tensors}
    if source.keys() != found.keys():
        raise VerificationError(f"other tensors: {name_some(source.keys() ^ found.keys())}")
    wrong = []
    for name, weight in source.items():
        expected = _laid_out(TensorReader().read(weight.info), weight.transposed)
        again = found[name]
        actual = _laid_out(TensorReader().read(again.info), again.transposed)
        dtype: torch.dtype = getattr(torch, dtypes[name])
        if not _same_rows(expected, actual, dtype):
            wrong.append(name)
    if wrong:
        raise VerificationError(
            f"{len(wrong)} of {len(source)} weights read back otherwise: {name_some(wrong)}"
        )
    return len(source)


def _laid_out(tensor: Tensor, transposed: bool) -> Tensor:
    return tensor.t() if transposed else tensor


def _same_rows(expected: Tensor, actual: Tensor, dtype: torch.dtype) -> bool:
    """Compare bits, cast to `dtype`, over the rows that the output has; in blocks of rows."""
    step = max(1, ELEMENTS_AT_ONCE // max(1, actual[0].numel()))
    for start in range(0, actual.shape[0], step):
        rows = slice(start, min(start + step, actual.shape[0]))
        if not same_bits(expected[rows].to(dtype), actual[rows]):
            return False
    return True


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have one type, one shape and the same bits."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bits = BITS[one.element_size()]
    return torch.equal(one.contiguous().view(bits), other.contiguous().view(bits))


def compare_entries(expected: Mapping[str, object], written: Checkpoint) -> int:
    """Compare what stands round the weights in a torch file; return how many tensors that is.

    Raises:
        VerificationError: something is missing, new, or differs.
    """
    root = written.contents.root
    assert isinstance(root, dict), "a file without a state dict has been refused"
    found = {name: value for name, value in root.items() if name != "model"}
    count = 0
    for path, one, other in _side_by_side(expected, found, ""):
        if isinstance(one, TensorInfo) and isinstance(other, TensorInfo):
            same = same_bits(TensorReader().read(one), TensorReader().read(other))
            count += 1
        else:
            both_nan = one != one and other != other
            same = type(one) is type(other) and (one == other or both_nan)
        if not same:
            raise VerificationError(f"the output's entry {path} reads back otherwise")
    return count


def _side_by_side(one: object, other: object, path: str) -> Iterator[tuple[str, object, object]]:
    """Yield the leaves of two trees in pairs, each with the way to it."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from _side_by_side(one[key], other[key], f"{path}[{key!r}]")
    elif (
        isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other)
    ):
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _side_by_side(left, right, f"{path}[{place}]")
    else:
        yield path, one, other


def compare_models(
    checkpoint: Checkpoint, model: ModelPlan, target: Target, written: Checkpoint
) -> tuple[LogitFigures, LogitFigures | None]:
    """Run the source, then the output, and compare their logits.

    Returns:
        The output against the source with its weights rounded as the output's are; and, where
        that is a change, against the source as it is.
    """
    V = model.config.vocab_size
    ids = fixed_ids(model.config.block_size, V)
    rounded = _rounding(model)
    exact, expected = run_source(checkpoint, model.architecture, ids, rounded=rounded)
    # Rows of the vocabulary that were dropped have no counterpart.
    exact, expected = exact[:, :V], expected[:, :V]
    found = run_folder(written.located.path, ids) if target == "hf" else run_file(written, ids)
    figures = compare_logits(expected, found)
    return figures, None if rounded is None else compare_logits(exact, found)


def _rounding(model: ModelPlan) -> str | None:
    """Return the type that the weights were rounded to, or None where none lost a bit."""
    for tensor in model.tensors:
        dtype = tensor.row.dtype
        if tensor.weight is not None and dtype in HALVES and dtype != tensor.weight.info.dtype:
            return dtype
    return None
