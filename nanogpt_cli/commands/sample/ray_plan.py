"""What `--engine ray` asks for, before a model is opened or a cluster looked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec

from nanogpt_cli.errors import NanoGPTError, UsageError

STDIO = "-"

INSTALL = 'pip install "nanogpt-cli[ray]"'


@dataclass(frozen=True)
class RayJob:
    """A batch for a cluster, as far as it can be checked without one.

    Args:
        prompts: a file, or a URI of one.
        output: a folder, or a URI of one.
        batch_size: samples side by side in each worker; None for what memory allows.
        resume: whether to go on with what `output` has.
        force: whether what `output` has may go.
        num_workers: None for as many as suit the cluster.
        gpus_per_worker: None for 1 where there are GPUs.
    """

    prompts: str
    output: str
    batch_size: int | None
    resume: bool
    force: bool
    num_workers: int | None
    gpus_per_worker: float | None


def plan_ray(
    prompts: str,
    output: str | None,
    *,
    batch_size: int | None,
    resume: bool,
    force: bool,
    shard: str | None,
    num_workers: int | None,
    gpus_per_worker: float | None,
) -> RayJob:
    """Return the batch that was asked for.

    Raises:
        UsageError: options that make no sense together.
        NanoGPTError: Ray is not installed.
    """
    if prompts == STDIO:
        raise UsageError(
            "--engine ray cannot read prompts from standard input: its workers have none",
            hint="name a file that they can read",
        )
    if output in (None, STDIO):
        raise UsageError(
            "--engine ray writes a folder of parts, and none is named",
            hint="add --output FOLDER; cat FOLDER/part-*.jsonl is the whole",
        )
    if shard is not None:
        raise UsageError(
            "--shard splits the rows among runs, and --engine ray among its own workers",
            hint="leave one of them out",
        )
    if resume and force:
        raise UsageError(
            "--resume keeps what is in the output, and --force replaces it",
            hint="leave one of them out",
        )
    if num_workers is not None and num_workers < 1:
        raise UsageError(
            f"--num-workers {num_workers}: it must be at least 1",
            hint="leave it out for as many as suit the cluster",
        )
    if gpus_per_worker is not None and not 0 <= gpus_per_worker <= 1:
        raise UsageError(
            f"--gpus-per-worker {gpus_per_worker:g}: it must be 0 to 1, since a worker computes "
            "on one GPU",
            hint="--num-workers N uses N of them",
        )
    require_ray()
    return RayJob(prompts, str(output), batch_size, resume, force, num_workers, gpus_per_worker)


def refuse_workers(num_workers: int | None, gpus_per_worker: float | None) -> None:
    """Refuse what is about workers where there are none.

    Raises:
        UsageError: it is given.
    """
    given = {"--num-workers": num_workers, "--gpus-per-worker": gpus_per_worker}
    for flag, value in given.items():
        if value is not None:
            raise UsageError(
                f"{flag} is about the workers of --engine ray", hint="add --engine ray"
            )


def check_device(device: str) -> None:
    """Refuse a device that workers are not placed on.

    Raises:
        UsageError: it is one.
    """
    if re.fullmatch("cuda:[0-9]+", device):
        raise UsageError(
            f"--device {device}: Ray gives each worker its GPU", hint="give --device cuda"
        )
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(
            f"--device {device}: the workers of --engine ray compute on CPUs or CUDA GPUs",
            hint="give auto, cpu or cuda",
        )


def require_ray() -> None:
    """Refuse to go on without Ray Data; nothing of it is imported.

    Raises:
        NanoGPTError: it is not installed.
    """
    if find_spec("ray") is None or find_spec("pyarrow") is None:
        raise NanoGPTError("--engine ray needs Ray Data, which is not installed", hint=INSTALL)
