"""`nanogpt sample`: continue a prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from nanogpt_cli import options, output
from nanogpt_cli.errors import UsageError

if TYPE_CHECKING:
    from nanogpt_cli.checkpoints import Checkpoint
    from nanogpt_cli.generation.prompt import Prompt
    from nanogpt_cli.generation.report import Timing
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.generation.settings import SampleSettings
    from nanogpt_cli.generation.text import Piece

SEPARATOR = "-" * 15


@options.with_filter_options(before="seed")
def sample(
    checkpoint: options.CheckpointArg = None,
    prompt: options.PromptOpt = None,
    special: options.SpecialOpt = True,
    tokenizer: options.TokenizerOpt = None,
    meta: options.MetaOpt = None,
    num_samples: options.NumSamplesOpt = 1,
    max_new_tokens: options.MaxNewTokensOpt = 500,
    seed: options.SeedOpt = 1337,
    rng: options.RngOpt = "per-sample",
    stop: options.StopOpt = None,
    ignore_eos: options.IgnoreEosOpt = False,
    n_head: options.NHeadOpt = None,
    device: options.DeviceOpt = "auto",
    dtype: options.DtypeOpt = "auto",
    threads: options.ThreadsOpt = None,
    offline: options.OfflineOpt = False,
    echo: options.EchoOpt = True,
    stream: options.StreamOpt = True,
    json: options.JsonOpt = False,
    logprobs: options.LogprobsOpt = None,
    **filters: float,
) -> None:
    """Continue a prompt with a checkpoint's own words.

    A token is drawn from the model's logits after, in this order: repetition penalty, temperature,
    top-k, top-p, min-p.

    Example: nanogpt sample out/ckpt.pt --prompt "ROMEO:" --temperature 0.7 -m 200
    """
    from nanogpt_cli.checkpoints import open_checkpoint
    from nanogpt_cli.generation.devices import use_threads
    from nanogpt_cli.generation.prompt import read_prompt
    from nanogpt_cli.generation.report import Timing
    from nanogpt_cli.generation.session import Session
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
    )
    if logprobs is not None and not json:
        raise UsageError("--logprobs are printed in JSON alone", hint="add --json")
    opened = open_checkpoint(checkpoint, n_head=n_head, offline=offline)
    output.note(f"sampling {name_checkpoint(opened)}")
    use_threads(threads)
    session = Session(opened, tokenizer=tokenizer, meta=meta, device=device, dtype=dtype)
    encoded = session.encode(read_prompt(prompt, _stdin()), special=settings.special)
    for message in (*session.notes, *encoded.notes, *session.advise(settings)):
        output.note(message)
    timing = Timing()
    pieces = session.sample(encoded, settings, timing)
    if json:
        _write_json(session, encoded, settings, pieces)
    else:
        _write_text(pieces, session.opening(encoded) if echo else "", stream=stream)
        output.close_with(summarise(session, settings, timing))


def name_checkpoint(checkpoint: Checkpoint) -> str:
    """Return which weights are used, and how far they were trained."""
    located = checkpoint.located
    named = str(located.path)
    if located.kind == "hub":
        named = f"{located.given} at {(located.revision or 'an unknown revision')[:12]}"
    facts = [named]
    if checkpoint.iter_num is not None:
        facts.append(f"iter_num {checkpoint.iter_num}")
    if checkpoint.best_val_loss is not None:
        facts.append(f"best_val_loss {checkpoint.best_val_loss:.4f}")
    return ", ".join(facts)


def summarise(session: Session, settings: SampleSettings, timing: Timing) -> str:
    """Return the closing line of a run in text mode."""
    facts = [f"{timing.new_tokens} tokens" if timing.new_tokens != 1 else "1 token"]
    if timing.tokens_per_second is not None and timing.first_token_seconds is not None:
        facts.append(f"{timing.tokens_per_second:.1f} tokens/s")
        facts.append(f"first token after {output.format_seconds(timing.first_token_seconds)}")
    facts += [str(session.device), session.dtype_name, f"seed {settings.seed}"]
    facts.append(f"finished by {' and '.join(timing.finish_reasons)}")
    return ", ".join(facts)


def _stdin() -> BinaryIO | None:
    return getattr(sys.stdin, "buffer", None)


def _write_text(pieces: Iterator[Piece], opening: str, *, stream: bool) -> None:
    """Print samples with a line of hyphens between, as they grow or each when it is done."""
    held: list[str] = []
    write = output.write_text if stream else held.append
    started = False
    for piece in pieces:
        if not started:
            write((f"{SEPARATOR}\n" if piece.index else "") + opening)
            started = True
        if piece.text:
            write(piece.text)
        if piece.finish_reason is not None:
            write("\n")
            started = False
            output.write_text("".join(held))
            held.clear()


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
