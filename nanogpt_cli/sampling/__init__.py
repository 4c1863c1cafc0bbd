"""The filters of next-token logits, in the order they are applied. Light: torch is not imported.

To add a filter: one file with a class like those here, and its entry in PIPELINE; its flag, its
help and its place in settings, option files and JSON follow. `sampler` applies them and draws.
"""

from __future__ import annotations

from collections.abc import Mapping

from nanogpt_cli.sampling.base import Filter
from nanogpt_cli.sampling.min_p import MinP
from nanogpt_cli.sampling.repetition_penalty import RepetitionPenalty
from nanogpt_cli.sampling.temperature import Temperature
from nanogpt_cli.sampling.top_k import TopK
from nanogpt_cli.sampling.top_p import TopP

__all__ = ["DEFAULTS", "PIPELINE", "Filter", "build_filters"]

PIPELINE = (RepetitionPenalty, Temperature, TopK, TopP, MinP)

DEFAULTS: dict[str, float] = {cls.option: cls.default for cls in PIPELINE}
"""Each filter's parameter where nobody gives one."""


def build_filters(parameters: Mapping[str, float]) -> tuple[Filter, ...]:
    """Build the filters that `parameters` asks for, in PIPELINE order; off values build none.

    Raises:
        UsageError: a value out of range.
    """
    built = [cls(parameters[cls.option]) for cls in PIPELINE if cls.option in parameters]  # type: ignore[arg-type]
    return tuple(f for f in built if getattr(f, f.option) != f.off)
