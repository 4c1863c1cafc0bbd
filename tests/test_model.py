"""The model against nanoGPT's definition, the manual path, and its own promises."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from model_files import build as build_file
from model_files import save_nanogpt
from torch import nn

from nanogpt_cli.errors import ConfigError
from nanogpt_cli.model import GPT, GPTConfig, LayerNorm

TINY = {"block_size": 16, "vocab_size": 37, "n_layer": 3, "n_head": 5, "n_embd": 20}


def build(seed: int = 0, **overrides: object) -> GPT:
    torch.manual_seed(seed)
    return GPT(GPTConfig(**{**TINY, **overrides})).eval()  # type: ignore[arg-type]


def some_ids(*shape: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, TINY["vocab_size"], shape, generator=generator)


@pytest.mark.parametrize("bias", [True, False])
def test_one_seed_gives_nanogpts_weights_and_generator_state(bias: bool) -> None:
    """Redraw every tensor in nanoGPT's documented order: defaults, then 0.02, then c_proj."""
    config = build(bias=bias).config
    V, T, C, L = config.vocab_size, config.block_size, config.n_embd, config.n_layer
    model = build(seed=7, bias=bias)
    state_after = torch.get_rng_state()

    torch.manual_seed(7)
    shapes = [(C, 3 * C), (C, C), (C, 4 * C), (4 * C, C)]
    for rows in (V, T):
        nn.Embedding(rows, C)
    for _ in range(L):
        for columns, rows in shapes:
            nn.Linear(columns, rows, bias=bias)
    nn.Linear(C, V, bias=False)

    def normal(*shape: int, std: float = 0.02) -> torch.Tensor:
        return torch.empty(shape).normal_(0.0, std)

    normal(V, C)  # the tied matrix, as the embedding; redrawn as the head below
    wpe = normal(T, C)
    drawn = [[normal(rows, columns) for columns, rows in shapes] for _ in range(L)]
    wte = normal(V, C)
    for block in drawn:
        for place in (1, 3):
            block[place] = normal(*block[place].shape, std=0.02 / math.sqrt(2 * L))

    assert torch.equal(torch.get_rng_state(), state_after)
    assert torch.equal(model.lm_head.weight, wte)
    assert torch.equal(model.transformer.wpe.weight, wpe)
    for layer_of, expected in zip(model.blocks, drawn, strict=True):
        attn, mlp = layer_of.attn, layer_of.mlp
        layers = (attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj)
        for layer, weight in zip(layers, expected, strict=True):
            assert torch.equal(layer.weight, weight)
            assert (layer.bias is None) is not bias
            assert layer.bias is None or not layer.bias.any()


def test_state_dict_has_nanogpts_names_in_order() -> None:
    names = list(build(n_layer=1).state_dict())
    block = "transformer.h.0"
    layers = ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"]
    inner = [f"{block}.{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    outer = ["transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"]
    assert names == ["transformer.wte.weight", "transformer.wpe.weight", *inner, *outer]
    assert "transformer.h.0.attn.bias" in build(n_layer=1, attention="manual").state_dict()


def test_head_is_tied_unless_the_config_says_otherwise() -> None:
    model, untied = build(), build(tied_head=False)
    assert model.lm_head.weight is model.transformer.wte.weight
    assert untied.lm_head.weight is not untied.transformer.wte.weight
    assert untied.get_num_params(False) == model.get_num_params(False) + 37 * 20


def test_get_num_params_counts_a_tied_head_once_and_leaves_out_wpe() -> None:
    V, T, C, L = 37, 16, 20, 3
    total = V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C
    assert build().get_num_params(non_embedding=False) == total
    assert build().get_num_params() == total - T * C


def test_loss_is_mean_cross_entropy_without_the_targets_of_minus_one() -> None:
    model, idx, targets = build(), some_ids(2, 9), some_ids(2, 9, seed=2)
    targets[0, :5] = -1
    logits, loss = model(idx, targets)
    assert logits.shape == (2, 9, 37)
    chosen = targets != -1
    expected = -torch.log_softmax(logits, -1)[chosen].gather(1, targets[chosen].unsqueeze(1)).mean()
    torch.testing.assert_close(loss, expected)
    last, none = model(idx)
    assert none is None
    torch.testing.assert_close(last, logits[:, -1:], rtol=0, atol=1e-6)  # another summation order


def test_forward_refuses_more_than_block_size() -> None:
    with pytest.raises(AssertionError, match="17 tokens: block_size is 16"):
        build()(some_ids(1, 17))


@pytest.mark.parametrize("T", [1, 7, 16])
def test_manual_attention_equals_sdpa(T: int) -> None:
    sdpa, manual = build(), build(attention="manual")
    idx = some_ids(2, T)
    difference = (sdpa(idx, idx)[0] - manual(idx, idx)[0]).abs().max()
    assert difference <= 1e-4
    greedy = [m.generate(idx, 20, temperature=0) for m in (sdpa, manual)]
    assert torch.equal(*greedy)


def test_dropout_is_off_in_eval_and_on_in_training_on_both_paths() -> None:
    idx = some_ids(2, 16)
    for attention in ("sdpa", "manual"):
        model, plain = build(dropout=0.5, attention=attention), build(attention=attention)
        assert torch.equal(model(idx)[0], model(idx)[0])
        assert torch.equal(model(idx)[0], plain(idx)[0])
        model.train()
        assert not torch.equal(model(idx)[0], model(idx)[0])


def test_a_norm_adds_1e_5_to_the_variance() -> None:
    norm = LayerNorm(2, bias=True)
    x = torch.tensor([[1.0, -1.0]]) * math.sqrt(1e-5)  # a variance as large as epsilon
    torch.testing.assert_close(norm(x), torch.tensor([[1.0, -1.0]]) / math.sqrt(2))


def test_dropout_is_in_nanogpts_five_places() -> None:
    """Where everything is dropped, what is left tells where that was done."""
    x = torch.randn(2, 7, 20, generator=torch.Generator().manual_seed(1))
    for attention in ("sdpa", "manual"):
        model = build(dropout=1.0, attention=attention).train()
        assert not model(some_ids(2, 7))[0].any()  # the embeddings', and the two of each block
        block = model.blocks[0]
        nn.init.ones_(block.attn.c_proj.bias)
        nn.init.ones_(block.mlp.c_proj.bias)
        assert not block.attn(x).any()
        assert not block.mlp(x).any()
        block.attn.resid_dropout.p = 0.0
        assert block.attn(x).eq(1).all()  # the weights' own: no value comes through


def test_no_position_sees_a_later_one() -> None:
    model, idx = build(), some_ids(1, 12)
    changed = idx.clone()
    changed[0, 8] = (changed[0, 8] + 1) % 37
    before, after = model(idx, idx)[0], model(changed, idx)[0]
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.equal(before[:, 8], after[:, 8])


@pytest.mark.parametrize("attention", ["sdpa", "manual"])
def test_crop_keeps_the_first_positions_and_their_logits(attention: str) -> None:
    model, idx = build(attention=attention), some_ids(1, 6)
    before, rows = model(idx, idx)[0], model.transformer.wpe.weight[:6].clone()
    model.crop_block_size(6)
    assert model.config.block_size == 6
    assert torch.equal(model(idx, idx)[0], before)
    assert torch.equal(model.transformer.wpe.weight, rows)
    assert model.transformer.wpe.weight.untyped_storage().nbytes() == 6 * 20 * 4
    assert model.transformer.wpe.num_embeddings == 6
    if attention == "manual":
        assert model.blocks[0].attn.bias.shape == (1, 1, 6, 6)
        assert model.blocks[0].attn.bias.untyped_storage().nbytes() == 6 * 6 * 4
    model.crop_block_size(6)
    assert torch.equal(model(idx, idx)[0], before)
    with pytest.raises(AssertionError, match="grow block_size from 6 to 7"):
        model.crop_block_size(7)


def test_from_pretrained_overrides_dropout_wherever_it_acts(tmp_path: Path) -> None:
    path = str(save_nanogpt(tmp_path / "ckpt.pt", build_file()))
    model = GPT.from_pretrained(path, {"dropout": 0.25})
    kept = GPT.from_pretrained(path)
    for made, dropout in ((model, 0.25), (kept, 0.0)):
        places = [module.p for module in made.modules() if isinstance(module, nn.Dropout)]
        assert places == [dropout] * (1 + 3 * made.config.n_layer)
        assert [block.attn.dropout for block in made.blocks] == [dropout] * made.config.n_layer
        assert made.config.dropout == dropout
    with pytest.raises(AssertionError, match=r"not \['bias', 'dropout'\]"):
        GPT.from_pretrained(path, {"dropout": 0.25, "bias": False})


def test_optimizer_decays_matrices_alone() -> None:
    model = build()
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")
    decayed, others = optimizer.param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert {p.dim() for p in decayed["params"]} == {2}
    assert {p.dim() for p in others["params"]} == {1}
    assert len(decayed["params"]) == 2 + 4 * 3
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(list(model.parameters()))
    assert optimizer.defaults["betas"] == (0.9, 0.95)
    assert not optimizer.defaults["fused"]
    fused = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cuda")
    assert fused.defaults["fused"]


def test_optimizer_leaves_frozen_weights_out() -> None:
    model = build()
    frozen = (model.transformer.wpe.weight, model.transformer.ln_f.weight)
    for parameter in frozen:
        parameter.requires_grad_(False)
    groups = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu").param_groups
    trained = [p for group in groups for p in group["params"]]
    assert len(trained) == len(list(model.parameters())) - 2
    assert not any(p is weight for p in trained for weight in frozen)


def test_mfu_is_flops_over_an_a100s_peak() -> None:
    model = build()
    N, L, C, T = model.get_num_params(), 3, 20, 16
    flops = (6 * N + 12 * L * C * T) * T * 8
    assert model.estimate_mfu(8, 0.5) == pytest.approx(flops / 0.5 / 312e12, rel=1e-12)


def test_generate_is_nanogpts_loop() -> None:
    """Temperature, threshold top-k, softmax, one multinomial a token, a cropped context."""
    model, idx = build(), some_ids(2, 3)
    torch.manual_seed(5)
    produced = model.generate(idx, 20, temperature=0.7, top_k=4)
    torch.manual_seed(5)
    expected = idx
    for _ in range(20):
        logits = model(expected[:, -16:])[0][:, -1] / 0.7
        kth = logits.sort(dim=-1, descending=True).values[:, 3:4]
        probabilities = torch.where(logits < kth, -torch.inf, logits).softmax(-1)
        expected = torch.cat((expected, torch.multinomial(probabilities, 1)), 1)
    assert torch.equal(produced, expected)


def test_generate_takes_a_top_k_beyond_the_vocabulary_for_all_of_it() -> None:
    model, idx = build(), some_ids(1, 3)
    texts = []
    for top_k in (None, 37, 38):
        torch.manual_seed(5)
        texts.append(model.generate(idx, 10, top_k=top_k).tolist())
    assert texts[0] == texts[1] == texts[2]


def test_generate_at_zero_takes_the_lowest_of_equal_logits() -> None:
    model = build()
    with torch.no_grad():
        model.lm_head.weight[11] = model.lm_head.weight[30]
        model.transformer.ln_f.weight.zero_()
    assert model.generate(some_ids(2, 3), 4, temperature=0)[:, 3:].eq(0).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_layer": 0}, "n_layer is 0: it must be an integer of at least 1"),
        ({"vocab_size": 1.5}, "vocab_size is 1.5: it must be an integer of at least 1"),
        ({"n_head": True}, "n_head is True: it must be an integer of at least 1"),
        ({"n_head": 3}, "n_embd 20 is not divisible by n_head 3"),
        ({"dropout": 1.5}, "dropout is 1.5: it must lie in 0 to 1"),
        ({"activation": "relu"}, "unknown activation 'relu': known are gelu, gelu_tanh"),
        ({"attention": "flash"}, "unknown attention 'flash': known are sdpa, manual"),
    ],
)
def test_an_impossible_config_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GPTConfig(**{**TINY, **wrong})  # type: ignore[arg-type]
    assert caught.value.message == message


def test_activations_differ_as_they_should() -> None:
    x = torch.linspace(-4, 4, 50)
    exact, tanh = (build(activation=name).blocks[0].mlp.gelu(x) for name in ("gelu", "gelu_tanh"))
    torch.testing.assert_close(exact, x * 0.5 * (1 + torch.erf(x / math.sqrt(2))))
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    torch.testing.assert_close(tanh, x * 0.5 * (1 + torch.tanh(inner)))
