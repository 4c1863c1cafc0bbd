"""`nanogpt sample`: continue a prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import typer

from nanogpt_cli import output
from nanogpt_cli.commands.caches import cache_folder
from nanogpt_cli.commands.naming import tell_checkpoint
from nanogpt_cli.commands.sample import batch, batch_plan, on_ray
from nanogpt_cli.commands.sample.color import choose_paint
from nanogpt_cli.commands.sample.company import refuse_odd_company
from nanogpt_cli.commands.sample.interactive import converse
from nanogpt_cli.commands.sample.ray_plan import RayJob
from nanogpt_cli.commands.sample.text import Manner, print_samples
from nanogpt_cli.options.batch import (
    BatchSizeOpt,
    EngineOpt,
    GpusPerWorkerOpt,
    NumWorkersOpt,
    PromptsOpt,
    ReplaceOpt,
    ResumeOpt,
    RowsOpt,
    ShardOpt,
)
from nanogpt_cli.options.checkpoint import CheckpointArg
from nanogpt_cli.options.model import (
    CompileOpt,
    DeviceOpt,
    DtypeOpt,
    NHeadOpt,
    OfflineOpt,
    QuantizeOpt,
    ThreadsOpt,
    WindowStrideOpt,
)
from nanogpt_cli.options.output import ColorOpt, EchoOpt, JsonOpt, LogprobsOpt, StreamOpt
from nanogpt_cli.options.prompt import InteractiveOpt, MetaOpt, PromptOpt, SpecialOpt, TokenizerOpt
from nanogpt_cli.options.sampling import (
    IgnoreEosOpt,
    MaxNewTokensOpt,
    NumSamplesOpt,
    RngOpt,
    SeedOpt,
    StopOpt,
    with_filter_options,
)

if TYPE_CHECKING:
    from nanogpt_cli.checkpoints import Checkpoint
    from nanogpt_cli.generation.prompt import Prompt
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.settings import SampleSettings
    from nanogpt_cli.generation.text import Piece
    from nanogpt_cli.generation.vocabulary import Vocabulary


@with_filter_options(before="seed")
def sample(
    checkpoint: CheckpointArg = None,
    prompt: PromptOpt = None,
    interactive: InteractiveOpt = False,
    special: SpecialOpt = True,
    tokenizer: TokenizerOpt = None,
    meta: MetaOpt = None,
    num_samples: NumSamplesOpt = 1,
    max_new_tokens: MaxNewTokensOpt = 500,
    seed: SeedOpt = 1337,
    rng: RngOpt = "per-sample",
    stop: StopOpt = None,
    ignore_eos: IgnoreEosOpt = False,
    prompts: PromptsOpt = None,
    output_file: RowsOpt = None,
    batch_size: BatchSizeOpt = None,
    resume: ResumeOpt = False,
    force: ReplaceOpt = False,
    shard: ShardOpt = None,
    engine: EngineOpt = "local",
    num_workers: NumWorkersOpt = None,
    gpus_per_worker: GpusPerWorkerOpt = None,
    n_head: NHeadOpt = None,
    device: DeviceOpt = "auto",
    dtype: DtypeOpt = "auto",
    quantize: QuantizeOpt = None,
    compile: CompileOpt = None,
    window_stride: WindowStrideOpt = 1,
    threads: ThreadsOpt = None,
    offline: OfflineOpt = False,
    echo: EchoOpt = True,
    stream: StreamOpt = True,
    color: ColorOpt = "off",
    json: JsonOpt = False,
    logprobs: LogprobsOpt = None,
    **filters: float,
) -> None:
    """Continue a prompt with a checkpoint's own words.

    A token is drawn from the model's logits after, in this order:
    {filters}.

    Examples:

        nanogpt sample --prompt "To be"
        nanogpt sample out/ckpt.pt --prompt "ROMEO:" --temperature 0.7 -m 200
        nanogpt sample gpt2 --prompts prompts.txt -o samples.jsonl
    """
    from nanogpt_cli.checkpoints import open_checkpoint
    from nanogpt_cli.generation.device_names import check_device, check_threads
    from nanogpt_cli.generation.prompt import at_hand, read_prompt
    from nanogpt_cli.generation.settings import SampleSettings
    from nanogpt_cli.generation.vocabulary import find_vocabulary

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
    refuse_odd_company(
        color=color,
        interactive=interactive,
        json=json,
        logprobs=logprobs,
        prompt=prompt,
        prompts=prompts,
        quantize=quantize,
        rng=rng,
    )
    check_device(device)
    check_threads(threads)
    job = batch_plan.plan(
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
    tell_checkpoint("sampling", opened)
    vocabulary = find_vocabulary(opened, tokenizer=tokenizer, meta=meta)
    encoded = None
    if job is None and not interactive and at_hand(prompt):
        encoded = vocabulary.encode(read_prompt(prompt, None), special=special)
    if isinstance(job, RayJob):
        flags = on_ray.SessionFlags(
            n_head, offline, tokenizer, meta, device, dtype, quantize, compile, threads
        )
        on_ray.run(job, opened, settings, flags)
        return
    # Only now torch, which takes a second: what is wrong with the command line is told at once.
    session = _open_session(
        opened,
        vocabulary,
        device=device,
        dtype=dtype,
        quantize=quantize,
        compile=compile,
        threads=threads,
    )
    if job is not None:
        batch.run(job, session, settings)
        return
    manner = Manner(echo, stream, choose_paint(color))
    if interactive:
        raise typer.Exit(converse(session, settings, manner, prompt))
    if encoded is None:
        encoded = session.encode(read_prompt(prompt, _stdin()), special=special)
    for message in (*encoded.notes, *session.advise(settings)):
        output.note(message)
    if json:
        _write_json(session, encoded, settings, session.sample(encoded, settings))
        return
    print_samples(session, encoded, manner.scored(settings), manner)


def _open_session(
    checkpoint: Checkpoint,
    vocabulary: Vocabulary,
    *,
    device: str,
    dtype: str,
    quantize: str | None,
    compile: bool | None,
    threads: int | None,
) -> Session:
    """Open a session as the options say, and tell what a user should hear of it."""
    from nanogpt_cli.generation.devices import use_threads
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.steps.choose import StepChoice

    use_threads(threads)
    choice = StepChoice(quantize, "auto" if compile is None else compile, threads, cache_folder())
    session = Session(
        checkpoint,
        vocabulary=vocabulary,
        device=device,
        dtype=dtype,
        choice=choice,
        notify=output.note,
    )
    for message in session.notes:
        output.note(message)
    return session


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
