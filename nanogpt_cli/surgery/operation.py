"""The heavy half of surgery: the output is planned, written, read again and accounted for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nanogpt_cli.checkpoints import Checkpoint, describe
from nanogpt_cli.checkpoints.agreement import compare_logits
from nanogpt_cli.checkpoints.architecture import Architecture, read_architecture
from nanogpt_cli.checkpoints.plans import CopyPlan, FilePlan
from nanogpt_cli.checkpoints.safetensors_files.format import SafetensorsFile
from nanogpt_cli.checkpoints.writing.atomic import Progress, write_file, write_folder
from nanogpt_cli.errors import NanoGPTError, name_some
from nanogpt_cli.surgery.cutting import Cutter
from nanogpt_cli.surgery.hf_files import crop_folder, crop_safetensors, keeps_tied_head
from nanogpt_cli.surgery.outputs import carry_tokenizer
from nanogpt_cli.surgery.report import Cast, CropReport, Verification
from nanogpt_cli.surgery.torch_files import crop_torch


@dataclass
class _Work:
    """A crop that is planned.

    Args:
        plans: the files by their names in the source.
        weights: which of them hold weights.
        dropped: entries that are left out.
        notes: what a user should hear.
        is_copy: there is nothing to do.
    """

    plans: Mapping[str, FilePlan]
    weights: list[str]
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_copy: bool = False


def operate(
    checkpoint: Checkpoint,
    block_size: int,
    target: Path,
    *,
    weights_only: bool,
    dtype: str | None,
    dry_run: bool,
    verify: bool,
    progress: Progress,
) -> CropReport:
    """Write a crop whose size and place were checked; the rest is as in `surgery.crop`.

    Raises:
        CheckpointError: an optimizer whose order is unknown, a weight too large for `dtype`, or an
            input that was written again meanwhile.
        NanoGPTError: the output cannot be written, or (exit code 3) is not the model it should be.
    """
    current = checkpoint.config.block_size
    contents = checkpoint.contents
    path = checkpoint.located.path
    cutter = Cutter(
        checkpoint.architecture, block_size, dtype, keeps_tied_head=keeps_tied_head(contents)
    )
    work = _plan(checkpoint, cutter, weights_only=weights_only)
    if block_size == current and dtype is None and not work.dropped:
        work = _plan_copy(work, checkpoint, cutter)
    verification = None
    if not dry_run:
        check = partial(_verify, checkpoint.architecture, cutter) if verify else None
        verification = _write(checkpoint, target, work, check, progress)
        if not path.is_dir():
            work.notes += carry_tokenizer(checkpoint, target)
    sizes = (
        sum(part.stat().st_size for part in contents.files),
        sum(work.plans[name].total_bytes for name in work.weights),
    )
    return CropReport(
        input=str(path),
        output=str(target),
        container=contents.container,
        block_size_before=current,
        block_size_after=block_size,
        parts=cutter.ledger.receipt(*sizes),
        before_bytes=sizes[0],
        after_bytes=sizes[1],
        cuts=tuple(cutter.cuts),
        dropped=work.dropped,
        weights_only=weights_only,
        cast=_cast(cutter, dry_run=dry_run),
        verification=verification,
        is_copy=work.is_copy,
        dry_run=dry_run,
        notes=work.notes
        + _advice(
            checkpoint, work, weights_only=weights_only, is_verified=verification is not None
        ),
    )


def _plan(checkpoint: Checkpoint, cutter: Cutter, *, weights_only: bool) -> _Work:
    contents = checkpoint.contents
    if contents.path.is_dir():
        folder = crop_folder(contents, cutter)
        return _Work(folder.plans, folder.weights, notes=tuple(folder.notes))
    name = contents.path.name
    if contents.format == SafetensorsFile.name:
        return _Work({name: crop_safetensors(contents, cutter, is_alone=True)}, [name])
    made = crop_torch(contents, cutter, weights_only=weights_only)
    return _Work({name: made.plan}, [name], made.dropped, made.notes)


def _plan_copy(work: _Work, checkpoint: Checkpoint, cutter: Cutter) -> _Work:
    """Return the plan of a copy: nothing is cut, and no file changes in anything."""
    cutter.ledger.after[:] = cutter.ledger.before
    path = checkpoint.contents.path
    files = [file for file in sorted(path.iterdir()) if file.is_file()] if path.is_dir() else [path]
    note = f"block_size is {cutter.block_size} already: there is nothing to do but copy"
    plans = {file.name: CopyPlan(file) for file in files}
    return _Work(plans, work.weights, notes=(note,), is_copy=True)


def _write(
    checkpoint: Checkpoint,
    target: Path,
    work: _Work,
    check: Callable[[Path], Verification] | None,
    progress: Progress,
) -> Verification | None:
    found: list[Verification] = []

    def look_at(path: Path) -> None:
        checkpoint.require_unchanged()
        if check is not None:
            found.append(check(path))

    if checkpoint.located.path.is_dir():
        write_folder(target, work.plans, check=look_at, progress=progress)
    else:
        (plan,) = work.plans.values()
        write_file(target, plan, check=look_at, progress=progress)
    return found[0] if found else None


def _verify(source: Architecture, cutter: Cutter, path: Path) -> Verification:
    """Read what was written, with a reader of its own, and compare logits with the source's.

    Raises:
        NanoGPTError: exit code 3, it is another model.
    """
    try:
        written = read_architecture(describe(path))
    except NanoGPTError as error:
        raise _unfaithful(f"it cannot be read again: {error.message}") from error
    sizes = [(c.n_layer, c.n_embd, c.vocab_size) for c in (source.config, written.config)]
    if sizes[0] != sizes[1] or written.config.block_size != cutter.block_size:
        raise _unfaithful("its sizes are not what they should be")
    found = compare_logits(source, written, cutter.block_size)
    if cutter.dtype is None and found.largest_difference != 0:
        raise _unfaithful(f"its logits differ by up to {found.largest_difference:.3g}")
    return Verification(found.positions, found.largest_difference, found.top_1_agreement)


def _unfaithful(what: str) -> NanoGPTError:
    return NanoGPTError(
        f"the written model is not the one it should be, and was not kept: {what}",
        hint="look at the disk, and run the command again",
        exit_code=3,
    )


def _cast(cutter: Cutter, *, dry_run: bool) -> Cast | None:
    if cutter.dtype is None:
        return None
    if dry_run:
        return Cast(cutter.dtype)
    loss = cutter.loss
    return Cast(cutter.dtype, loss.changed, loss.vanished, loss.largest, loss.where)


def _advice(
    checkpoint: Checkpoint, work: _Work, *, weights_only: bool, is_verified: bool
) -> tuple[str, ...]:
    """Return what else a user should hear."""
    notes = []
    prefixes = checkpoint.architecture.prefixes
    if prefixes and not work.is_copy:
        notes.append(f"removed from the weights' names: {name_some(prefixes)}")
    if work.dropped:
        notes.append(
            f"without {name_some(work.dropped)}, training cannot resume from the output with its "
            "moments: it would start the optimizer anew"
        )
    elif weights_only:
        notes.append("--weights-only has no effect: the input has no optimizer")
    if is_verified and not checkpoint.architecture.n_head_known:
        notes.append(
            "the file does not say its number of heads: it was checked with one, and what is "
            "equal there is equal with any"
        )
    return tuple(notes)
