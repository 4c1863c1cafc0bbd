"""nanoGPT's own loop, where it meets what sample.py has not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from step_models import build

from nanogpt_cli.generation.engine import NewToken
from nanogpt_cli.generation.reference import generate_like_nanogpt
from nanogpt_cli.model import GPT

LIKE = {"num_samples": 2, "temperature": 0.9, "top_k": 0, "dtype": torch.float32}


def test_a_sample_that_a_stop_ended_is_left_and_the_generator_stays() -> None:
    model, stopped = build(), set[int]()
    torch.manual_seed(7)
    tokens: list[NewToken] = []
    for token in generate_like_nanogpt(model, [1], max_new_tokens=3, stopped=stopped, **LIKE):  # type: ignore[arg-type]
        tokens.append(token)
        stopped |= {0}
    torch.manual_seed(7)
    first = model.generate(torch.tensor([[1]]), 1, temperature=0.9)
    second = model.generate(torch.tensor([[1]]), 3, temperature=0.9)
    assert [token.index for token in tokens] == [0, 1, 1, 1]
    assert [token.id for token in tokens] == [int(first[0, 1]), *second[0, 1:].tolist()]


def test_no_new_tokens_end_each_sample() -> None:
    made = generate_like_nanogpt(build(), [1], max_new_tokens=0, **LIKE)  # type: ignore[arg-type]
    assert list(made) == [NewToken(0, None, "length"), NewToken(1, None, "length")]


def test_a_fault_of_the_machine_is_told_as_it_is() -> None:
    class Broken(GPT):
        def generate(self, *_args: Any, **_options: Any) -> torch.Tensor:
            raise RuntimeError("device-side assert triggered")

    model = Broken(build().config).eval()
    with pytest.raises(RuntimeError, match="device-side assert"):
        list(generate_like_nanogpt(model, [1], max_new_tokens=1, **LIKE))  # type: ignore[arg-type]
