"""`nanogpt convert`: the same model in another format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nanogpt_cli.errors import UsageError
from nanogpt_cli.options.checkpoint import checkpoint_argument
from nanogpt_cli.options.model import NHeadOpt, OfflineOpt
from nanogpt_cli.options.output import DryRunOpt, ForceOpt, JsonOpt
from nanogpt_cli.options.panels import MODEL, OUTPUT
from nanogpt_cli.options.prompt import MetaOpt, TokenizerOpt
from nanogpt_cli.output import emit, note

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nanogpt_cli.conversion import ConversionReport

Target = Literal["nanogpt", "hf", "safetensors"]
Dtype = Literal["float32", "bfloat16", "float16"]
Activation = Literal["gelu", "gelu_tanh"]

SourceArg = Annotated[str, checkpoint_argument("SRC")]
OutputOpt = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="Where to write the result: a file, or a folder for hf. It must be given.",
    ),
]
ToOpt = Annotated[
    Target | None,
    typer.Option(
        "--to",
        rich_help_panel=OUTPUT,
        show_default="by the output's name",
        help="nanogpt: a ckpt.pt that stock nanoGPT loads. hf: a folder that transformers loads. "
        "safetensors: one file with nanoGPT's names. The endings .pt, none and .safetensors mean "
        "these.",
    ),
]
DtypeOpt = Annotated[
    Dtype | None,
    typer.Option(
        "--dtype",
        envvar="NANOGPT_CONVERT_DTYPE",
        rich_help_panel=MODEL,
        show_default="each tensor's own",
        help="Number format of the weights in the output.",
    ),
]
ActivationOpt = Annotated[
    Activation | None,
    typer.Option(
        "--activation",
        rich_help_panel=MODEL,
        show_default="the source's",
        help="The MLP's function, for a source that says it wrongly or not at all. gelu: exact, as "
        "nanoGPT's. gelu_tanh: the approximation of OpenAI's GPT-2.",
    ),
]
WeightsOnlyOpt = Annotated[
    bool,
    typer.Option(
        "--weights-only",
        rich_help_panel=MODEL,
        help="Leave out the optimizer and all other entries: the file has a third of the size, and "
        "cannot resume training.",
    ),
]
TrimVocabOpt = Annotated[
    bool,
    typer.Option(
        "--trim-vocab",
        rich_help_panel=MODEL,
        help="Drop the last rows of the embedding, of ids that the tokenizer lacks: they only pad "
        "it.",
    ),
]
FreshOptimizerOpt = Annotated[
    bool,
    typer.Option(
        "--fresh-optimizer",
        rich_help_panel=MODEL,
        help="Add an AdamW state that has seen no step, so that train.py can resume and fine-tune "
        "the model.",
    ),
]
DropZeroBiasesOpt = Annotated[
    bool,
    typer.Option(
        "--drop-zero-biases",
        rich_help_panel=MODEL,
        help="Write a model without biases (bias=False). All of them must be zero.",
    ),
]
VerifyOpt = Annotated[
    bool,
    typer.Option(
        "--verify/--no-verify",
        rich_help_panel=OUTPUT,
        help="Read the result again, compare every tensor and the logits with the source's, and "
        "keep it only if it is the same model.",
    ),
]


def convert(
    source: SourceArg,
    output: OutputOpt = None,
    to: ToOpt = None,
    dtype: DtypeOpt = None,
    activation: ActivationOpt = None,
    n_head: NHeadOpt = None,
    weights_only: WeightsOnlyOpt = False,
    trim_vocab: TrimVocabOpt = False,
    fresh_optimizer: FreshOptimizerOpt = False,
    drop_zero_biases: DropZeroBiasesOpt = False,
    tokenizer: TokenizerOpt = None,
    meta: MetaOpt = None,
    offline: OfflineOpt = False,
    verify: VerifyOpt = True,
    dry_run: DryRunOpt = False,
    force: ForceOpt = False,
    json: JsonOpt = False,
) -> None:
    """Write a checkpoint in another format: the same model, checked.

    Nothing is lost by default: types, padded rows, an untied head and, from one .pt to another,
    the optimizer are kept.

    Examples:

        nanogpt convert gpt2 -o gpt2.pt
        nanogpt convert out/ckpt.pt -o my-gpt --to hf
        nanogpt convert out/ckpt.pt -o small.safetensors --dtype bfloat16
    """
    from nanogpt_cli.commands.progress import show_progress
    from nanogpt_cli.conversion import ConversionSettings, choose_target
    from nanogpt_cli.conversion import convert as convert_checkpoint

    if output is None:
        raise UsageError("no output was named", hint="give -o OUT, such as -o gpt2.pt")
    settings = ConversionSettings(
        to=choose_target(output, to),
        dtype=dtype,
        weights_only=weights_only,
        trim_vocab=trim_vocab,
        activation=activation,
        fresh_optimizer=fresh_optimizer,
        drop_zero_biases=drop_zero_biases,
    )
    with show_progress("converting", in_bytes=True, finally_="verifying") as progress:
        report = convert_checkpoint(
            source,
            output,
            settings,
            n_head=n_head,
            offline=offline,
            tokenizer=tokenizer,
            meta=meta,
            verify=verify,
            dry_run=dry_run,
            force=force,
            progress=progress,
        )
    for message in report.notes:
        note(message)
    emit(report, json, render)


def render(report: ConversionReport) -> RenderableType:
    """Return the report as a table of facts."""
    from nanogpt_cli.commands.convert.tables import render_conversion

    return render_conversion(report)
