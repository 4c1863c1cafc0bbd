"""Small models with a text in front of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from model_files import build
from transformers import GPT2Config, GPT2LMHeadModel

from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.inspection.behaviour.subject import Subject
from nanogpt_cli.model import GPT
from nanogpt_cli.tokenizers.ids import IdsTokenizer

IDS = (3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 64)


def subject(model: GPT | None = None, ids: Sequence[int] = IDS) -> Subject:
    """Return a model in front of ids, each of which is its own text."""
    model = model or build()
    return Subject("a small one", model, IdsTokenizer(model.config.vocab_size), ids)


def uniform(**config: Any) -> GPT:
    """Return a model of zeros: every token is as likely as any other."""
    model = build(**config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def transformers_pair(folder: Path, **settings: Any) -> tuple[Any, GPT]:
    """Return transformers' random GPT-2, and ours, read from the folder that it was saved to."""
    torch.manual_seed(5)
    sizes: dict[str, Any] = {"n_layer": 3, "n_head": 5, "n_embd": 40, "n_positions": 16}
    theirs: Any = GPT2LMHeadModel(GPT2Config(vocab_size=65, **sizes, **settings))
    theirs.eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    theirs.save_pretrained(folder)
    return theirs, load_model(open_checkpoint(str(folder))).eval()
