"""A session's own choices, before its model is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from model_files import build, save_meta, save_nanogpt

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.generation.prompt import PromptText
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.steps.choose import Compile, StepChoice


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    save_meta(tmp_path)
    return str(save_nanogpt(tmp_path / "ckpt.pt", build()))


@pytest.mark.parametrize(
    ("asked", "before", "then"),
    [
        ("auto", "eager", False),
        ("auto", "compiled", True),
        (False, "compiled", False),
        (True, "eager", True),
    ],
)
def test_earlier_texts_decide_what_a_user_leaves_open(
    checkpoint: str, asked: Compile, before: str, then: bool
) -> None:
    session = Session(open_checkpoint(checkpoint), choice=StepChoice(compile=asked))
    session.compute_as(before)
    assert session.choice.compile is then


@pytest.mark.parametrize(("text", "opening"), [("5 7", "5 7 "), ("", "")])
def test_what_stands_before_new_text_is_the_prompt_alone(
    checkpoint: str, text: str, opening: str
) -> None:
    session = Session(open_checkpoint(checkpoint), tokenizer="ids")
    assert session.opening(session.encode(PromptText(text))) == opening


def test_8_bit_weights_are_another_identity(checkpoint: str) -> None:
    plain, small = (
        Session(open_checkpoint(checkpoint), choice=StepChoice(quantize)).identity
        for quantize in (None, "int8")
    )
    assert small == {**plain, "quantize": "int8"}
