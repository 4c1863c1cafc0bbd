"""Which tokenizer belongs to a checkpoint and whether it fits: facts here, never a failure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.pickles import GlobalUse, scan_globals
from nanogpt_cli.tokenizers.base import Found, TokenizerMissingError
from nanogpt_cli.tokenizers.files import MOST_BYTES, is_file
from nanogpt_cli.tokenizers.search import check_fit, locate_tokenizer

META = "meta.pkl"


@dataclass(frozen=True)
class TokenizerReport:
    """The tokenizer of a checkpoint.

    Args:
        status: "fits", "misfit", "missing", "damaged", or "refused": a pickle that would call
            what no table of tokens needs.
        name: its kind, or None.
        path: the file or folder that decided, or None.
        n_vocab: how many ids it has, or None.
        padding_rows: rows of the model beyond them.
        message: what is wrong; "" where it fits.
        hint: what to do about it.
        notes: about the finding.
        refused: the globals of a refused pickle, with their offsets.
    """

    status: str
    name: str | None = None
    path: str | None = None
    n_vocab: int | None = None
    padding_rows: int = 0
    message: str = ""
    hint: str | None = None
    notes: tuple[str, ...] = ()
    refused: tuple[GlobalUse, ...] = ()


def report_tokenizer(
    checkpoint: Checkpoint, *, tokenizer: str | None = None, meta: Path | None = None
) -> TokenizerReport:
    """Return which tokenizer a checkpoint has, unloaded, and whether it fits.

    Args:
        checkpoint: whose.
        tokenizer: as `--tokenizer`, or None for what lies beside it.
        meta: as `--meta`.

    Raises:
        UsageError: `tokenizer` or `meta` name nothing.
    """
    size = checkpoint.config.vocab_size
    try:
        found = locate_tokenizer(
            vocab_size=size,
            near=checkpoint.folder,
            dataset=checkpoint.train_config.get("dataset"),
            tokenizer=tokenizer,
            meta=meta,
        )
    except TokenizerMissingError as error:
        return TokenizerReport("missing", message=error.message, hint=error.hint)
    except TokenizerError as error:
        return _damaged(checkpoint, meta, error)
    return _fit(found, size)


def _fit(found: Found, size: int) -> TokenizerReport:
    status, message, hint = "fits", "", None
    try:
        check_fit(found, size)
    except TokenizerError as error:
        status, message, hint = "misfit", error.message, error.hint
    padding = size - found.n_vocab if status == "fits" and found.n_vocab is not None else 0
    return TokenizerReport(
        status,
        name=found.name,
        path=None if found.path is None else str(found.path),
        n_vocab=found.n_vocab,
        padding_rows=padding,
        message=message,
        hint=hint,
        notes=found.notes,
    )


def _damaged(checkpoint: Checkpoint, meta: Path | None, error: TokenizerError) -> TokenizerReport:
    """Tell a damaged table from a pickle that is out for more."""
    path = checkpoint.folder / META if meta is None else meta
    refused = _refused(path)
    return TokenizerReport(
        "refused" if refused else "damaged",
        path=str(path) if refused else None,
        message=error.message,
        hint=error.hint,
        refused=refused,
    )


def _refused(path: Path) -> tuple[GlobalUse, ...]:
    if not is_file(path) or path.stat().st_size > MOST_BYTES:
        return ()
    uses = scan_globals(path.read_bytes())
    if not any(use.verdict == "refused" for use in uses):
        return ()
    return tuple(uses)
