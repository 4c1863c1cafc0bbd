"""Sessions over small models, and one whose engine gives tokens in a wild order."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from conftest import CACHE
from model_files import build, save_meta, save_nanogpt

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.generation.batch.prompts import PromptRow
from nanogpt_cli.generation.engine import NewToken, Request
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.steps.choose import StepChoice


def open_session(
    folder: Path, kind: type[Session] = Session, *, compile: bool = False, **config: Any
) -> Session:
    """Write a character-level checkpoint and open it."""
    save_meta(folder)
    path = save_nanogpt(folder / "ckpt.pt", build(**config))
    choice = StepChoice(compile=compile, folder=Path(CACHE.name, "nanogpt"))
    return kind(open_checkpoint(str(path)), choice=choice)


class WildSession(Session):
    """Serves `width` requests at once: the last come gets its tokens first, by leaps."""

    width = 5
    taken = 0

    def generate(
        self,
        requests: Iterable[Request],
        settings: SampleSettings,
        *,
        stopped: Container[int] = (),
        batch_size: int | None = None,
    ) -> Iterator[NewToken]:
        width = min(self.width, batch_size or self.width)
        waiting = iter(requests)
        slots: list[Iterator[NewToken]] = []
        turn = 0
        while True:
            for request in islice(waiting, width - len(slots)):
                self.taken += 1
                slots.append(super().generate([request], settings, stopped=stopped))
            if not slots:
                return
            turn += 1
            slot = slots[-1 - turn % len(slots)]
            some = list(islice(slot, 1 + turn % 3))
            yield from some
            if not some:
                slots.remove(slot)


def rows_of(*prompts: str) -> list[PromptRow]:
    """Return rows with these prompts."""
    return [PromptRow(number, prompt) for number, prompt in enumerate(prompts)]
