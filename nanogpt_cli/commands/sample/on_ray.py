"""`nanogpt sample --engine ray`: a file of prompts in, a folder of parts out, made by a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from nanogpt_cli import output
from nanogpt_cli.commands.caches import cache_folder
from nanogpt_cli.commands.sample.batch import ends, note_keys, note_prompts, rates, refuse_failed
from nanogpt_cli.commands.sample.progress import show_progress
from nanogpt_cli.commands.sample.ray_cluster import open_cluster
from nanogpt_cli.commands.sample.ray_output import (
    check_places,
    clear,
    look_before,
    name_everywhere,
    require_parts,
)
from nanogpt_cli.commands.sample.ray_plan import RayJob, check_device
from nanogpt_cli.errors import count_of

if TYPE_CHECKING:
    from nanogpt_cli.checkpoints import Checkpoint
    from nanogpt_cli.generation.parts.job import PartReport, Recipe
    from nanogpt_cli.generation.parts.layout import Layout
    from nanogpt_cli.generation.parts.manifest import Manifest
    from nanogpt_cli.generation.parts.plan import Lines
    from nanogpt_cli.generation.parts.store import Store
    from nanogpt_cli.generation.parts.tally import PartsTally
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.settings import SampleSettings


@dataclass(frozen=True)
class SessionFlags:
    """The flags about the model, as they were given."""

    n_head: int | None
    offline: bool
    tokenizer: str | None
    meta: Path | None
    device: str
    dtype: str
    quantize: str | None
    compile: bool | None
    threads: int | None


def run(job: RayJob, checkpoint: Checkpoint, settings: SampleSettings, flags: SessionFlags) -> None:
    """Have a cluster make a batch's samples, and end with a line that says how it went.

    Raises:
        NanoGPTError: rows without a text (exit code 3), what a worker met, no cluster.
    """
    from nanogpt_cli.generation.devices import use_threads
    from nanogpt_cli.generation.parts.plan import Lines
    from nanogpt_cli.generation.parts.store import Store

    check_device(flags.device)
    use_threads(flags.threads)
    check_places(job)
    recipe = _write_recipe(checkpoint, flags)
    session = replace(recipe, device="cpu" if flags.device == "cpu" else "auto").open()
    for message in (*session.notes, *session.advise(settings)):
        output.note(message)
    with output.status(f"reading {job.prompts}"), Store(job.prompts).open() as stream:
        lines = Lines(stream, repr(job.prompts))
    batch = _Batch(job, session, settings, lines, Store(job.output))
    names = batch.store.list()
    before = look_before(job, batch.store, names)
    with open_cluster() as machines:
        from nanogpt_cli.generation.parts.layout import lay_out

        layout = lay_out(
            machines,
            num_workers=job.num_workers,
            gpus_per_worker=job.gpus_per_worker,
            threads=flags.threads,
            device=flags.device,
        )
        recipe = _complete(recipe, layout, before)
        tally = _make(batch, recipe, layout, before, names)
    _tell(batch, tally, layout)


@dataclass(frozen=True)
class _Batch:
    """What a run has before it has a cluster."""

    job: RayJob
    session: Session
    settings: SampleSettings
    lines: Lines
    store: Store

    @property
    def samples(self) -> int:
        """How many there are to make, if no row is wrong."""
        return self.lines.rows * self.settings.num_samples


def _write_recipe(checkpoint: Checkpoint, flags: SessionFlags) -> Recipe:
    from nanogpt_cli.generation.parts.job import Recipe

    located = checkpoint.located
    reference = str(located.path.absolute())
    if located.kind == "hub":
        name = located.given or ""
        reference = f"{name.partition('@')[0]}@{located.revision}" if located.revision else name
    elif located.kind == "demo":
        reference = "demo"
    return Recipe(
        checkpoint=reference,
        n_head=flags.n_head,
        offline=flags.offline,
        tokenizer=flags.tokenizer,
        meta=flags.meta,
        folder=Path.cwd(),
        device=flags.device,
        dtype=flags.dtype,
        quantize=flags.quantize,
        compile="auto" if flags.compile is None else flags.compile,
        threads=flags.threads,
        cache=cache_folder(),
    )


def _complete(recipe: Recipe, layout: Layout, before: Manifest | None) -> Recipe:
    """Return the recipe with all that is the same for all workers decided, and built once here."""
    from nanogpt_cli.generation.parts.cluster import ask_dtype
    from nanogpt_cli.generation.steps.compiled import CompiledStep

    if layout.gpus:
        dtype = ask_dtype(layout) if recipe.dtype == "auto" else recipe.dtype
        return replace(recipe, device="cuda", dtype=dtype)
    dtype = "float32" if recipe.dtype == "auto" else recipe.dtype
    recipe = replace(recipe, device="cpu", dtype=dtype, threads=layout.threads)
    if recipe.compile is False:
        return recipe
    probe = recipe.open(output.note)
    if before is not None and before.step is not None:
        probe.compute_as(before.step)
    probe.prepare()
    return replace(recipe, compile=probe.engine.step.name == CompiledStep.name)


def _make(
    batch: _Batch, recipe: Recipe, layout: Layout, before: Manifest | None, names: list[str]
) -> PartsTally:
    """Have the parts made; give what is to be told of them."""
    from nanogpt_cli.generation.parts.cluster import run_parts
    from nanogpt_cli.generation.parts.job import PartsJob
    from nanogpt_cli.generation.parts.manifest import MANIFEST
    from nanogpt_cli.generation.parts.tally import PartsTally

    manifest = _begin(batch, recipe, layout, before)
    parts = batch.lines.split(manifest.rows_per_part)
    there = clear(batch.job, batch.store, names, parts)
    batch.store.write(MANIFEST, manifest.to_json().encode())
    job = PartsJob(
        recipe=recipe,
        settings=batch.settings,
        prompts=name_everywhere(batch.job.prompts),
        is_json=batch.lines.is_json,
        output=name_everywhere(batch.job.output),
        batch_size=batch.job.batch_size,
        identity={**batch.session.identity, "dtype": recipe.dtype},
        step=manifest.step,
    )
    tally = PartsTally(started=perf_counter())
    reports = run_parts(job, parts, there, layout, output.to_json)
    with show_progress(tally, lambda: tally.kept, batch.samples, beside_rows=False) as step:
        _follow(reports, tally, step, batch.job.output)
    require_parts(batch.job, batch.store, tally.entries)
    batch.store.write(MANIFEST, tally.complete(manifest).to_json().encode())
    return tally


def _begin(batch: _Batch, recipe: Recipe, layout: Layout, before: Manifest | None) -> Manifest:
    """Return the manifest to begin with, which agrees with the one that is there."""
    from nanogpt_cli.generation.parts.manifest import Manifest
    from nanogpt_cli.generation.parts.plan import choose_rows_per_part
    from nanogpt_cli.generation.steps.compiled import CompiledStep
    from nanogpt_cli.generation.steps.eager import EagerStep

    settings, scored = batch.settings, batch.settings.logprobs
    step = None if layout.gpus else CompiledStep.name if recipe.compile else EagerStep.name
    identity = {**batch.session.identity, "dtype": recipe.dtype}
    manifest = Manifest(
        complete=False,
        rows_per_part=choose_rows_per_part(batch.lines.rows, settings.num_samples, layout.workers)
        if before is None
        else before.rows_per_part,
        num_samples=settings.num_samples,
        seed=settings.seed,
        dtype=recipe.dtype,
        alternatives=None if scored is None else min(scored, batch.session.config.vocab_size),
        step=step,
        settings=settings.as_dict(**identity),
        prompts=batch.lines.rows,
    )
    if before is not None:
        before.check(manifest, batch.job.output)
    return manifest


def _follow(
    reports: Iterator[PartReport], tally: PartsTally, step: Callable[[], None], place: str
) -> None:
    try:
        for report in reports:
            tally.add_part(report)
            for message in report.notes:
                output.note(message)
            step()
    except KeyboardInterrupt:
        newline = "\n" if sys.stderr.isatty() else ""
        output.say(f"{newline}hint: add --resume to go on with {place!r}")
        raise


def _tell(batch: _Batch, tally: PartsTally, layout: Layout) -> None:
    """Say what is worth saying of a finished batch; raise where rows have failed."""
    note_keys(tally.passed_over)
    note_prompts(tally, batch.session.config.block_size)
    facts = [count_of(tally.rows, "row")]
    if tally.kept:
        facts[0] += f" after {tally.kept:,} that were there"
    facts += [count_of(len(tally.entries), "part"), *rates(tally)]
    kind = f"{layout.gpus:g} GPU" if layout.gpus else count_of(layout.threads, "CPU")
    facts += [f"{count_of(layout.workers, 'worker')} of {kind}", f"seed {batch.settings.seed}"]
    facts += ends(tally)
    output.remark(", ".join(facts))
    refuse_failed(tally, tally.failed, tally.rows + tally.kept)
