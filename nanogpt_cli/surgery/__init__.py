"""Surgery on a checkpoint: fewer positions, another number format, no optimizer.

What is not asked for is copied bit for bit. No tensor is held whole, and the optimizer is never
loaded. What cuts is the heavy half, and is imported once nothing is wrong with what was asked for.
"""

from __future__ import annotations

from pathlib import Path

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.checkpoints.writing.atomic import Progress
from nanogpt_cli.checkpoints.writing.targets import check_target
from nanogpt_cli.errors import UsageError
from nanogpt_cli.surgery.outputs import default_output
from nanogpt_cli.surgery.report import Cast, CropReport, Cut, PartBytes, Verification

__all__ = ["Cast", "CropReport", "Cut", "PartBytes", "Verification", "crop", "require_block_size"]


def require_block_size(block_size: int, current: int | None = None) -> None:
    """Refuse a number of positions that cannot be.

    Args:
        block_size: what is asked for.
        current: what the model has, if that is known.

    Raises:
        UsageError: less than one, or more than there are.
    """
    if block_size < 1:
        raise UsageError(
            f"block_size is {block_size}: a model has at least 1 position",
            hint="give --block-size 1 or more",
        )
    if current is not None and block_size > current:
        raise UsageError(
            f"cannot grow block_size from {current} to {block_size}: "
            f"learned positions end at {current}",
            hint=f"give --block-size {current} or less",
        )


def crop(
    checkpoint: Checkpoint,
    block_size: int,
    *,
    output: Path | None = None,
    weights_only: bool = False,
    dtype: str | None = None,
    dry_run: bool = False,
    force: bool = False,
    verify: bool = True,
    progress: Progress = lambda _done, _total: None,
) -> CropReport:
    """Write a checkpoint that keeps the first `block_size` positions.

    The position table, stored masks, block_size in the configs and the table's Adam moments are
    cut together, so that training resumes. Key prefixes are removed, the tied matrix is stored
    once, every other tensor and entry is kept bit for bit. The input is only read.

    Args:
        checkpoint: opened; its number of heads need not be known.
        block_size: T of the output.
        output: None for a name beside the input, see `default_output`.
        weights_only: leave the optimizer out.
        dtype: "float32", "bfloat16" or "float16" for every weight, None to keep their own.
        dry_run: write nothing.
        force: replace an output that exists.
        verify: read the output again and compare logits over the kept positions.
        progress: told how far the writing is.

    Raises:
        UsageError: an impossible block_size, or an output that would lose something.
        CheckpointError: an optimizer whose order is unknown, or a weight too large for `dtype`.
        NanoGPTError: the output cannot be written, or (exit code 3) is not the model it should be.
    """
    require_block_size(block_size, checkpoint.config.block_size)
    path = checkpoint.located.path
    target = output or default_output(checkpoint, block_size)
    inputs = (path, *checkpoint.contents.files)
    check_target(target, inputs, as_folder=path.is_dir(), force=force)
    from nanogpt_cli.surgery.operation import operate  # the heavy half

    return operate(
        checkpoint,
        block_size,
        target,
        weights_only=weights_only,
        dtype=dtype,
        dry_run=dry_run,
        verify=verify,
        progress=progress,
    )
