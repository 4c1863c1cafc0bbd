"""The pool of the step for CUDA: run uncaptured here, by the same lines."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from step_models import build, complete, make_step

from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.engine import Engine
from nanogpt_cli.generation.steps.graphed import SPAN, GraphedStep
from nanogpt_cli.generation.steps.weights import store_weights
from nanogpt_cli.sampling import build_filters
from nanogpt_cli.sampling.sampler import Sampler

GREEDY = Sampler(greedy=True)


def test_a_step_that_cannot_be_captured_runs_uncaptured_with_one_note() -> None:
    """As on CUDA, and here no graph can be had: the capture fails as it would there."""
    notes: list[str] = []
    model = build()
    step = GraphedStep(store_weights(model, "float32"), torch.float32, notes.append)
    step._captures = True
    texts = complete(Engine(model, step), [[1, 2], [3]], GREEDY, max_new_tokens=5)
    assert texts == complete(
        Engine(model, make_step("eager", model)), [[1, 2], [3]], GREEDY, max_new_tokens=5
    )
    assert len(notes) == 1
    assert notes[0].startswith("the step cannot be captured, so it runs uncaptured: ")


def test_texts_that_take_no_part_in_a_step_stay_as_they_are() -> None:
    model = build()
    step = make_step("graphed", model)
    first, second = step.open(12), step.open(12)
    step.prefill([[1, 2, 3], [4, 5]], [first, second])
    for position, token in ((2, 6), (3, 7)):
        step.decode(torch.tensor([token]), [position], [second])
    logits = step.decode(torch.tensor([8]), [3], [first])
    torch.testing.assert_close(logits, model(torch.tensor([[1, 2, 3, 8]]))[0][0], rtol=0, atol=1e-4)


def test_what_attention_reads_grows_with_the_longest_text() -> None:
    model = build(n_layer=1, block_size=2 * SPAN + 8)
    step = make_step("graphed", model)
    long, short = step.open(SPAN + 2), step.open(4)
    ids = torch.randint(0, 31, (SPAN + 2,))
    step.prefill([[1], ids[: SPAN - 1].tolist()], [short, long])
    for position in range(SPAN - 1, SPAN + 2):
        logits = step.decode(ids[position : position + 1], [position], [long])
        exact = model(ids[None, : position + 1])[0][0]
        torch.testing.assert_close(logits, exact, rtol=0, atol=1e-4)
    logits = step.decode(torch.tensor([2]), [1], [short])
    torch.testing.assert_close(logits, model(torch.tensor([[1, 2]]))[0][0], rtol=0, atol=1e-4)


def test_a_slot_that_nobody_holds_is_given_again() -> None:
    step = make_step("graphed", build())
    held = step.open(12)
    numbers = []
    for _ in range(9):
        slot = step.open(12)
        numbers.append(slot.number)
        del slot
    assert numbers == [1 - held.number] * 9


def test_a_step_that_was_begun_ahead_is_each_texts_own() -> None:
    """Whichever texts of the batch have ended meanwhile."""
    model, sampler = build(), Sampler(build_filters({"temperature": 9.0}))
    prompts = [[token] for token in range(12)]
    options: dict[str, Any] = {"max_new_tokens": 20, "end_of_text": 3, "batch_size": 5}
    ahead, plain = (
        complete(Engine(model, make_step(kind, model)), prompts, sampler, **options)
        for kind in ("graphed", "eager")
    )
    assert ahead == plain
    assert len(set(map(len, plain))) > 2


def test_logits_that_are_not_finite_are_told_though_the_next_step_has_begun() -> None:
    model = build()
    with torch.no_grad():
        model.transformer.wte.weight[5] = torch.nan
    engine = Engine(model, make_step("graphed", model))
    with pytest.raises(NanoGPTError, match="not finite at step 0: the first bad tensor is the we"):
        complete(engine, [[1], [5]], GREEDY, max_new_tokens=4)
