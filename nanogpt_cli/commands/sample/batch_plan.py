"""What `nanogpt sample --prompts` and the options about it ask for, before a model is opened."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanogpt_cli import output
from nanogpt_cli.commands.sample.ray_plan import RayJob, plan_ray, refuse_workers
from nanogpt_cli.errors import UsageError

if TYPE_CHECKING:
    from nanogpt_cli.generation.batch.prompts import Shard

STDIO = "-"


@dataclass(frozen=True)
class BatchJob:
    """A batch, as far as it can be checked without a model.

    Args:
        prompts: a file, or `-` for standard input.
        output: None for standard output.
        batch_size: None for what memory allows.
        resume: whether to go on with what `output` has.
        force: whether what `output` has may go.
        shard: the rows to make.
    """

    prompts: str
    output: Path | None
    batch_size: int | None
    resume: bool
    force: bool
    shard: Shard


def plan(
    prompts: str | None,
    output_file: str | None,
    *,
    batch_size: int | None,
    resume: bool,
    force: bool,
    shard: str | None,
    engine: str,
    num_workers: int | None,
    gpus_per_worker: float | None,
    prompt: str | None,
    rng: str,
    color: str,
    interactive: bool,
) -> BatchJob | RayJob | None:
    """Return the batch that was asked for, or None where no file of prompts is given.

    Raises:
        UsageError: options that make no sense together, or an output that would lose something.
    """
    if prompts is None:
        given = {
            "--output": output_file is not None,
            "--batch-size": batch_size is not None,
            "--resume": resume,
            "--force": force,
            "--shard": shard is not None,
            "--engine": engine != "local",
            "--num-workers": num_workers is not None,
            "--gpus-per-worker": gpus_per_worker is not None,
        }
        _refuse_alone([flag for flag, is_given in given.items() if is_given])
        return None
    _refuse_others(prompt=prompt, rng=rng, color=color, interactive=interactive)
    if batch_size is not None and batch_size < 1:
        raise UsageError(
            f"--batch-size {batch_size}: it must be at least 1",
            hint="leave it out for as many as memory allows",
        )
    if engine == "ray":
        return plan_ray(
            prompts,
            output_file,
            batch_size=batch_size,
            resume=resume,
            force=force,
            shard=shard,
            num_workers=num_workers,
            gpus_per_worker=gpus_per_worker,
        )
    refuse_workers(num_workers, gpus_per_worker)
    _check_prompts(prompts)
    target = None if output_file in (None, STDIO) else Path(str(output_file))
    _check_output(target, prompts, resume=resume, force=force)
    return BatchJob(prompts, target, batch_size, resume, force, _choose_shard(shard))


def _refuse_others(*, prompt: str | None, rng: str, color: str, interactive: bool) -> None:
    """Refuse what is about a single prompt."""
    if prompt is not None:
        raise UsageError(
            "--prompt and --prompts are two ways to say what to continue",
            hint="leave one of them out",
        )
    if rng != "per-sample":
        raise UsageError(
            f"--rng {rng} draws all samples from one stream, and those of a batch are apart",
            hint="leave out --rng, or give one --prompt",
        )
    if interactive:
        raise UsageError(
            "--interactive asks for one prompt after another, and --prompts has them all",
            hint="leave one of them out",
        )
    if color != "off":
        raise UsageError(
            f"--color {color} is for text, and --prompts writes rows",
            hint="--logprobs 0 adds the probabilities to the rows",
        )


def _check_prompts(prompts: str) -> None:
    """Refuse a file of prompts that is not there, or whose first line is no prompt."""
    from nanogpt_cli.generation.batch.prompts import PromptReader

    path = Path(prompts)
    if prompts == STDIO:
        return
    if path.is_dir():
        raise UsageError(f"{prompts!r} is a folder", hint="name the file in it")
    if not os.path.lexists(path):
        raise UsageError(
            f"no file of prompts at {str(path.absolute())!r}", hint="--prompt takes the text itself"
        )
    if path.is_file() and os.access(path, os.R_OK):
        with path.open("rb") as stream:
            PromptReader(stream, repr(prompts))


def _refuse_alone(flags: list[str]) -> None:
    if "--output" in flags:
        raise UsageError(
            "--output takes the samples of --prompts, which is not given",
            hint="to keep the text of one prompt: nanogpt sample ... > FILE",
        )
    if flags:
        raise UsageError(
            f"{flags[0]} is about --prompts, which is not given",
            hint=f"add --prompts FILE, or leave {flags[0]} out",
        )


def _check_output(target: Path | None, prompts: str, *, resume: bool, force: bool) -> None:
    if resume and force:
        raise UsageError(
            "--resume keeps what is in the output, and --force replaces it",
            hint="leave one of them out",
        )
    if target is None:
        if resume:
            raise UsageError(
                "--resume goes on with a file, and the samples go to standard output",
                hint="name the file: --output FILE",
            )
        return
    if target.is_dir():
        raise UsageError(
            f"the output {str(target)!r} is a folder, and a file is to be written",
            hint=f"name the file: {target / 'samples.jsonl'}",
        )
    if target.exists() and not target.is_file():
        raise UsageError(
            f"the output {str(target)!r} is no regular file",
            hint="without --output the samples go to standard output",
        )
    require_other(target, Path(prompts))
    if not (resume or force) and target.exists() and target.stat().st_size:
        raise UsageError(
            f"{str(target)!r} exists already",
            hint="--resume writes what it lacks, --force replaces it",
        )


def require_other(target: Path, *inputs: Path) -> None:
    """Refuse an output that is read as well, by any path or link, or that lies nowhere.

    Raises:
        UsageError: it is.
    """
    from nanogpt_cli.checkpoints.writing.targets import check_target

    check_target(target, inputs, force=True)


def _choose_shard(given: str | None) -> Shard:
    """Return the shard that the flag says, else RANK and WORLD_SIZE, as launchers set them."""
    from nanogpt_cli.generation.batch.prompts import Shard, parse_shard

    if given is not None:
        return parse_shard(given)
    rank, size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None or size is None:
        return Shard()
    try:
        shard = parse_shard(f"{rank}/{size}")
    except UsageError as error:
        raise UsageError(
            f"RANK={rank} and WORLD_SIZE={size} in the environment name no shard",
            hint="--shard 0/1 takes all rows, whatever they say",
        ) from error
    if shard.count > 1:
        output.note(f"RANK and WORLD_SIZE are set: making the rows of shard {rank}/{size} alone")
    return shard
