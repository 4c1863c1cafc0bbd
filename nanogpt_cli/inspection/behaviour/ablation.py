"""The loss of a text without each head, and without each layer's attention and MLP."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from nanogpt_cli.errors import UsageError
from nanogpt_cli.inspection.behaviour import Progress, bulk, no_progress
from nanogpt_cli.inspection.behaviour.lesions import WHOLE_LAYER, count_lesions, sum_losses
from nanogpt_cli.inspection.behaviour.subject import Subject

if TYPE_CHECKING:
    from nanogpt_cli.inspection.behaviour import Arrays

DEFINITION = (
    "zero ablation: a head's output before c_proj, or all that a layer's attention or MLP writes, "
    "is set to 0; positive means the text costs more without it"
)


@dataclass(frozen=True)
class LayerLesions:
    """How the loss changes without parts of one layer, in nats per token; None if not finite.

    Args:
        layer: its number.
        heads: without each head.
        attention: without all of its attention, c_proj's bias included.
        mlp: without its MLP.
        both: without the layer.
    """

    layer: int
    heads: tuple[float | None, ...]
    attention: float | None
    mlp: float | None
    both: float | None


@dataclass(frozen=True)
class AblationReport:
    """What each part is worth on a text.

    Args:
        checkpoint: the model, for people.
        prompt: the text.
        prompt_tokens: of the text.
        predicted_tokens: those whose loss is in the mean: all but the first.
        windows: runs of at most block_size tokens, each seen alone.
        block_size: the model's.
        loss_nats: per token, the model as it is.
        layers: first to last.
        definition: what was done to the parts.
        bulk: what `arrays` returns.
    """

    schema: ClassVar[str] = "nanogpt.inspect.ablation/1"

    checkpoint: str
    prompt: str
    prompt_tokens: int
    predicted_tokens: int
    windows: int
    block_size: int
    loss_nats: float
    layers: tuple[LayerLesions, ...]
    definition: str = DEFINITION
    bulk: Arrays = bulk()

    def arrays(self) -> Arrays:
        """Return `changes_nats` (L, H + 3) float64: heads, then attention, MLP, both."""
        return self.bulk


def measure(subject: Subject, *, progress: Progress = no_progress) -> AblationReport:
    """Return how the loss on the text changes without each head and each layer.

    A text longer than block_size is cut into windows of that length; each token but the first is
    predicted once, from what precedes it in its window.

    Args:
        subject: a model and at least two tokens.
        progress: told lesions tried and in all.

    Raises:
        UsageError: the text is one token.
        NanoGPTError: the model's logits are not finite.
    """
    predicted = len(subject.ids) - 1
    if predicted < 1:
        raise UsageError(
            "the text is 1 token, and a loss takes at least 2", hint="give a longer --prompt"
        )
    c = subject.model.config
    windows = list(_cut(len(subject.ids), c.block_size))
    tried = _Counter(len(windows) * count_lesions(c.n_layer, c.n_head), progress)
    whole = torch.zeros((), dtype=torch.float64)
    without = torch.zeros(c.n_layer, c.n_head + WHOLE_LAYER, dtype=torch.float64)
    for start, stop in windows:
        ids = subject.window(start, stop + 1)
        loss, losses = sum_losses(subject.model, ids[:, :-1], ids[0, 1:], tried.add)
        whole += loss
        subject.require_finite(loss, ids[:, :-1])
        without += losses
    changes = (without - whole) / predicted
    return AblationReport(
        checkpoint=subject.name,
        prompt=subject.text,
        prompt_tokens=len(subject.ids),
        predicted_tokens=predicted,
        windows=len(windows),
        block_size=c.block_size,
        loss_nats=whole.item() / predicted,
        layers=tuple(_row(layer, row) for layer, row in enumerate(changes.tolist())),
        bulk={"changes_nats": changes.numpy()},
    )


def _cut(count: int, block_size: int) -> Iterator[tuple[int, int]]:
    """Yield where the windows' inputs start and stop; the last token is only predicted."""
    for start in range(0, count - 1, block_size):
        yield start, min(start + block_size, count - 1)


def _row(layer: int, changes: list[float]) -> LayerLesions:
    known = tuple(change if math.isfinite(change) else None for change in changes)
    heads, (attention, mlp, both) = known[:-WHOLE_LAYER], known[-WHOLE_LAYER:]
    return LayerLesions(layer, heads, attention, mlp, both)


class _Counter:
    """Adds up what was done."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, steps: int) -> None:
        """Tell that some more is done."""
        self.done += steps
        self.progress(self.done, self.total)
