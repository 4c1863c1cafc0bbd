"""What to continue, and how text becomes token ids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nanogpt_cli import candidates
from nanogpt_cli.options.panels import PROMPT
from nanogpt_cli.tokenizers import TOKENIZERS

TOKENIZER_NAMES = {kind.name: kind.summary for kind in TOKENIZERS}
"""What the shell completes, with what it is."""

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
