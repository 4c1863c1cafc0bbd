"""`nanogpt sample`: continue a prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import typer

from nanogpt_cli import options, output
from nanogpt_cli.commands import sample_batch, sample_batch_plan, sample_ray
from nanogpt_cli.commands.caches import cache_folder
from nanogpt_cli.commands.interactive import converse
from nanogpt_cli.commands.sample_color import choose_paint
from nanogpt_cli.commands.sample_ray_plan import RayJob
from nanogpt_cli.commands.sample_text import Manner, print_samples
from nanogpt_cli.errors import UsageError

if TYPE_CHECKING:
    from nanogpt_cli.checkpoints import Checkpoint
    from nanogpt_cli.generation.prompt import Prompt
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.settings import SampleSettings
    from nanogpt_cli.generation.text import Piece


NOT_EVALUATED = 1e9
"""What train.py has for a loss before it measured one."""


@options.with_filter_options(before="seed")
def sample(
    checkpoint: options.CheckpointArg = None,
    prompt: options.PromptOpt = None,
    interactive: options.InteractiveOpt = False,
    special: options.SpecialOpt = True,
    tokenizer: options.TokenizerOpt = None,
    meta: options.MetaOpt = None,
    num_samples: options.NumSamplesOpt = 1,
    max_new_tokens: options.MaxNewTokensOpt = 500,
    seed: options.SeedOpt = 1337,
    rng: options.RngOpt = "per-sample",
    stop: options.StopOpt = None,
    ignore_eos: options.IgnoreEosOpt = False,
    prompts: options.PromptsOpt = None,
    output_file: options.RowsOpt = None,
    batch_size: options.BatchSizeOpt = None,
    resume: options.ResumeOpt = False,
    force: options.ReplaceOpt = False,
    shard: options.ShardOpt = None,
    engine: options.EngineOpt = "local",
    num_workers: options.NumWorkersOpt = None,
    gpus_per_worker: options.GpusPerWorkerOpt = None,
    n_head: options.NHeadOpt = None,
    device: options.DeviceOpt = "auto",
    dtype: options.DtypeOpt = "auto",
    quantize: options.QuantizeOpt = None,
    compile: options.CompileOpt = None,
    window_stride: options.WindowStrideOpt = 1,
    threads: options.ThreadsOpt = None,
    offline: options.OfflineOpt = False,
    echo: options.EchoOpt = True,
    stream: options.StreamOpt = True,
    color: options.ColorOpt = "off",
    json: options.JsonOpt = False,
    logprobs: options.LogprobsOpt = None,
    **filters: float,
) -> None:
    """Continue a prompt with a checkpoint's own words.

    A token is drawn from the model's logits after, in this order: repetition penalty, temperature,
    top-k, top-p, min-p.

    Examples:

        nanogpt sample --prompt "To be"
        nanogpt sample out/ckpt.pt --prompt "ROMEO:" --temperature 0.7 -m 200
        nanogpt sample gpt2 --prompts prompts.txt -o samples.jsonl
    """
    from nanogpt_cli.checkpoints import open_checkpoint
    from nanogpt_cli.generation.settings import SampleSettings

    settings = SampleSettings(
        num_samples=num_samples,
        max_new_tokens=max_new_tokens,
        filters=filters,
        seed=seed,
        rng=rng,
        stop=tuple(stop or ()),
        ignore_eos=ignore_eos,
        special=special,
        logprobs=logprobs,
        window_stride=window_stride,
    )
    if logprobs is not None and not json and prompts is None:
        raise UsageError("--logprobs are printed in JSON alone", hint="add --json")
    _refuse_odd_company(color=color, interactive=interactive, json=json, rng=rng, prompt=prompt)
    batch = sample_batch_plan.plan(
        prompts,
        output_file,
        batch_size=batch_size,
        resume=resume,
        force=force,
        shard=shard,
        engine=engine,
        num_workers=num_workers,
        gpus_per_worker=gpus_per_worker,
        prompt=prompt,
        rng=rng,
        color=color,
        interactive=interactive,
    )
    opened = open_checkpoint(checkpoint, n_head=n_head, offline=offline)
    output.note(f"sampling {name_checkpoint(opened)}")
    # Only now torch, which takes a second: what is wrong with the command line is told at once.
    from nanogpt_cli.generation.devices import use_threads
    from nanogpt_cli.generation.prompt import read_prompt
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.steps.choose import StepChoice

    if isinstance(batch, RayJob):
        flags = sample_ray.SessionFlags(
            n_head, offline, tokenizer, meta, device, dtype, quantize, compile, threads
        )
        sample_ray.run(batch, opened, settings, flags)
        return
    use_threads(threads)
    choice = StepChoice(quantize, "auto" if compile is None else compile, threads, cache_folder())
    session = Session(
        opened,
        tokenizer=tokenizer,
        meta=meta,
        device=device,
        dtype=dtype,
        choice=choice,
        notify=output.note,
    )
    for message in session.notes:
        output.note(message)
    if batch is not None:
        sample_batch.run(batch, session, settings)
        return
    if interactive:
        raise typer.Exit(
            converse(session, settings, Manner(echo, stream, choose_paint(color)), prompt)
        )
    encoded = session.encode(read_prompt(prompt, _stdin()), special=settings.special)
    for message in (*encoded.notes, *session.advise(settings)):
        output.note(message)
    if json:
        _write_json(session, encoded, settings, session.sample(encoded, settings))
        return
    manner = Manner(echo, stream, choose_paint(color))
    print_samples(session, encoded, manner.scored(settings), manner)


def name_checkpoint(checkpoint: Checkpoint) -> str:
    """Return which weights are used, and how far they were trained."""
    located = checkpoint.located
    named = str(located.path)
    if located.kind == "hub":
        named = f"{located.given} at {(located.revision or 'an unknown revision')[:12]}"
    facts = [named]
    if checkpoint.iter_num is not None:
        facts.append(f"iter_num {checkpoint.iter_num}")
    if checkpoint.best_val_loss is not None and checkpoint.best_val_loss < NOT_EVALUATED:
        facts.append(f"best_val_loss {checkpoint.best_val_loss:.4f}")
    return ", ".join(facts)


def _refuse_odd_company(
    *, color: str, interactive: bool, json: bool, rng: str, prompt: str | None
) -> None:
    """Refuse flags that leave nothing to do for each other."""
    if color != "off" and json:
        raise UsageError(
            f"--color {color} is for text, and --json prints none",
            hint="--logprobs 0 adds the probabilities to the JSON",
        )
    if color != "off" and rng == "nanogpt":
        raise UsageError(
            f"--rng nanogpt is sample.py's own loop, which gives no --color {color}",
            hint="leave one of them out",
        )
    if interactive and json:
        raise UsageError(
            "--interactive prints text, and --json asks for rows",
            hint="--prompts FILE reads many prompts and writes rows",
        )
    if interactive and prompt == "-":
        raise UsageError(
            "--interactive reads standard input itself, and --prompt - would leave it nothing",
            hint="leave out --prompt -",
        )


def _stdin() -> BinaryIO | None:
    return getattr(sys.stdin, "buffer", None)


def _write_json(
    session: Session, prompt: Prompt, settings: SampleSettings, pieces: Iterator[Piece]
) -> None:
    """Print a JSON object a line for every sample, each when it is done."""
    held: list[Piece] = []
    for piece in pieces:
        held.append(piece)
        if piece.finish_reason is not None:
            output.write_text(output.to_json(session.report(prompt, settings, held)) + "\n")
            held = []
