"""How large the numbers inside are, and which of them never change.

- Norms are Euclidean, over the C entries of one position.
- A GELU unit is dead on a text where its input is below -3 at every position: its output is then
  within 0.0041 of zero, whatever the text says. It is saturated where its input is above 3 at
  every position: its output is then within 0.0041 of its input, and the unit is a linear one.
- A dimension of the residual stream is an outlier after a layer where its root mean square over
  the positions is at least 6 times the median dimension's. Source: arXiv:2208.07339 (their bound
  of 6 is on the value itself), arXiv:2402.17762.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from nanogpt_cli.inspection.behaviour import Arrays, Progress, no_progress
from nanogpt_cli.inspection.behaviour.labels import Token
from nanogpt_cli.inspection.behaviour.trace import Step, embed, trace, unembed, walk

if TYPE_CHECKING:
    from torch import Tensor

    from nanogpt_cli.inspection.behaviour.subject import Subject

FLAT = 3.0
"""The distance from zero beyond which a GELU is flat, or straight."""
OUTLIER_TIMES_MEDIAN = 6.0
_TINY = 1e-12


@dataclass(frozen=True)
class Norms:
    """Euclidean norms over the positions.

    Args:
        mean: of them.
        max: the largest.
        max_position: where that is, from 0 in the tokens that the model saw.
    """

    mean: float
    max: float
    max_position: int


@dataclass(frozen=True)
class Outlier:
    """A dimension of the residual stream that is much larger than the others.

    Args:
        dimension: its number, 0 to C - 1.
        rms: root mean square over the positions.
        times_median: that, over the median dimension's; None where the median is 0.
        extreme: its value farthest from zero.
        extreme_position: where that is.
    """

    dimension: int
    rms: float
    times_median: float | None
    extreme: float
    extreme_position: int


@dataclass(frozen=True)
class Units:
    """The hidden units of an MLP.

    Args:
        count: how many there are, 4C.
        dead: those whose input is below -3 at every position.
        saturated: those whose input is above 3 at every position.
        dead_share: of the units.
        saturated_share: of the units.
        low_share: of the inputs of all units at all positions, those below -3.
        high_share: of the same, those above 3.
    """

    count: int
    dead: int
    saturated: int
    dead_share: float
    saturated_share: float
    low_share: float
    high_share: float


@dataclass(frozen=True)
class ActivationsRow:
    """The residual stream after the embedding or a block.

    Args:
        label: "embed", "block 0", ...
        layer: the block's number, or None for the embedding.
        residual: its norms.
        attention: norms of what the block's attention added; None for the embedding.
        mlp: norms of what the block's MLP added; None for the embedding.
        units: the MLP's hidden units; None for the embedding.
        outliers: the residual stream's, the largest first.
    """

    label: str
    layer: int | None
    residual: Norms
    attention: Norms | None
    mlp: Norms | None
    units: Units | None
    outliers: tuple[Outlier, ...]


@dataclass(frozen=True)
class ActivationsReport:
    """The sizes of what flows through the model.

    Args:
        checkpoint: the model, for people.
        prompt: the text.
        tokens: those that the model saw.
        dropped_tokens: tokens before those, which it cannot see.
        n_embd: entries of a position, C.
        token_embedding: norms of wte's rows for the tokens.
        position_embedding: norms of wpe's rows.
        rows: n_layer + 1 of them.
    """

    schema: ClassVar[str] = "nanogpt.inspect.activations/1"

    checkpoint: str
    prompt: str
    tokens: tuple[Token, ...]
    dropped_tokens: int
    n_embd: int
    token_embedding: Norms
    position_embedding: Norms
    rows: tuple[ActivationsRow, ...]
    rerun: Callable[[], Arrays] = field(repr=False, compare=False, metadata={"json": False})

    def arrays(self) -> Arrays:
        """Run the model once more and return all of it, float32.

        `ids` (T) int64, `token_embedding` and `position_embedding` (T, C), `residual`
        (n_layer + 1, T, C), `attention` and `mlp` (n_layer, T, C).
        """
        return self.rerun()


def measure(subject: Subject, *, progress: Progress = no_progress) -> ActivationsReport:
    """Run the model once and measure each layer as it comes; none is kept.

    Args:
        subject: with at most block_size tokens.
        progress: told how many rows are done.

    Raises:
        NanoGPTError: logits that are not finite.
    """
    token, position = embed(subject.model, subject.idx)
    rows: list[ActivationsRow] = []
    step: Step | None = None
    for step in walk(subject.model, subject.idx):
        rows.append(_measure_row(step))
        progress(len(rows), subject.model.config.n_layer + 1)
    assert step is not None, "there is an embedding"
    subject.require_finite(unembed(subject.model, step.residual[:, -1]), subject.idx)
    return ActivationsReport(
        checkpoint=subject.name,
        prompt=subject.text,
        tokens=subject.tokens,
        dropped_tokens=subject.dropped,
        n_embd=subject.model.config.n_embd,
        token_embedding=_norms_of(token),
        position_embedding=_norms_of(position[None]),
        rows=tuple(rows),
        rerun=lambda: _all_arrays(subject),
    )


def _measure_row(step: Step) -> ActivationsRow:
    return ActivationsRow(
        label=step.label,
        layer=step.layer,
        residual=_norms_of(step.residual),
        attention=None if step.attention is None else _norms_of(step.attention),
        mlp=None if step.mlp is None else _norms_of(step.mlp),
        units=None if step.units is None else count_units(step.units[0]),
        outliers=find_outliers(step.residual[0]),
    )


def _norms_of(x: Tensor) -> Norms:
    """Return the norms of x (1, T, C)."""
    norms = x[0].double().norm(dim=-1)
    place = int(norms.argmax())
    return Norms(norms.mean().item(), norms[place].item(), place)


def count_units(units: Tensor) -> Units:
    """Count the units that do not bend: units (T, 4C), before the GELU."""
    low, high = units < -FLAT, units > FLAT
    count = units.size(-1)
    dead, saturated = int(low.all(dim=0).sum()), int(high.all(dim=0).sum())
    return Units(
        count=count,
        dead=dead,
        saturated=saturated,
        dead_share=dead / count,
        saturated_share=saturated / count,
        low_share=int(low.sum()) / low.numel(),
        high_share=int(high.sum()) / high.numel(),
    )


def find_outliers(residual: Tensor) -> tuple[Outlier, ...]:
    """Return the dimensions that stand out, the largest first: residual (T, C)."""
    sizes = residual.double().square().mean(dim=0).sqrt()  # (C)
    median = sizes.quantile(0.5).item()
    bound = max(OUTLIER_TIMES_MEDIAN * median, _TINY)
    order = sizes.argsort(descending=True, stable=True).tolist()
    return tuple(
        _describe_outlier(residual, dimension, sizes[dimension].item(), median)
        for dimension in order
        if sizes[dimension].item() >= bound
    )


def _describe_outlier(residual: Tensor, dimension: int, rms: float, median: float) -> Outlier:
    column = residual[:, dimension]
    place = int(column.abs().argmax())
    ratio = rms / median if median > 0 else None
    return Outlier(dimension, rms, ratio, column[place].item(), place)


def _all_arrays(subject: Subject) -> Arrays:
    found = trace(subject.model, subject.idx)
    return {
        "ids": subject.idx[0].cpu().numpy(),
        "token_embedding": found.token_embedding.cpu().numpy(),
        "position_embedding": found.position_embedding.cpu().numpy(),
        "residual": found.residual.cpu().numpy(),
        "attention": found.attention.cpu().numpy(),
        "mlp": found.mlp.cpu().numpy(),
    }
