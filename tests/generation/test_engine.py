"""The cached engine against `GPT.generate`, which caches nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from step_models import complete, library, make_step

from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.engine import Engine, NewToken, Request
from nanogpt_cli.generation.steps.compiled import CompiledStep
from nanogpt_cli.generation.steps.eager import EagerStep
from nanogpt_cli.generation.steps.text_cache import TextCache
from nanogpt_cli.generation.steps.weights import store_weights
from nanogpt_cli.model import GPT, GPTConfig
from nanogpt_cli.sampling import build_filters
from nanogpt_cli.sampling.draws import Draws
from nanogpt_cli.sampling.sampler import Sampler

GREEDY = Sampler(greedy=True)


def build(seed: int = 0, **sizes: object) -> GPT:
    """A model whose weights are large enough that its choices are no near-ties."""
    defaults = {"block_size": 12, "vocab_size": 31, "n_layer": 2, "n_head": 3, "n_embd": 24}
    torch.manual_seed(seed)
    model = GPT(GPTConfig(**{**defaults, **sizes})).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


def stream(
    model: GPT, prompt: list[int], sampler: Sampler, samples: int, **options: Any
) -> Iterator[NewToken]:
    requests = [Request(i, prompt, Draws(0, prompt, i)) for i in range(samples)]
    return Engine(model).generate(requests, sampler, **options)


def run(model: GPT, prompt: list[int], sampler: Sampler, samples: int, new: int) -> list[list[int]]:
    texts: list[list[int]] = [[] for _ in range(samples)]
    for token in stream(model, prompt, sampler, samples, max_new_tokens=new):
        if token.id is not None:
            texts[token.index].append(token.id)
    return texts


@given(
    seed=st.integers(0, 10_000),
    n_layer=st.integers(1, 3),
    n_head=st.sampled_from([1, 3, 4]),
    bias=st.booleans(),
    tied_head=st.booleans(),
    activation=st.sampled_from(["gelu", "gelu_tanh"]),
    length=st.sampled_from([1, 11, 12, 36]),
    samples=st.sampled_from([1, 4]),
)
@settings(max_examples=40, deadline=None)
def test_greedy_ids_are_the_plain_loops(
    seed: int,
    n_layer: int,
    n_head: int,
    bias: bool,
    tied_head: bool,
    activation: str,
    length: int,
    samples: int,
) -> None:
    """Through block_size and 50 tokens past it, whatever the prompt's length."""
    model = build(
        seed, n_layer=n_layer, n_head=n_head, bias=bias, tied_head=tied_head, activation=activation
    )
    prompt = torch.randint(0, 31, (length,)).tolist()
    expected = model.generate(torch.tensor([prompt]), 12 + 50, temperature=0)[0, length:].tolist()
    assert run(model, prompt, GREEDY, samples, 12 + 50) == [expected] * samples


def test_each_sample_is_its_own_whatever_their_number() -> None:
    model, sampler = build(), Sampler(build_filters({"temperature": 1.5}))
    alone, among = (run(model, [3, 1], sampler, n, 40) for n in (1, 5))
    assert among[0] == alone[0]
    assert len({tuple(text) for text in among}) == 5


def test_samples_beyond_the_cache_budget_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sampler = build(), Sampler(build_filters({"temperature": 1.5}))
    at_once = run(model, [3, 1], sampler, 5, 20)
    monkeypatch.setattr("nanogpt_cli.generation.texts.MEMORY_BUDGET_BYTES", 1)
    assert run(model, [3, 1], sampler, 5, 20) == at_once


def test_a_large_vocabulary_makes_batches_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """What many samples cost is their logits, where the model is small beside its vocabulary."""
    rows: list[int] = []

    def watched(logits: torch.Tensor, uniforms: list[float], _seen: torch.Tensor) -> torch.Tensor:
        rows.append(len(uniforms))
        return logits.argmax(dim=-1)

    monkeypatch.setattr("nanogpt_cli.generation.texts.MEMORY_BUDGET_BYTES", 400_000)
    run(build(vocab_size=5000), [3], watched, 5, 1)  # type: ignore[arg-type]
    assert rows == [2, 2, 1]


@pytest.mark.parametrize(("spare", "side_by_side"), [(0, [3, 2]), (-1, [2, 2, 1])])
def test_the_memory_of_texts_is_their_caches_and_draws(
    spare: int, side_by_side: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and values of 2 layers, 24 wide, for 3 + 1 positions; 32 bytes an id to draw."""
    rows: list[int] = []

    def watched(logits: torch.Tensor, uniforms: list[float], _seen: torch.Tensor) -> torch.Tensor:
        rows.append(len(uniforms))
        return logits.argmax(dim=-1)

    text = 2 * 2 * 24 * 4 * 4 + 32 * 31
    monkeypatch.setattr("nanogpt_cli.generation.texts.MEMORY_BUDGET_BYTES", 3 * text + spare)
    model = build()
    run(model, [3, 1, 4], watched, 5, 1)  # type: ignore[arg-type]
    assert rows == side_by_side
    rows.clear()
    list(stream(model, [3, 1, 4], watched, 9, max_new_tokens=1, batch_size=4))  # type: ignore[arg-type]
    assert rows == [4, 4, 1]


def test_top_k_of_one_is_greedy() -> None:
    model = build()
    assert run(model, [3], Sampler(build_filters({"top_k": 1})), 1, 40) == run(
        model, [3], GREEDY, 1, 40
    )


def test_the_repetition_penalty_sees_the_whole_prompt_and_the_text_so_far() -> None:
    """Also ids that have left the window."""
    model, prompt, penalty = build(), [3, 4, 5, 6, 7, 8, 9, 10] * 2, 1.7
    ids = list(prompt)
    for _ in range(30):
        logits = model(torch.tensor([ids[-12:]]))[0][0, -1]
        pushed = torch.where(logits > 0, logits / penalty, logits * penalty)
        seen = torch.tensor([token in ids for token in range(31)])
        ids.append(int(torch.where(seen, pushed, logits).argmax()))
    filters = build_filters({"repetition_penalty": penalty})
    assert run(model, prompt, Sampler(filters, greedy=True), 2, 30) == [ids[16:]] * 2
    assert ids[16:] != run(model, prompt, GREEDY, 1, 30)[0]


def test_end_of_text_ends_its_own_sample_and_is_not_given() -> None:
    model, sampler, eos = build(), Sampler(build_filters({"temperature": 2.0})), 7
    free = run(model, [3, 1], sampler, 6, 60)
    tokens = list(stream(model, [3, 1], sampler, 6, max_new_tokens=60, end_of_text=eos))
    for index, text in enumerate(free):
        cut = text[: text.index(eos)] if eos in text else text
        own = [token for token in tokens if token.index == index]
        assert [token.id for token in own if token.id is not None] == cut
        reasons = [token.finish_reason for token in own]
        assert reasons[-1] == ("eos" if eos in text else "length")
        assert not any(reasons[:-1])
    assert any(eos in text for text in free)
    assert any(eos not in text[:40] for text in free)


def test_a_request_that_is_let_go_gets_no_further_token() -> None:
    stopped: set[int] = set()
    given: list[int] = []
    for token in stream(build(), [3, 1], GREEDY, 3, max_new_tokens=10, stopped=stopped):
        given.append(token.index)
        if given.count(1) == 4:
            stopped.add(1)
    assert [given.count(index) for index in range(3)] == [10, 4, 10]


def test_no_new_tokens_ends_every_sample_at_once() -> None:
    tokens = list(stream(build(), [3], GREEDY, 2, max_new_tokens=0))
    assert [(t.index, t.id, t.finish_reason) for t in tokens] == [
        (0, None, "length"),
        (1, None, "length"),
    ]


def test_a_weight_that_is_nan_is_named_with_the_step() -> None:
    model = build()
    with torch.no_grad():
        model.transformer.wpe.weight[3, 0] = torch.nan
    with pytest.raises(NanoGPTError) as caught:
        run(model, [1, 2], GREEDY, 1, 5)
    assert caught.value.message == (
        "the model's logits are not finite at step 2: the first bad tensor is "
        "the weight 'transformer.wpe.weight'"
    )


def test_an_overflow_on_the_way_is_named_by_its_module() -> None:
    model = build(activation="gelu_tanh")
    with torch.no_grad():
        model.blocks[1].mlp.c_fc.weight.fill_(3e38)
        model.blocks[1].mlp.c_proj.weight.fill_(3e38)
    with pytest.raises(NanoGPTError, match=r"step 0: .* the output of 'transformer\.h\.1\.mlp"):
        run(model, [1, 2], GREEDY, 1, 5)


def test_an_id_outside_the_vocabulary_is_refused_before_it_is_fed_back() -> None:
    class Broken(Sampler):
        def __call__(self, *_args: object) -> torch.Tensor:
            return torch.tensor([-9223372036854775808])

    with pytest.raises(NanoGPTError) as caught:
        run(build(), [1], Broken(), 1, 5)
    assert caught.value.message == ("drew id -9223372036854775808 at step 0 on cpu: ids end at 30")


class Scarce(CompiledStep):
    """A step with room for three texts, and none for more than two in one call."""

    def open(self, capacity: int) -> TextCache:
        gc.collect()
        self.held = [held for held in getattr(self, "held", []) if held() is not None]
        if len(self.held) == 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
        cache = super().open(capacity)
        self.held.append(weakref.ref(cache))
        return cache

    def decode(self, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        if len(ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return super().decode(ids, *rest)


@pytest.mark.parametrize("batch_size", [None, 8])
def test_want_of_memory_makes_batches_smaller_and_changes_no_text(batch_size: int | None) -> None:
    model, sampler = build(), Sampler(build_filters({"temperature": 1.4}))
    prompts = [[1], [2, 3], [2, 3], list(range(20)), [4] * 12, [5], [2, 3], [6, 7]]
    plenty = Engine(model, make_step("compiled", model))
    scarce = Engine(model, Scarce(store_weights(model, "float32"), library(), 1))
    expected = complete(plenty, prompts, sampler, max_new_tokens=30)
    found = complete(scarce, prompts, sampler, max_new_tokens=30, batch_size=batch_size)
    assert found == expected


def test_a_text_that_was_put_off_gets_room_for_what_is_left_of_it() -> None:
    class Counted(Scarce):
        def open(self, capacity: int) -> TextCache:
            asked.append(capacity)
            return super().open(capacity)

    asked: list[int] = []
    model = build(block_size=64)
    step = Counted(store_weights(model, "float32"), library(), 1)
    complete(Engine(model, step), [[1], [2], [3]], GREEDY, max_new_tokens=6)
    assert len(asked) > 3
    assert set(asked) == {7}


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: not enough memory: you tried")]
)
def test_a_text_that_was_put_off_begins_nobody_elses(error: Exception) -> None:
    """It has more than its prompt, which others of the prompt have not."""

    class Once(EagerStep):
        calls = 0

        def decode(self, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
            self.calls += 1
            if self.calls == 3:
                raise error
            return super().decode(ids, *rest)

    model, sampler = build(), Sampler(build_filters({"temperature": 1.4}))
    engine = Engine(model, Once(store_weights(model, "float32")))
    found = complete(engine, [[2, 3]] * 5, sampler, max_new_tokens=6, batch_size=2)
    assert found == complete(Engine(model), [[2, 3]] * 5, sampler, max_new_tokens=6)


def test_other_faults_of_a_step_are_not_taken_for_want_of_memory() -> None:
    class Broken(EagerStep):
        def decode(self, *_args: Any) -> torch.Tensor:
            raise RuntimeError("device-side assert triggered")

    model = build()
    engine = Engine(model, Broken(store_weights(model, "float32")))
    with pytest.raises(RuntimeError, match="device-side assert"):
        complete(engine, [[1], [2]], GREEDY, max_new_tokens=5)
