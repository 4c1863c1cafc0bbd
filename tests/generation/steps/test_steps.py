"""Each step against the uncached model, and what the compiled one promises beyond that."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from step_models import STEPS, build, complete, make_step

from nanogpt_cli.generation.engine import Engine
from nanogpt_cli.generation.steps.eager import EagerStep
from nanogpt_cli.generation.steps.graphed import GraphedStep
from nanogpt_cli.generation.steps.weights import store_weights
from nanogpt_cli.model import GPT
from nanogpt_cli.sampling import build_filters
from nanogpt_cli.sampling.sampler import Sampler

GREEDY = Sampler(greedy=True)

SHAPES = st.fixed_dictionaries(
    {
        "n_layer": st.integers(1, 3),
        "vocab_size": st.sampled_from([31, 65]),
        "bias": st.booleans(),
        "tied_head": st.booleans(),
        "activation": st.sampled_from(["gelu", "gelu_tanh"]),
        "attention": st.sampled_from(["sdpa", "manual"]),
    }
)
HEADS = st.sampled_from([(1, 16), (1, 17), (3, 15), (3, 24), (4, 64), (5, 35), (2, 130)])


@pytest.mark.parametrize("kind", STEPS)
@given(
    seed=st.integers(0, 10_000),
    shape=SHAPES,
    heads=HEADS,
    lengths=st.lists(st.sampled_from([1, 2, 11, 12, 36]), min_size=1, max_size=9),
)
@settings(max_examples=25, deadline=None)
def test_greedy_ids_of_ragged_batches_are_the_plain_loops(
    kind: str, seed: int, shape: dict[str, object], heads: tuple[int, int], lengths: list[int]
) -> None:
    """Prompts of 1, block_size - 1, block_size, 3 block_size; block_size + 50 new tokens."""
    model = build(seed, n_head=heads[0], n_embd=heads[1], **shape)
    V = model.config.vocab_size
    prompts = [torch.randint(0, V, (length,)).tolist() for length in lengths]
    expected = [
        model.generate(torch.tensor([prompt]), 62, temperature=0)[0, len(prompt) :].tolist()
        for prompt in prompts
    ]
    engine = Engine(model, make_step(kind, model))
    assert complete(engine, prompts, GREEDY, max_new_tokens=62) == expected


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 9, 30])
def test_cached_logits_equal_the_uncached(kind: str, rows: int) -> None:
    """Prefill of 4 positions, then each next one, in batches whose texts are not of one length."""
    model = build(n_embd=48, block_size=20)
    idx = torch.randint(0, 31, (rows, 20))
    uncached, _ = model(idx, idx)
    step = make_step(kind, model)
    caches = [step.open(20) for _ in range(rows)]
    lengths = [4 + row % 3 for row in range(rows)]
    logits = torch.cat(
        [
            step.prefill([idx[row, : lengths[row]].tolist()], [cache])
            for row, cache in enumerate(caches)
        ]
    )
    while min(lengths) < 20:
        for row in range(rows):
            torch.testing.assert_close(
                logits[row], uncached[row, lengths[row] - 1], rtol=0, atol=1e-4
            )
        lengths = [min(length, 19) for length in lengths]
        ids = torch.stack([idx[row, lengths[row]] for row in range(rows)])
        logits = step.decode(ids, lengths, caches)
        lengths = [length + 1 for length in lengths]


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize(("n_head", "n_embd"), [(1, 17), (3, 15), (5, 35), (2, 130)])
def test_logits_of_any_width_equal_the_uncached(
    kind: str, activation: str, n_head: int, n_embd: int
) -> None:
    """Heads and rows that no whole number of vectors fills."""
    model = build(n_head=n_head, n_embd=n_embd, activation=activation)
    idx = torch.randint(0, 31, (1, 12))
    uncached, _ = model(idx, idx)
    step = make_step(kind, model)
    cache = step.open(12)
    made = step.prefill([idx[0, :11].tolist()], [cache]), step.decode(idx[0, 11:], [11], [cache])
    torch.testing.assert_close(torch.cat(made), uncached[0, 10:], rtol=0, atol=1e-4)


@pytest.mark.parametrize("step_class", [EagerStep, GraphedStep])
def test_in_16_bits_as_on_a_gpu_logits_are_near_and_float32(
    step_class: type[EagerStep] | type[GraphedStep],
) -> None:
    model, ids = build(), [3, 7, 1, 30]
    exact = model(torch.tensor([ids]))[0][0].detach()
    step: Any = step_class(store_weights(model, "bfloat16"), torch.bfloat16)
    cache = step.open(4)
    step.prefill([ids[:3]], [cache])
    if isinstance(step, EagerStep):
        assert cache.store.dtype == torch.bfloat16
    logits = step.decode(torch.tensor(ids[3:]), [3], [cache])
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, exact, rtol=0, atol=0.05 * float(exact.abs().max()))


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("key", range(3))
def test_scores_beyond_what_exp_can_take_are_softened_like_any(kind: str, key: int) -> None:
    """Wherever the largest stands, and with values that no such power may be multiplied by."""
    model = build(n_layer=1, n_head=1, n_embd=4)
    attn = model.blocks[0].attn.c_attn
    with torch.no_grad():
        model.transformer.wpe.weight.zero_()
        model.transformer.wte.weight[:3] = torch.tensor([-1.0, 2.0, 0.0, 0.0])
        model.transformer.wte.weight[key] = torch.tensor([2.0, -1.0, 0.0, 0.0])
        attn.weight[:8].zero_()
        attn.bias[:8] = torch.tensor([300.0] + [0.0] * 7)  # the query of every position
        attn.weight[4, 0] = 1.0  # the keys tell tokens apart by their first number
        attn.bias[8:] = 50.0
    step = make_step(kind, model)
    made = step.prefill([[0, 1, 2]], [step.open(3)])
    torch.testing.assert_close(made, model(torch.tensor([[0, 1, 2]]))[0][0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", STEPS)
def test_cached_step_t_uses_row_t_of_wpe(kind: str) -> None:
    """A change to row 5 shows from position 5 on and nowhere before, as it does uncached."""
    model, idx = build(), torch.randint(0, 31, (12,))

    def uncached() -> list[torch.Tensor]:
        return list(model(idx[None], idx[None])[0][0])

    def cached() -> list[torch.Tensor]:
        step = make_step(kind, model)
        cache = step.open(12)
        return [step.prefill([idx[:1].tolist()], [cache])] + [
            step.decode(idx[t : t + 1], [t], [cache]) for t in range(1, 12)
        ]

    whole, before = uncached(), cached()
    assert all(map(torch.equal, uncached(), whole)), "a cached pass leaves nothing behind"
    with torch.no_grad():
        model.transformer.wpe.weight[5] += 1
    for then, now in ((before, cached()), (whole, uncached())):
        equal = [torch.equal(*pair) for pair in zip(then, now, strict=True)]
        assert equal == [True] * 5 + [False] * 7


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16", "int8"])
def test_compiled_logits_are_the_same_bits_whatever_shares_the_batch(
    stored: str, threads: int
) -> None:
    """A text alone, prefilled at once or by steps, and among others in any place."""
    model = build(n_embd=200, n_head=5, block_size=64)
    step, alone = (make_step("compiled", model, stored, n) for n in (threads, 1))
    # Four that follow each other's positions, as those of one text do.
    texts = [torch.randint(0, 31, (length,)) for length in (9, 10, 11, 12, 4, 20, 33, 39, 44)]
    caches = [step.open(64) for _ in texts]
    for text, cache in zip(texts, caches, strict=True):
        step.prefill([text[:-1].tolist()], [cache])
    for order in ([0], [8, 3], list(range(9)), list(range(8, -1, -1)), [5, *range(5)]):
        ids = torch.stack([texts[i][-1] for i in order])
        logits = step.decode(ids, [len(texts[i]) - 1 for i in order], [caches[i] for i in order])
        for row, i in enumerate(order):
            whole = alone.prefill([texts[i].tolist()], [alone.open(64)])
            assert torch.equal(logits[row], whole[0])


@given(
    seed=st.integers(0, 1000),
    lengths=st.lists(st.integers(1, 30), min_size=2, max_size=12),
    batch_size=st.integers(1, 12),
)
@settings(max_examples=30, deadline=None)
def test_sampled_ids_are_the_same_alone_and_in_any_company(
    seed: int, lengths: list[int], batch_size: int
) -> None:
    model = build(seed, vocab_size=300, n_embd=36)
    sampler = Sampler(build_filters({"temperature": 1.3, "top_k": 50, "top_p": 0.95}))
    prompts = [torch.randint(0, 300, (length,)).tolist() for length in lengths]
    engine = Engine(model, make_step("compiled", model))
    together = complete(engine, prompts, sampler, max_new_tokens=25, batch_size=batch_size)
    backwards = complete_backwards(engine, prompts, sampler, batch_size)
    assert together == backwards


def complete_backwards(
    engine: Engine, prompts: list[list[int]], sampler: Sampler, batch_size: int
) -> list[list[int]]:
    """The same requests in the opposite order, another number at a time."""
    from nanogpt_cli.generation.engine import Request
    from nanogpt_cli.sampling.draws import Draws

    texts: list[list[int]] = [[] for _ in prompts]
    requests = [Request(i, prompt, Draws(0, prompt, i)) for i, prompt in enumerate(prompts)]
    for token in engine.generate(
        reversed(requests), sampler, max_new_tokens=25, batch_size=13 - batch_size
    ):
        if token.id is not None:
            texts[token.index].append(token.id)
    return texts


def loss_of(model: GPT, stored: str, kind: str, idx: torch.Tensor) -> float:
    """Mean nats of the last ids of rows, each after all before it."""
    step, total = make_step(kind, model, stored), 0.0
    for row in idx:
        logits = step.prefill([row[:-1].tolist()], [step.open(len(row))])
        total -= float(logits.log_softmax(-1)[0, row[-1]])
    return total / len(idx)


@pytest.mark.parametrize(
    ("stored", "share"), [("float16", 1e-3), ("bfloat16", 1e-2), ("int8", 0.02)]
)
@pytest.mark.parametrize("kind", STEPS)
def test_narrow_weights_lose_little(stored: str, share: float, kind: str) -> None:
    model, idx = build(n_embd=96, n_head=4), torch.randint(0, 31, (20, 12))
    full = loss_of(model, "float32", kind, idx)
    assert loss_of(model, stored, kind, idx) == pytest.approx(full, rel=share)


def test_eager_and_compiled_agree_on_narrow_weights() -> None:
    """Whose rows are no multiple of any vector."""
    model, ids = build(n_embd=99, n_head=3), [3, 7, 1, 30]
    for stored in ("float16", "bfloat16", "int8"):
        eager, compiled = (make_step(kind, model, stored) for kind in STEPS[:2])
        torch.testing.assert_close(
            eager.prefill([ids], [eager.open(4)]),
            compiled.prefill([ids], [compiled.open(4)]),
            rtol=0,
            atol=1e-4,
        )


@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16", "int8"])
def test_nan_and_infinity_reach_the_logits(stored: str) -> None:
    """From the end of a row, too, which no whole vector holds."""
    for value, column in itertools.product((torch.nan, torch.inf), (0, -1)):
        model = build(n_embd=27)
        with torch.no_grad():
            model.blocks[0].mlp.c_fc.weight[3, column] = value
        step = make_step("compiled", model, stored)
        assert not torch.isfinite(step.prefill([[1, 2, 3]], [step.open(3)])).all()


@pytest.mark.parametrize("stride", [1, 3, 12])
@pytest.mark.parametrize("kind", STEPS)
def test_a_window_stride_drops_so_many_of_the_oldest_at_once(kind: str, stride: int) -> None:
    model, prompt = build(), [3, 1, 4]
    engine = Engine(model, make_step(kind, model))
    ids, start = list(prompt), 0
    for _ in range(40):
        if len(ids) - start > 12:
            start += stride
        ids.append(int(model(torch.tensor([ids[start:]]))[0][0, -1].argmax()))
    made = complete(engine, [prompt], GREEDY, max_new_tokens=40, window_stride=stride)
    assert made == [ids[3:]]


@pytest.mark.parametrize("kind", STEPS)
def test_texts_prefilled_together_are_those_prefilled_alone(kind: str) -> None:
    """More rows than one part of a prefill takes, cut anywhere; to the bit where it is promised."""
    model = build(n_embd=40, n_head=5, block_size=300)
    step = make_step(kind, model)
    texts = [torch.randint(0, 31, (length,)).tolist() for length in (1, 300, 299, 7, 120, 2)]
    together = step.prefill(texts, [step.open(300) for _ in texts])
    alone = torch.cat([step.prefill([text], [step.open(300)]) for text in texts])
    assert torch.allclose(together, alone, rtol=0, atol=1e-4)
    assert torch.equal(together, alone) or not step.batch_invariant
