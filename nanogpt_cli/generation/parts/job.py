"""What is sent to a worker and what comes back: plain values, so that any machine reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.parts.manifest import PartEntry
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.steps.choose import Compile, StepChoice


@dataclass(frozen=True)
class Recipe:
    """How any machine opens the same session.

    Args:
        checkpoint: a reference that holds everywhere.
        folder: what relative paths are relative to, where there is such a folder.
        device: "cpu", "cuda" or "auto"; `dtype` likewise may be "auto".
        compile: whether to use the compiled step on CPUs.
        cache: where compiled steps are kept.
    """

    checkpoint: str
    n_head: int | None
    offline: bool
    tokenizer: str | None
    meta: Path | None
    folder: Path
    device: str
    dtype: str
    quantize: str | None
    compile: Compile
    threads: int | None
    cache: Path | None

    def open(self, notify: Callable[[str], None] = lambda _note: None) -> Session:
        """Open the checkpoint; its weights are read later.

        Raises:
            NanoGPTError: what opening a session meets.
        """
        return Session(
            open_checkpoint(self.checkpoint, n_head=self.n_head, offline=self.offline),
            tokenizer=self.tokenizer,
            meta=self.meta,
            device=self.device,
            dtype=self.dtype,
            choice=StepChoice(self.quantize, self.compile, self.threads, self.cache),
            notify=notify,
        )


@dataclass(frozen=True)
class PartsJob:
    """What all workers are told.

    Args:
        recipe: of the session.
        settings: of the samples.
        prompts: where they are.
        is_json: what their first line decides.
        output: the folder of parts.
        batch_size: None for what memory allows.
        identity: what the session must be.
        step: that must compute, or None for any.
    """

    recipe: Recipe
    settings: SampleSettings
    prompts: str
    is_json: bool
    output: str
    batch_size: int | None
    identity: Mapping[str, str]
    step: str | None


@dataclass
class PartReport:
    """How a part went.

    Args:
        entry: of the finished part, or None with `error`.
        kept: rows of it that were there already.
        made: rows of it that were made.
        new_tokens: made.
        finish_reasons: of the samples that were made.
        cut_prompts: see `Tally`; `spaced_prompts` and `first_error` likewise.
        passed_over: keys of the rows that have no meaning.
        notes: of the session, for people.
        step: what computed, or None where nothing had to be.
        error: message, hint and exit code of what ends the run.
    """

    entry: PartEntry | None = None
    kept: int = 0
    made: int = 0
    new_tokens: int = 0
    finish_reasons: dict[str, int] = field(default_factory=dict)
    cut_prompts: int = 0
    spaced_prompts: int = 0
    first_error: tuple[int, str] | None = None
    passed_over: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    step: str | None = None
    error: tuple[str, str | None, int] | None = None

    def to_json(self) -> str:
        """Return it as text, to be sent."""
        return json.dumps(asdict(self))


def read_report(text: str) -> PartReport:
    """Return the report that was sent; its error is raised.

    Raises:
        NanoGPTError: what the worker met.
    """
    values: dict[str, Any] = json.loads(text)
    if values["error"] is not None:
        message, hint, exit_code = values["error"]
        raise NanoGPTError(message, hint, exit_code=exit_code)
    entry = PartEntry(**values.pop("entry"))
    first_error = values.pop("first_error")
    return PartReport(
        entry=entry, first_error=None if first_error is None else tuple(first_error), **values
    )
