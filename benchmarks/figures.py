"""From samples to figures: medians, and ratios of what was timed in the same round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

QUIET_SHARE = 0.05
"""Of all processors' time: a twentieth moves a figure by about as much."""


@dataclass(frozen=True)
class Sample:
    """One timed job of one engine.

    Args:
        tokens_per_second: over all rows, while decoding.
        first_token_seconds: until every row has its first token.
        total_seconds: of the whole job.
        bytes_per_second: the bandwidth measured just before and just after, averaged.
        others_share: of the processors' time meanwhile, what other processes took; None where
            the system does not tell.
    """

    tokens_per_second: float
    first_token_seconds: float
    total_seconds: float
    bytes_per_second: float
    others_share: float | None = None

    @property
    def disturbed(self) -> bool:
        """Whether others took so much that the figures are theirs."""
        return self.others_share is not None and self.others_share > QUIET_SHARE


@dataclass(frozen=True)
class FirstUse:
    """What an engine costs before it is at its pace, its installation left out; seconds.

    Args:
        convert: writing its own kind of file, once a model.
        start: from the start of its process to a loaded model.
        first_call: how much longer than a later one the first job took.
    """

    convert: float
    start: float
    first_call: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.convert + self.start + self.first_call


@dataclass
class Outcome:
    """What came of one engine's variant.

    Args:
        name: the variant's.
        weight_bytes: that it reads for a step, its batch together.
        batch: rows a step.
        version: of its library.
        agreement: with the reference's ids, in words.
        fault: why there are no figures, or None.
        fatal: whether the fault is one: an engine that has no such variant is at no fault.
        samples: by round; a round that failed is left out.
    """

    name: str
    weight_bytes: float
    batch: int
    version: str = ""
    agreement: str = ""
    fault: str | None = None
    fatal: bool = True
    peak_bytes: int | None = None
    anonymous_bytes: int | None = None
    first_use: FirstUse | None = None
    samples: dict[int, Sample] = field(default_factory=dict)

    @property
    def has_figures(self) -> bool:
        """Whether it was timed and made the right ids."""
        return self.fault is None and bool(self.samples)

    def median_of(self, name: str) -> float:
        """Return the median over rounds of one of a sample's figures."""
        values: list[float] = [getattr(sample, name) for sample in self.samples.values()]
        return median(values)

    @property
    def share_of_limit(self) -> float:
        """The median part of the bandwidth beside each sample that its weights took."""
        return median(
            sample.tokens_per_second / self.batch * self.weight_bytes / sample.bytes_per_second
            for sample in self.samples.values()
        )


def ratio(one: Outcome, other: Outcome, name: str = "tokens_per_second") -> float | None:
    """Return the median over common rounds of one's figure over the other's, or None."""
    if not (one.has_figures and other.has_figures):
        return None
    rounds = one.samples.keys() & other.samples.keys()
    pairs = [(getattr(one.samples[at], name), getattr(other.samples[at], name)) for at in rounds]
    return median(a / b for a, b in pairs) if pairs else None


def ratios(
    outcomes: Sequence[Outcome], over: Sequence[Outcome]
) -> Mapping[str, Mapping[str, float | None]]:
    """Return each outcome's tokens/s over each of the others', by name."""
    return {one.name: {other.name: ratio(one, other) for other in over} for one in outcomes}
