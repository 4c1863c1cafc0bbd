"""Option types that several commands share: one spelling, one help text, one help panel each.

Ranges are checked by the library, whose messages say more than Typer's; here only the type is.
So is whether a file can be read (`readable=False`): a file that cannot is no wrong command line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from nanogpt_cli import candidates
from nanogpt_cli.sampling import PIPELINE, Filter
from nanogpt_cli.tokenizers import TOKENIZERS

TOKENIZER_NAMES = {kind.name: kind.summary for kind in TOKENIZERS}
DEVICE_NAMES = {
    "auto": "the first of CUDA, MPS and the CPU that is there",
    "cpu": "the processor",
    "cuda": "the first NVIDIA or AMD GPU",
    "mps": "an Apple GPU",
}
"""What the shell completes, with what it is."""

PROMPT = "Prompt"
SAMPLING = "Sampling"
BATCH = "Many prompts"
MODEL = "Model"
OUTPUT = "Output"
GENERAL = "General"
"""Help panels, in the order in which a long command shows them."""

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Rng = Literal["per-sample", "nanogpt"]
Color = Literal["off", "prob"]
Engine = Literal["local", "ray"]


def checkpoint_argument(metavar: str = "CKPT", *, default: str = "") -> Any:
    """Return the argument that names a checkpoint, the same for every command."""
    return typer.Argument(
        metavar=metavar,
        show_default=default or False,
        autocompletion=candidates.checkpoints,
        help="A ckpt.pt, a folder with one, a Hugging Face folder, a .safetensors file, a hub name "
        "such as gpt2 or owner/name, or demo (the small model in the package).",
    )


CheckpointArg = Annotated[
    str | None, checkpoint_argument(default="out/ckpt.pt if it is there, else demo")
]

PromptOpt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        "-p",
        "--start",
        rich_help_panel=PROMPT,
        metavar="TEXT",
        show_default="what is piped in, else a newline",
        help="Text to continue; FILE:path reads it from a file, - from standard input.",
    ),
]
SpecialOpt = Annotated[
    bool,
    typer.Option(
        "--special/--no-special",
        rich_help_panel=PROMPT,
        help="Read <|endoftext|> in the prompt as the end-of-text token, or as plain text.",
    ),
]
InteractiveOpt = Annotated[
    bool,
    typer.Option(
        "--interactive",
        "-i",
        rich_help_panel=PROMPT,
        help="Keep the model loaded and read a prompt a line, or a command such as "
        "/set temperature 0.5; /help lists them.",
    ),
]
TokenizerOpt = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        rich_help_panel=PROMPT,
        metavar="NAME|PATH",
        show_default="what lies beside the checkpoint",
        autocompletion=candidates.named(TOKENIZER_NAMES, or_files=True),
        help="How text becomes token ids: gpt2, char, ids (numbers in and out), a folder with "
        "tokenizer.json or vocab.json and merges.txt, or a .tiktoken file.",
    ),
]
MetaOpt = Annotated[
    Path | None,
    typer.Option(
        "--meta",
        metavar="FILE",
        readable=False,
        rich_help_panel=PROMPT,
        show_default="beside the checkpoint, else data/<dataset>/meta.pkl",
        help="The meta.pkl with the character table; it is read, never executed.",
    ),
]

NumSamplesOpt = Annotated[
    int,
    typer.Option(
        "--num-samples", "-n", rich_help_panel=SAMPLING, help="Texts to draw for each prompt."
    ),
]
MaxNewTokensOpt = Annotated[
    int,
    typer.Option(
        "--max-new-tokens",
        "-m",
        rich_help_panel=SAMPLING,
        help="Tokens to add to the prompt, at most; 0 adds none. It may be more than the model's "
        "context.",
    ),
]
SeedOpt = Annotated[
    int,
    typer.Option(
        "--seed",
        "-s",
        rich_help_panel=SAMPLING,
        help="A whole number that fixes the draws: with the same prompt and settings it gives the "
        "same text.",
    ),
]
RngOpt = Annotated[
    Rng,
    typer.Option(
        "--rng",
        rich_help_panel=SAMPLING,
        help="How the seed is used. per-sample: each text depends on the seed, its prompt and its "
        "number alone. nanogpt: sample.py's texts, token for token; slow, without a cache.",
    ),
]
StopOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="TEXT",
        rich_help_panel=SAMPLING,
        show_default=False,
        help="End a sample just before this text would appear in its new part. May be given "
        "several times.",
    ),
]
IgnoreEosOpt = Annotated[
    bool,
    typer.Option(
        "--ignore-eos",
        rich_help_panel=SAMPLING,
        help="Go on after an end-of-text token instead of ending the sample there.",
    ),
]

PromptsOpt = Annotated[
    str | None,
    typer.Option(
        "--prompts",
        metavar="FILE",
        autocompletion=candidates.files,
        rich_help_panel=BATCH,
        show_default=False,
        help="Continue every prompt of a file, - for standard input: a plain line each, or, where "
        'the first line is a JSON object with a prompt, JSON Lines: {"prompt": "...", "id": "...", '
        '"seed": 1}, of which id and seed may be left out. Blank lines are skipped. The samples '
        "come as JSON, a line each, in the order of the prompts.",
    ),
]
RowsOpt = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        autocompletion=candidates.files,
        rich_help_panel=BATCH,
        show_default="standard output",
        help="Where the samples of --prompts go; a line is written when it is whole. With --engine "
        "ray a folder of parts, or a URI of one.",
    ),
]
BatchSizeOpt = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        rich_help_panel=BATCH,
        show_default="what memory allows",
        help="Samples to make side by side, at most. More is faster and takes more memory; the "
        "texts stay the same.",
    ),
]
ResumeOpt = Annotated[
    bool,
    typer.Option(
        "--resume",
        rich_help_panel=BATCH,
        help="Go on with the output of an interrupted run: keep its rows and make the others.",
    ),
]
ReplaceOpt = Annotated[
    bool,
    typer.Option("--force", rich_help_panel=BATCH, help="Replace an output that exists already."),
]
ShardOpt = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        rich_help_panel=BATCH,
        show_default="RANK and WORLD_SIZE, else all",
        help="Take only the prompts I, I+N, I+2N and so on, counted from 0: the work of one of N "
        "machines.",
    ),
]
EngineOpt = Annotated[
    Engine,
    typer.Option(
        "--engine",
        rich_help_panel=BATCH,
        help="Who makes the samples of --prompts: this process, or the workers of a Ray cluster "
        "(the one that RAY_ADDRESS names, else one started on this machine). The rows are the "
        "same.",
    ),
]
NumWorkersOpt = Annotated[
    int | None,
    typer.Option(
        "--num-workers",
        rich_help_panel=BATCH,
        show_default="one a GPU, else one a machine",
        help="With --engine ray: workers, each with a model of its own. --threads is for each.",
    ),
]
GpusPerWorkerOpt = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-worker",
        rich_help_panel=BATCH,
        show_default="1 where there are GPUs, else 0",
        help="With --engine ray: 0 computes on CPUs, 0.5 lets two workers share a GPU.",
    ),
]

DeviceOpt = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        rich_help_panel=MODEL,
        autocompletion=candidates.named(DEVICE_NAMES),
        help="Where to compute: auto, cpu, cuda, cuda:1 or mps; auto takes CUDA, else MPS, else "
        "the CPU.",
    ),
]
DtypeOpt = Annotated[
    Dtype,
    typer.Option(
        "--dtype",
        rich_help_panel=MODEL,
        help="Number format of the computation; auto is bfloat16 on CUDA where supported, float16 "
        "on older cards, float32 on CPU and MPS.",
    ),
]
CompileOpt = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile",
        rich_help_panel=MODEL,
        show_default="auto",
        help="Use a decode step compiled for this CPU, kept for later runs: faster, and each text "
        "is the same bit for bit whatever shares its batch, which torch's own products and CUDA "
        "cannot promise (about one token in 100,000 differs). auto compiles (some seconds, once) "
        "for runs long enough to earn it and for batches; where it cannot be, torch computes. "
        "On CUDA: whether to capture the step as a graph.",
    ),
]
QuantizeOpt = Annotated[
    Literal["int8"] | None,
    typer.Option(
        "--quantize",
        rich_help_panel=MODEL,
        show_default=False,
        help="Keep the weights in 8 bits with a scale a row, and compute in the dtype: about four "
        "times as fast a token as float32 with the compiled step; the loss of the models measured "
        "here changed by less than 0.01 %.",
    ),
]
WindowStrideOpt = Annotated[
    int,
    typer.Option(
        "--window-stride",
        metavar="N",
        rich_help_panel=MODEL,
        help="Past block_size: 1 runs the last block_size ids afresh for every token, as nanoGPT "
        "does; N drops the oldest N at once and goes on cached, much faster, with other texts.",
    ),
]
ThreadsOpt = Annotated[
    int | None,
    typer.Option(
        "--threads",
        rich_help_panel=MODEL,
        show_default="physical cores",
        help="CPU threads to compute with; more than there are cores is slower.",
    ),
]
NHeadOpt = Annotated[
    int | None,
    typer.Option(
        "--n-head",
        rich_help_panel=MODEL,
        show_default=False,
        help="Number of attention heads, for a file that holds weights alone and does not say it.",
    ),
]
OfflineOpt = Annotated[
    bool,
    typer.Option(
        "--offline",
        envvar=["NANOGPT_OFFLINE", "HF_HUB_OFFLINE"],
        rich_help_panel=MODEL,
        help="Fetch nothing from the hub: use local files and what was downloaded before.",
    ),
]

EchoOpt = Annotated[
    bool,
    typer.Option(
        "--echo/--no-echo",
        rich_help_panel=OUTPUT,
        help="Print the prompt before its text, or the new part alone.",
    ),
]
StreamOpt = Annotated[
    bool,
    typer.Option(
        "--stream/--no-stream",
        rich_help_panel=OUTPUT,
        help="Print each character when it is complete, or each text when it is done. The bytes "
        "are the same.",
    ),
]
JsonOpt = Annotated[
    bool,
    typer.Option(
        "--json", rich_help_panel=OUTPUT, help="Print JSON with raw numbers instead of text."
    ),
]
ColorOpt = Annotated[
    Color,
    typer.Option(
        "--color",
        rich_help_panel=OUTPUT,
        help="prob: colour each token by the probability that the model gave it before any filter; "
        "the legend is on stderr. In a pipe text stays plain, unless FORCE_COLOR is set.",
    ),
]
LogprobsOpt = Annotated[
    int | None,
    typer.Option(
        "--logprobs",
        metavar="N",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="Add to the JSON each token's log-probability before any filter, in nats, and the N "
        "likeliest tokens in its place; 0 adds no others.",
    ),
]
OutputOpt = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        rich_help_panel=OUTPUT,
        show_default="beside the input, named after it",
        help="Where to write the result.",
    ),
]
ForceOpt = Annotated[
    bool,
    typer.Option("--force", rich_help_panel=OUTPUT, help="Replace an output that exists already."),
]

ConfigOpt = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        readable=False,
        is_eager=True,
        rich_help_panel=GENERAL,
        show_default=False,
        help="Read options from a TOML file or a nanoGPT config/*.py (read, never executed). "
        "Flags win over NANOGPT_* variables such as NANOGPT_TOP_K, those over the file.",
    ),
]
QuietOpt = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", rich_help_panel=GENERAL, help="Print no notes on stderr; errors stay."
    ),
]
DebugOpt = Annotated[
    bool,
    typer.Option("--debug", rich_help_panel=GENERAL, help="Show a traceback with an error."),
]
InitFromOpt = Annotated[
    str | None,
    typer.Option("--init-from", hidden=True, help="nanoGPT's: resume, or a GPT-2 name."),
]
OutDirOpt = Annotated[
    Path | None,
    typer.Option(
        "--out-dir",
        readable=False,
        hidden=True,
        help="nanoGPT's: the folder that holds ckpt.pt.",
    ),
]


def with_filter_options(before: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command with `**filters` an option for each of PIPELINE.

    Args:
        before: the parameter that they stand before in the help.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        place = [p.name for p in named].index(before)
        named[place:place] = [_filter_option(cls) for cls in PIPELINE]
        keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in named]
        command.__signature__ = signature.replace(parameters=keywords)  # type: ignore[attr-defined]
        return command

    return decorate


def _filter_option(cls: type[Filter]) -> inspect.Parameter:
    flags = ["--" + cls.option.replace("_", "-"), *(["-" + cls.short] if cls.short else [])]
    option = typer.Option(*flags, rich_help_panel=SAMPLING, help=cls.help)
    return inspect.Parameter(
        cls.option,
        inspect.Parameter.KEYWORD_ONLY,
        default=cls.default,
        annotation=Annotated[type(cls.default), option],
    )
