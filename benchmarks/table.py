"""The report: a Markdown table for people, a JSON object for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.figures import Outcome, ratio, ratios

SCHEMA = "nanogpt.benchmark/1"
HEADINGS = (
    "engine",
    "tokens/s",
    "x {yardstick}",
    "of limit",
    "first token",
    "peak memory",
    "anonymous",
    "first use",
    "same ids",
)


def render(outcomes: Sequence[Outcome], yardstick: str, ours: str = "ours") -> str:
    """Return the figures, then how many times as fast ours is as each peer, then the faults."""
    parts = [render_figures(outcomes, yardstick)]
    mine = [one for one in outcomes if one.name.startswith(f"{ours}/") and one.has_figures]
    peers = [one for one in outcomes if not one.name.startswith(f"{ours}/") and one.has_figures]
    if mine and peers:
        parts.append(render_ratios(mine, peers))
    samples = [sample for one in outcomes if one.has_figures for sample in one.samples.values()]
    if disturbed := sum(sample.disturbed for sample in samples):
        parts.append(f"Other processes disturbed {disturbed} of {len(samples)} samples.")
    faults = [f"- {one.name}: {one.fault}" for one in outcomes if one.fault is not None]
    if faults:
        parts.append("Without figures:\n\n" + "\n".join(faults))
    return "\n\n".join(parts) + "\n"


def render_figures(outcomes: Sequence[Outcome], yardstick: str) -> str:
    """Return one row an engine that has figures."""
    base = next((one for one in outcomes if one.name == yardstick), None)
    headings = [heading.format(yardstick=yardstick) for heading in HEADINGS]
    return markdown(headings, [_row(one, base) for one in outcomes if one.has_figures])


def _row(one: Outcome, base: Outcome | None) -> list[str]:
    times = None if base is None else ratio(one, base)
    return [
        one.name,
        f"{one.median_of('tokens_per_second'):,.1f}",
        "-" if times is None else f"{times:.2f}",
        f"{one.share_of_limit:.2f}",
        f"{one.median_of('first_token_seconds') * 1e3:,.0f} ms",
        _megabytes(one.peak_bytes),
        _megabytes(one.anonymous_bytes),
        "-" if one.first_use is None else f"{one.first_use.total:.1f} s",
        one.agreement,
    ]


def render_ratios(mine: Sequence[Outcome], peers: Sequence[Outcome]) -> str:
    """Return ours over each peer, decoding, as medians of the rounds' own ratios."""
    times = ratios(mine, peers)
    rows = [[peer.name, *(_times(times[one.name][peer.name]) for one in mine)] for peer in peers]
    return markdown(["x as fast as", *(one.name for one in mine)], rows)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _megabytes(value: int | None) -> str:
    return "-" if value is None else f"{value / 1e6:,.0f} MB"


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with its columns in line; all but the first are set to the right."""
    columns = [list(column) for column in zip(headings, *rows, strict=True)]
    widths = [max(3, *map(len, column)) for column in columns]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [headings, rule, *rows]
    return "\n".join(
        "| " + " | ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) + " |"
        for line in lines
    )


def to_json(
    outcomes: Sequence[Outcome], settings: Mapping[str, object], machine: Mapping[str, object]
) -> dict[str, Any]:
    """Return all there is, raw: figures are null for an engine without them."""
    timed = [one for one in outcomes if one.has_figures]
    return {
        "schema": SCHEMA,
        "settings": dict(settings),
        "machine": dict(machine),
        "engines": [_describe(one) for one in outcomes],
        "tokens_per_second_ratios": ratios(timed, timed),
    }


def _describe(one: Outcome) -> dict[str, Any]:
    figures = ("tokens_per_second", "first_token_seconds", "total_seconds", "bytes_per_second")
    shown = one.has_figures
    return {
        "name": one.name,
        "version": one.version,
        "same_ids": one.agreement,
        "fault": one.fault,
        **{name: one.median_of(name) if shown else None for name in figures},
        "share_of_limit": one.share_of_limit if shown else None,
        "weight_bytes_per_step": one.weight_bytes,
        "peak_bytes": one.peak_bytes if shown else None,
        "anonymous_bytes": one.anonymous_bytes if shown else None,
        "first_use_seconds": asdict(one.first_use) if shown and one.first_use else None,
        "samples": {at: asdict(sample) for at, sample in one.samples.items()} if shown else {},
    }
