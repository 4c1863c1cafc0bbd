"""Pages of small models, and what can be read off a page without a browser."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np
from conftest import ROOT
from model_files import build

from nanogpt_cli.inspection.behaviour.page import Page, make_page
from nanogpt_cli.inspection.behaviour.subject import Subject
from nanogpt_cli.tokenizers.search import find_tokenizer

HOSTILE = (
    "<script>alert(1)</script> [red]once[/red] & </script><!-- <img src=x onerror=alert(2)> "
    "{{data}} ${1} \x00\x1b[31m\u200f\u202eabc\u2028\u2029 na\u00efve \u05d0\u05d1 \U0001f600"
)
VOCAB = 1024
DEMO = ROOT / "nanogpt_cli" / "assets" / "demo"
NAME = "<b>[red]a&b[/red]</b>.pt"


def text_subject(text: str, **config: Any) -> Subject:
    """Return a small random model over the demo's tokens, of bytes and more, in front of a text."""
    tokenizer, _ = find_tokenizer(
        vocab_size=VOCAB, near=DEMO, dataset=None, tokenizer=None, meta=None
    )
    model = build(vocab_size=VOCAB, **{"block_size": 192, **config})
    return Subject(NAME, model, tokenizer, tokenizer.encode(text), text)


def page_of(subject: Subject, first_view: str = "next", **options: Any) -> Page:
    return make_page(subject, first_view=first_view, options=options)


def data_of(page: Page) -> dict[str, Any]:
    """Return what the page's script is given."""
    pattern = rb'<script type="application/json" id="data">(.*?)</script>'
    (found,) = re.findall(pattern, page.data, re.DOTALL)
    data: dict[str, Any] = json.loads(found)
    return data


def maps_of(data: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the attention that a page holds, (L, H, N, N)."""
    view, config = data["views"]["attention"], data["config"]
    shape = (config["n_layer"], config["n_head"], -1)
    kept = np.frombuffer(base64.b64decode(view["maps"]), dtype=f"<u{view['itemsize']}")
    maps = np.zeros((*shape[:2], view["tokens"], view["tokens"]))
    maps[:, :, *np.tril_indices(view["tokens"])] = (kept.reshape(shape) / view["steps"]) ** 2
    return maps
