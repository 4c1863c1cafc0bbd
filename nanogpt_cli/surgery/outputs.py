"""Where a crop goes when nobody says, and the tokenizer that goes along."""

from __future__ import annotations

import os
from pathlib import Path

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.checkpoints.plans import CopyPlan
from nanogpt_cli.checkpoints.writing.atomic import write_file
from nanogpt_cli.errors import NanoGPTError, TokenizerError
from nanogpt_cli.tokenizers.search import locate_tokenizer

COMPANIONS = (
    *("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json"),
)
"""The files of a Hugging Face tokenizer."""


def default_output(checkpoint: Checkpoint, block_size: int) -> Path:
    """Return `ckpt-256.pt` beside the input, `NAME-256` for a folder.

    What a hub or the package holds is not written beside: it goes to the working directory.
    """
    located = checkpoint.located
    path = Path(os.path.abspath(located.path))  # noqa: PTH100 - a link's own place is meant
    if located.kind == "hub":
        name = (located.given or path.name).partition("@")[0].rpartition("/")[2]
        return Path(f"{name}-{block_size}")
    if located.kind == "demo":
        return Path(f"demo-{block_size}.pt")
    if path.is_dir():
        return path.with_name(f"{path.name}-{block_size}")
    return located.path.with_name(f"{path.stem}-{block_size}{path.suffix}")


def carry_tokenizer(checkpoint: Checkpoint, target: Path) -> tuple[str, ...]:
    """Copy a checkpoint's tokenizer beside an output in another folder; return what to say.

    Nothing that is there already is replaced, and nothing here is a failure.
    """
    folder = target.parent
    if os.path.realpath(folder) == os.path.realpath(checkpoint.folder):
        return ()
    try:
        found = locate_tokenizer(
            vocab_size=checkpoint.config.vocab_size,
            near=checkpoint.folder,
            dataset=checkpoint.train_config.get("dataset"),
        )
        if found.path is None:
            return ()
        return tuple(filter(None, (_carry(path, folder) for path in _files(found.path))))
    except TokenizerError as error:
        return (f"no tokenizer was taken along: {error.message}",)


def _files(path: Path) -> list[Path]:
    """Return the files of the tokenizer that a path is, or that lie in it or beside it."""
    folder = path if path.is_dir() else path.parent
    companions = [folder / name for name in COMPANIONS if (folder / name).is_file()]
    return companions if path.is_dir() or path in companions else [path]


def _carry(path: Path, folder: Path) -> str:
    target = folder / path.name
    try:
        if os.path.lexists(target):
            same = target.is_file() and target.read_bytes() == path.read_bytes()
            return "" if same else f"{str(target)!r} is another model's and was left as it is"
        write_file(target, CopyPlan(path))
    except (OSError, NanoGPTError) as error:
        return f"{path.name!r} was not taken along: {error}"
    return f"{path.name!r} was taken along"
