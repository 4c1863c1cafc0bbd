"""The folder of parts that `--engine ray` writes: what is there, what may go, what must be kept."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from nanogpt_cli.commands.sample.ray_plan import RayJob
from nanogpt_cli.errors import NanoGPTError, UsageError, name_some

if TYPE_CHECKING:
    from nanogpt_cli.generation.parts.manifest import Manifest, PartEntry
    from nanogpt_cli.generation.parts.plan import Part
    from nanogpt_cli.generation.parts.store import Store


def check_places(job: RayJob) -> None:
    """Refuse prompts that lie where the parts are to be, which may be removed.

    Raises:
        UsageError: they do.
    """
    from nanogpt_cli.generation.parts.store import is_uri

    folder, file = job.output.rstrip("/"), job.prompts
    if not is_uri(folder) and not is_uri(file):
        folder, file = os.path.realpath(folder), os.path.realpath(file)
    if file.rpartition("/")[0] == folder:
        raise UsageError(
            f"the output {job.output!r} holds the prompts, which could be lost",
            hint="give --output another name",
        )


def name_everywhere(place: str) -> str:
    """Return a path that does not depend on where a worker starts, or the URI."""
    from nanogpt_cli.generation.parts.store import is_uri

    return place if is_uri(place) else str(Path(place).absolute())


def look_before(job: RayJob, store: Store, names: Collection[str]) -> Manifest | None:
    """Return the manifest of the run to go on with, or None.

    Args:
        names: of the files in the folder.

    Raises:
        UsageError: the folder has parts, and nothing says that they may go, or how they were made.
    """
    from nanogpt_cli.generation.parts.manifest import MANIFEST, read_manifest

    ours = _ours(names)
    if ours and not (job.resume or job.force):
        raise UsageError(
            f"{job.output!r} has {ours[-1]!r} already",
            hint="--resume makes the parts that it lacks, --force makes all anew",
        )
    if not ours or job.force:
        return None
    if MANIFEST not in names:
        raise UsageError(
            f"{job.output!r} has parts and no {MANIFEST}: there is nothing to resume",
            hint="give another --output, or --force to replace the parts",
        )
    return read_manifest(store.read(MANIFEST), store.within(MANIFEST))


def clear(job: RayJob, store: Store, names: Collection[str], parts: Iterable[Part]) -> set[str]:
    """Make the folder, take away what may go, and return the names of files that are kept.

    What a killed run was just writing goes, and with --force all parts do.

    Raises:
        UsageError: the folder has parts that these prompts do not make.
    """
    from nanogpt_cli.generation.parts.plan import other_parts
    from nanogpt_cli.generation.parts.store import UNFINISHED

    going = {name for name in names if UNFINISHED.fullmatch(name)}
    if job.force:
        going.update(_ours(names))
    others = other_parts(set(names) - going, parts)
    if others:
        raise UsageError(
            f"{job.output!r} has parts of rows that the prompts have not: {name_some(others)}",
            hint="give the same prompts as before, or another --output; --force starts again",
        )
    store.make()
    for name in sorted(going):
        store.remove(name)
    return set(names) - going


def _ours(names: Iterable[str]) -> list[str]:
    from nanogpt_cli.generation.parts.manifest import MANIFEST
    from nanogpt_cli.generation.parts.plan import PART_NAME

    return [name for name in names if name == MANIFEST or PART_NAME.fullmatch(name)]


def require_parts(job: RayJob, store: Store, entries: Iterable[PartEntry]) -> None:
    """Refuse to call a folder complete that has not all parts, as seen from here.

    Raises:
        NanoGPTError: it lacks some.
    """
    lost = sorted({entry.name for entry in entries} - set(store.list()))
    if lost:
        raise NanoGPTError(
            f"workers wrote parts that are not in {job.output!r}: {name_some(lost)}",
            hint="with several machines the output must be on a shared disk, or a URI",
        )
