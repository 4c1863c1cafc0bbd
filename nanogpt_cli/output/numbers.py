"""Counts, bytes and durations as people read them."""

from __future__ import annotations


def format_count(count: int) -> str:
    """Return 124439808 as `124,439,808`."""
    return f"{count:,}"


def format_short(count: float) -> str:
    """Return 124439808 as `124M`: three digits and K, M, B or T."""
    return _scaled(count, 1000, ("", "K", "M", "B", "T"), ".3g")


def format_bytes(count: int, *, exact: bool = False) -> str:
    """Return 497759232 as `497.8 MB`, decimal; with `exact`, `497.8 MB (497,759,232 bytes)`."""
    if abs(count) < 1000:
        return f"{count} B"
    short = _scaled(count, 1000, (" B", " kB", " MB", " GB", " TB", " PB"), ".1f")
    return f"{short} ({count:,} bytes)" if exact else short


def _scaled(value: float, step: int, units: tuple[str, ...], spec: str) -> str:
    """Return `value` in the first unit in which it is, once rounded, below `step`."""
    for unit in units[:-1]:
        shown = format(value, spec)
        if abs(float(shown)) < step:
            return shown + unit
        value /= step
    return format(value, spec) + units[-1]


def format_seconds(seconds: float) -> str:
    """Return a duration in the units that fit: `12.3 ms`, `3.46 s`, `1 min 15 s`, `2 h 5 min`."""
    if seconds == 0:
        return "0 s"
    if seconds < 1:
        return _scaled(seconds * 1e6, 1000, (" us", " ms", " s"), ".3g")
    if float(f"{seconds:.3g}") < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {name}"
    return f"{whole // 60} min {whole % 60} s"
