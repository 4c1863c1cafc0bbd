"""Which step serves a model."""

from __future__ import annotations

import pytest
import torch
from step_models import build

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.steps.choose import StepChoice, make_step, pays
from nanogpt_cli.generation.steps.weights import store_weights
from nanogpt_cli.model import GPT, GPTConfig


def test_a_long_run_of_gpt2_pays_and_a_short_one_of_a_small_model_does_not() -> None:
    with torch.device("meta"):
        weights = store_weights(GPT(GPTConfig()), "float32")
        narrow = store_weights(GPT(GPTConfig()), "float16")
    assert [pays(weights, tokens) for tokens in (20, 300, 500)] == [False, False, True]
    assert [pays(narrow, tokens) for tokens in (20, 300, 500)] == [False, True, True]
    assert not pays(store_weights(build(), "float32"), 500)


def test_an_unknown_quantization_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown quantization 'int3'"):
        StepChoice(quantize="int3")


def test_a_device_without_a_step_of_its_own_computes_in_the_dtype() -> None:
    step, notes = make_step(build(), torch.bfloat16, StepChoice(), 1e9, torch.device("meta"))
    cache = step.open(4)
    logits = step.prefill([[1, 2, 3]], [cache])
    assert (step.name, notes, cache.store.dtype) == ("eager", (), torch.bfloat16)
    assert (logits.shape, logits.dtype) == ((1, 31), torch.float32)
