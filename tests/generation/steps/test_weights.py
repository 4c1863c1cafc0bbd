"""Weights as a step keeps them, and the products that torch makes of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from step_models import build, make_step

from nanogpt_cli.generation.steps.weights import Matrix, Norm, store_weights


def test_float32_weights_are_read_where_they_lie() -> None:
    model = build()
    step = make_step("compiled", model)
    before = step.prefill([[1, 2]], [step.open(2)])
    with torch.no_grad():
        model.transformer.wte.weight.mul_(2)
    assert not torch.equal(step.prefill([[1, 2]], [step.open(2)]), before)


@pytest.mark.parametrize("stored", ["float32", "float16", "int8"])
@pytest.mark.parametrize("tied_head", [True, False])
def test_weights_move_to_a_device_whole_and_once(stored: str, tied_head: bool) -> None:
    weights = store_weights(build(tied_head=tied_head), stored)
    moved = weights.to(torch.device("meta"))
    assert (moved.wte is moved.lm_head.weight) == (weights.wte is weights.lm_head.weight)
    assert moved.matrix_bytes == weights.matrix_bytes
    assert weights.to(torch.device("cpu")) is weights
    for layer in moved.layers:
        for part in (layer.c_attn, layer.attn_proj, layer.c_fc, layer.mlp_proj):
            assert {part.weight.device.type, part.bias.device.type} == {"meta"}  # type: ignore[union-attr]
            assert (part.scale is None) == (stored != "int8")


def test_an_embedding_beside_an_int8_head_is_the_models_own() -> None:
    model = build()
    weights = store_weights(model, "int8")
    assert torch.equal(weights.wte, model.transformer.wte.weight)
    assert torch.equal(weights.wpe, model.transformer.wpe.weight)
    assert torch.equal(weights.ln_f.weight, model.transformer.ln_f.weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_all_of_a_narrow_model_is_rounded_vectors_too(dtype: torch.dtype) -> None:
    """As a model that was cast whole."""
    model = build()
    weights = store_weights(model, str(dtype).removeprefix("torch."))
    block, layer = model.blocks[1], weights.layers[1]
    pairs: list[tuple[torch.nn.Module, Matrix | Norm]] = [
        (block.ln_1, layer.ln_1),
        (block.ln_2, layer.ln_2),
        (block.attn.c_attn, layer.c_attn),
        (block.attn.c_proj, layer.attn_proj),
        (block.mlp.c_fc, layer.c_fc),
        (block.mlp.c_proj, layer.mlp_proj),
        (model.transformer.ln_f, weights.ln_f),
    ]
    for module, kept in pairs:
        assert isinstance(module.weight, torch.Tensor)
        assert isinstance(module.bias, torch.Tensor)
        assert kept.bias is not None
        assert torch.equal(kept.weight.float(), module.weight.to(dtype).float())
        assert torch.equal(kept.bias, module.bias.to(dtype).float())
        assert (kept.weight.dtype, kept.bias.dtype) == (
            dtype if isinstance(kept, Matrix) else torch.float32,
            torch.float32,
        )


def test_int8_rows_of_zeros_stay_zeros() -> None:
    model = build()
    with torch.no_grad():
        model.blocks[0].mlp.c_fc.weight[3] = 0
    dense = store_weights(model, "int8").layers[0].c_fc.dense()
    assert not dense[3].any()
    assert torch.isfinite(dense).all()


@pytest.mark.parametrize(
    "mkldnn",
    [
        SimpleNamespace(),
        SimpleNamespace(
            _reorder_linear_weight=lambda weight, _rows: weight,
            _linear_pointwise=lambda x, weight, *_rest: x.new_zeros(len(x), len(weight)),
        ),
    ],
    ids=["missing", "wrong"],
)
@pytest.mark.parametrize("stored", ["float32", "int8"])
def test_a_packed_product_that_torch_lacks_or_gets_wrong_is_not_used(
    stored: str, mkldnn: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = build(), [3, 7, 1]
    step = make_step("eager", model, stored)
    usual = step.prefill([ids], [step.open(3)])
    monkeypatch.setattr(torch.ops, "mkldnn", mkldnn)
    step = make_step("eager", model, stored)
    torch.testing.assert_close(step.prefill([ids], [step.open(3)]), usual, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["eager", "compiled", "graphed"])
def test_a_fork_goes_on_from_all_that_was_run(kind: str) -> None:
    model = build()
    step = make_step(kind, model)
    cache = step.open(6)
    step.prefill([[3, 7, 1]], [cache])
    fork = step.fork(cache, 3, 12)
    step.decode(torch.tensor([5]), [3], [cache])
    logits = step.decode(torch.tensor([4]), [3], [fork])
    torch.testing.assert_close(logits, model(torch.tensor([[3, 7, 1, 4]]))[0][0], rtol=0, atol=1e-4)
