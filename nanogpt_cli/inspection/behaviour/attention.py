"""Where each head looks, and what that makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from nanogpt_cli.inspection.behaviour import Progress, no_progress
from nanogpt_cli.inspection.behaviour.attention_maps import walk_maps
from nanogpt_cli.inspection.behaviour.heads import (
    Probe,
    RepeatScores,
    TextScores,
    make_probe,
    name_head,
    run_probe,
    score_text,
)
from nanogpt_cli.inspection.behaviour.labels import Token
from nanogpt_cli.inspection.behaviour.limits import check_map
from nanogpt_cli.inspection.behaviour.saving import Stream
from nanogpt_cli.inspection.behaviour.subject import Subject
from nanogpt_cli.inspection.behaviour.trace import unembed
from nanogpt_cli.inspection.behaviour.vocabulary import known_ids
from nanogpt_cli.model import GPT

if TYPE_CHECKING:
    from nanogpt_cli.inspection.behaviour import Arrays

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class HeadReport:
    """What one head does; None where text, context or vocabulary are too small to tell.

    Args:
        layer: its block.
        head: its number there.
        previous_token: see `TextScores`.
        first_token: see `TextScores`.
        induction: see `RepeatScores`.
        duplicate: see `RepeatScores`.
        entropy_bits: see `TextScores`.
        role: the score that is its highest, where that is high; else None.
    """

    layer: int
    head: int
    previous_token: float | None
    first_token: float | None
    induction: float | None
    duplicate: float | None
    entropy_bits: float | None
    role: str | None


@dataclass(frozen=True)
class HeadMap:
    """Where one head looks.

    Args:
        layer: its block.
        head: its number there; None for the mean over the layer's heads.
        weights: row t is where position t looks; its entries sum to 1.
    """

    layer: int
    head: int | None
    weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class MapSource:
    """All maps of a text, made afresh when they are asked for, so that a report stays small."""

    model: GPT
    idx: torch.Tensor

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The axes (L, H, T, T)."""
        c, T = self.model.config, self.idx.size(1)
        return c.n_layer, c.n_head, T, T

    def layers(self) -> Iterator[Array]:
        """Yield each layer's maps, (H, T, T) float32."""
        for weights, _ in walk_maps(self.model, self.idx):
            yield weights.cpu().numpy()

    def collect(self) -> Array:
        """Return all maps, (L, H, T, T) float32."""
        maps = np.empty(self.shape, dtype=np.float32)
        for layer, weights in enumerate(self.layers()):
            maps[layer] = weights
        return maps


@dataclass(frozen=True)
class AttentionReport:
    """Where the heads look.

    Args:
        checkpoint: the model, for people.
        prompt: the text.
        tokens: those that the model saw; both axes of a map.
        dropped_tokens: tokens before those, which it cannot see.
        n_layer: layers.
        n_head: heads a layer.
        heads: what each does, layer by layer.
        probe: the repeated random text behind `induction` and `duplicate`.
        layer: the layer that was asked for, or None.
        map: the head that was asked for, or None.
        max_row_error: how far a row's sum is from 1, at most.
        max_logit_difference: between these weights' logits and the model's own, at the last token.
        maps: all maps, for whoever asks.
    """

    schema: ClassVar[str] = "nanogpt.inspect.attention/1"

    checkpoint: str
    prompt: str
    tokens: tuple[Token, ...]
    dropped_tokens: int
    n_layer: int
    n_head: int
    heads: tuple[HeadReport, ...]
    probe: Probe
    layer: int | None
    map: HeadMap | None
    max_row_error: float
    max_logit_difference: float
    maps: MapSource = field(repr=False, compare=False, metadata={"json": False})

    def arrays(self) -> Arrays:
        """Return what --save writes: all maps, (L, H, T, T)."""
        return {"attention": self.maps.collect()}

    def streams(self) -> Mapping[str, Stream]:
        """Return the same, made layer by layer while it is written."""
        return {"attention": Stream(np.dtype(np.float32), self.maps.shape, self.maps.layers)}


@torch.inference_mode()
def measure(
    subject: Subject,
    *,
    progress: Progress = no_progress,
    layer: int | None = None,
    head: int | None = None,
    average: bool = False,
) -> AttentionReport:
    """Return what each head does with the text, and the map of one if it is asked for.

    Args:
        subject: a model and at most block_size tokens.
        progress: told layers done and in all.
        layer: of the map; alone, the layer that a table is for.
        head: of the map.
        average: ask for the mean over the layer's heads instead of one head.

    Raises:
        UsageError: no such layer or head, or one without the other.
        NanoGPTError: the model's logits are not finite.
    """
    config = subject.model.config
    check_map(layer, head, average=average, n_layer=config.n_layer, n_head=config.n_head)
    scores: list[list[TextScores]] = []
    row_error, chosen = 0.0, None
    for number, (weights, residual) in enumerate(walk_maps(subject.model, subject.idx)):  # noqa: B007
        scores.append(score_text(weights))
        row_error = max(
            row_error, (weights.sum(dim=-1, dtype=torch.float64) - 1).abs().max().item()
        )
        if number == layer and (head is not None or average):
            kept = weights.mean(dim=0) if head is None else weights[head]
            chosen = HeadMap(number, head, tuple(map(tuple, kept.tolist())))
        progress(number + 1, config.n_layer)
    logits = unembed(subject.model, residual[0, -1])
    subject.require_finite(logits, subject.idx)
    own = subject.model(subject.idx)[0][0, -1]
    plain = [token for token in known_ids(subject) if token != subject.tokenizer.end_of_text]
    probe, repeats = run_probe(subject.model, make_probe(plain, config.block_size))
    return AttentionReport(
        checkpoint=subject.name,
        prompt=subject.text,
        tokens=subject.tokens,
        dropped_tokens=subject.dropped,
        n_layer=config.n_layer,
        n_head=config.n_head,
        heads=tuple(_describe(scores, repeats)),
        probe=probe,
        layer=layer,
        map=chosen,
        max_row_error=row_error,
        max_logit_difference=(logits - own).abs().max().item(),
        maps=MapSource(subject.model, subject.idx),
    )


def _describe(
    text: list[list[TextScores]], repeats: list[list[RepeatScores]]
) -> Iterator[HeadReport]:
    for layer, row in enumerate(text):
        for head, seen in enumerate(row):
            again = repeats[layer][head] if repeats else RepeatScores(None, None)
            scores = {
                "previous_token": seen.previous_token,
                "first_token": seen.first_token,
                "induction": again.induction,
                "duplicate": again.duplicate,
            }
            yield HeadReport(
                layer, head, **scores, entropy_bits=seen.entropy_bits, role=name_head(scores)
            )
