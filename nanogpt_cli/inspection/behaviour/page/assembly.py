"""The page's own files and its data, as one file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

SCRIPTS = (
    "data.js",
    "elements.js",
    "colours.js",
    "grid.js",
    "strip.js",
    "next.js",
    "surprisal.js",
    "lens.js",
    "maps.js",
    "attention.js",
    "contributions.js",
    "activations.js",
    "ablation.js",
    "page.js",
)
"""In the order in which they stand; one scope for all."""

POLICY = (
    "default-src 'none'; img-src data:; style-src '{style}'; script-src '{script}'; "
    "base-uri 'none'; form-action 'none'"
)
"""Nothing is fetched, and no other style or script than the page's own counts."""

DIGITS = 6
"""Of a number on the page."""


def assemble(fields: Mapping[str, Any]) -> bytes:
    """Return the page: plain values and lists in `fields`, text in them taken for text alone."""
    style = "\n" + _read("page.css")
    script = f'\n(() => {{\n"use strict";\n{"".join(map(_read, SCRIPTS))}}})();\n'
    parts = {
        "policy": POLICY.format(style=_hash(style), script=_hash(script)),
        "style": style,
        "script": script,
        "data": spell_data(fields),
    }
    page = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read("page.html"))
    return page.encode("utf-8")


def spell_data(fields: Mapping[str, Any]) -> str:
    """Return JSON that no text in it can end or turn into markup: ASCII, without <, > and &."""
    plain = json.dumps(_round(fields), allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", plain)


def _round(value: Any) -> Any:
    """Return `value` with its floats in as many digits as the page has, NaN and infinity None."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _round(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_round(item) for item in value]
    return value


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
