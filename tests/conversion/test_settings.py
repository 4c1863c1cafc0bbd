"""What is asked for: formats by name, and flags that contradict each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nanogpt_cli.conversion import ConversionSettings, choose_target
from nanogpt_cli.errors import UsageError


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("gpt2.pt", "nanogpt"),
        ("GPT2.PTH", "nanogpt"),
        ("out/model.safetensors", "safetensors"),
        ("gpt2-hf", "hf"),
        ("some.folder/gpt2", "hf"),
    ],
)
def test_a_name_that_makes_the_format_clear(name: str, target: str) -> None:
    assert choose_target(Path(name), None) == target


@pytest.mark.parametrize("name", ["gpt2.bin", "gpt2-v1.5", "model.ckpt"])
def test_a_name_that_does_not(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_target(Path(name), None)
    assert caught.value.message == f"the output's name {name!r} does not say its format"
    assert caught.value.exit_code == 2
    assert choose_target(Path(name), "hf") == "hf"


def test_the_flag_outweighs_the_name() -> None:
    assert choose_target(Path("gpt2.pt"), "safetensors") == "safetensors"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"to": "gguf"}, "unknown --to 'gguf'"),
        ({"to": "hf", "dtype": "int8"}, "unknown --dtype 'int8'"),
        ({"to": "hf", "activation": "relu"}, "unknown --activation 'relu'"),
        (
            {"to": "nanogpt", "fresh_optimizer": True, "weights_only": True},
            "--fresh-optimizer and --weights-only contradict each other",
        ),
        (
            {"to": "hf", "fresh_optimizer": True},
            "--fresh-optimizer has no place in the format 'hf'",
        ),
    ],
)
def test_what_cannot_be_meant(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        ConversionSettings(**settings)
    assert caught.value.message == message
