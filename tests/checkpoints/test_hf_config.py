"""config.json: what is Hugging Face's, what a GPT-2's says, and what is refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.activations import ACT2FN

from nanogpt_cli.checkpoints.hugging_face.config import (
    ACTIVATION_NAMES,
    CONFIG_LIMIT,
    HFSettings,
    gpt2_settings,
    read_hf_config,
)
from nanogpt_cli.errors import CheckpointError

ZOO = Path(os.environ.get("NANOGPT_ZOO", Path(__file__).resolve().parents[3] / "shared" / "zoo"))


def written(folder: Path, config: object) -> Path:
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text)
    return folder


def saved(folder: Path, **changes: Any) -> dict[str, object]:
    """Return the config.json that transformers writes for a GPT-2 with these settings."""
    GPT2Config(**changes).save_pretrained(folder)
    config = read_hf_config(folder)
    assert config is not None
    return config


def refusal(config: dict[str, object]) -> str:
    with pytest.raises(CheckpointError) as caught:
        gpt2_settings(config)
    assert caught.value.exit_code == 1
    return caught.value.message


def test_what_transformers_writes_comes_back_in_our_names(tmp_path: Path) -> None:
    config = saved(
        tmp_path,
        n_layer=3,
        n_head=5,
        n_embd=40,
        n_positions=20,
        vocab_size=99,
        activation_function="gelu",
        tie_word_embeddings=False,
    )
    assert gpt2_settings(config) == HFSettings(3, 5, 40, 20, 99, "gelu", tied_head=False)


def test_a_field_that_is_left_out_has_transformers_default() -> None:
    reference = GPT2Config()
    assert gpt2_settings({"model_type": "gpt2"}) == HFSettings(
        reference.n_layer,
        reference.n_head,
        reference.n_embd,
        reference.n_positions,
        reference.vocab_size,
        "gelu_tanh",
        tied_head=True,
    )


def test_other_names_of_the_sizes(tmp_path: Path) -> None:
    config = saved(tmp_path) | {"n_ctx": 7, "n_positions": 1024}
    assert gpt2_settings(config).block_size == 1024
    aliases: dict[str, object] = {
        "model_type": "gpt2",
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 16,
    }
    assert gpt2_settings(aliases) == HFSettings(1, 2, 8, 16, 50257, "gelu_tanh", tied_head=True)
    old: dict[str, object] = {"n_layer": 1, "n_head": 2, "n_embd": 8, "n_ctx": 16, "vocab_size": 9}
    assert gpt2_settings(old) == HFSettings(1, 2, 8, 16, 9, "gelu_tanh", tied_head=True)


@pytest.mark.parametrize(("theirs", "ours"), ACTIVATION_NAMES.items())
def test_an_activation_name_means_what_it_means_in_transformers(theirs: str, ours: str) -> None:
    x = torch.linspace(-6, 6, 1001, dtype=torch.float64)
    approximate = {"gelu": "none", "gelu_tanh": "tanh"}[ours]
    expected = torch.nn.functional.gelu(x, approximate=approximate)
    # The other function is 5e-4 away; the spellings of one differ by a constant's last digits.
    torch.testing.assert_close(ACT2FN[theirs](x), expected, atol=1e-9, rtol=0)
    assert gpt2_settings({"model_type": "gpt2", "activation_function": theirs}).activation == ours


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("activation_function", "relu"),
        ("activation_function", "quick_gelu"),
        ("activation_function", "gelu_10"),
        ("activation_function", None),
        ("n_inner", 128),
        ("n_inner", 3073),
        ("n_inner", "3072"),
        ("layer_norm_epsilon", 1e-6),
        ("layer_norm_epsilon", 1.0000002e-05),
        ("layer_norm_epsilon", 10**400),
        ("layer_norm_epsilon", float("inf")),
        ("layer_norm_epsilon", "1e-5"),
        ("layer_norm_epsilon", None),
        ("scale_attn_weights", False),
        ("scale_attn_by_inverse_layer_idx", True),
        ("add_cross_attention", True),
        ("is_encoder_decoder", True),
        ("pruned_heads", {"0": [1]}),
        ("n_layer", 0),
        ("n_layer", True),
        ("n_head", "12"),
        ("n_embd", 768.0),
        ("n_positions", -1),
        ("vocab_size", [50257]),
        ("tie_word_embeddings", 1),
        ("model_type", "llama"),
        ("model_type", "gptj"),
        ("model_type", "decision_transformer"),
        ("model_type", "vision-encoder-decoder"),
        ("nanogpt", "bias"),
    ],
)
def test_what_the_architecture_cannot_carry_is_named(field: str, value: object) -> None:
    config: dict[str, object] = {"model_type": "gpt2", field: value}
    assert refusal(config).startswith(f"config.json has {field} {value!r}: ")


@pytest.mark.parametrize(
    "changes",
    [
        {"n_inner": 4 * 768},
        {"n_inner": None},
        {"reorder_and_upcast_attn": True},
        {"layer_norm_epsilon": 9.999999747378752e-06},
        {"pruned_heads": {}},
        {"add_cross_attention": False},
        {"quantization_config": None},
        {"architectures": None},
        {"architectures": []},
        {"architectures": ["GPT2Model"]},
        {"architectures": ["GPT2LMHeadModel"]},
        {"architectures": ["TFGPT2LMHeadModel"]},
    ],
)
def test_what_changes_nothing_is_taken(changes: dict[str, object]) -> None:
    plain = gpt2_settings({"model_type": "gpt2"})
    assert gpt2_settings({"model_type": "gpt2", **changes}) == plain


def eager(**settings: Any) -> Any:
    sizes: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 8, "n_positions": 16}
    config = GPT2Config(vocab_size=11, **sizes, **settings)
    torch.manual_seed(0)
    model: Any = GPT2LMHeadModel(config)
    model.set_attn_implementation("eager")
    return model.eval()


def test_reorder_and_upcast_changes_nothing_in_float32() -> None:
    plain, upcast = eager(), eager(reorder_and_upcast_attn=True)
    idx = torch.arange(11)[None]
    # The scale multiplies in another order: a few units in the last place of values near 0.1.
    torch.testing.assert_close(upcast(idx).logits, plain(idx).logits, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "name",
    [
        "GPT2ForSequenceClassification",
        "GPT2ForTokenClassification",
        "GPT2DoubleHeadsModel",
        "GPTJForCausalLM",
        "BertModel",
    ],
)
@pytest.mark.parametrize("typed", [True, False])
def test_a_model_with_another_head_is_named(name: str, typed: bool) -> None:
    config: dict[str, object] = {"architectures": [name]}
    if typed:
        config["model_type"] = "gpt2"
    assert refusal(config).startswith(f"config.json has architectures {name!r}: ")


def test_a_quantized_model_is_named() -> None:
    message = refusal({"model_type": "gpt2", "quantization_config": {"quant_method": "gptq"}})
    assert message == (
        "config.json has quantization_config ('gptq'): quantized weights are not read"
    )


def test_our_own_entry() -> None:
    config: dict[str, object] = {"model_type": "gpt2", "activation_function": "gelu"}
    entry = {"bias": False, "activation": "gelu", "sizes": {"block_size": 8}}
    assert gpt2_settings({**config, "nanogpt": entry}).nanogpt == entry
    for field, value, said in [
        ("bias", 1, "it must be true or false"),
        ("activation", "relu", "known are gelu, gelu_tanh"),
        ("activation", "gelu_tanh", "its activation_function is 'gelu'"),
    ]:
        message = refusal({**config, "nanogpt": {**entry, field: value}})
        assert message == f"config.json has nanogpt.{field} {value!r}: {said}"


@pytest.mark.parametrize(
    "config",
    [
        {"system": {"seed": 1}, "model": {"model_type": "gpt-nano", "n_layer": 3}},
        {"n_layer": 1, "n_head": 1, "n_embd": 8, "block_size": 8, "vocab_size": 9},
        {},
    ],
)
def test_a_config_of_another_kind_is_none(tmp_path: Path, config: object) -> None:
    assert read_hf_config(written(tmp_path, config)) is None


@pytest.mark.parametrize("positions", ["n_positions", "n_ctx"])
def test_a_config_without_a_type_is_known_by_its_sizes(tmp_path: Path, positions: str) -> None:
    config = {"n_layer": 1, "n_head": 1, "n_embd": 8, positions: 8}
    assert read_hf_config(written(tmp_path, config)) == config


def test_no_config_at_all(tmp_path: Path) -> None:
    assert read_hf_config(tmp_path) is None
    os.mkfifo(tmp_path / "config.json")  # opening it would block for ever
    assert read_hf_config(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON: "),
        ("", "is not valid JSON: "),
        ("[1]", "does not hold a JSON object"),
        ("[" * 100_000, "JSON nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "is not valid JSON: "),
        (" " * (CONFIG_LIMIT + 1), f"has {CONFIG_LIMIT + 1} bytes: the limit is {CONFIG_LIMIT}"),
        ("version https://git-lfs.github.com/spec/v1", "is not valid JSON: "),
    ],
)
def test_a_damaged_config_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_hf_config(written(tmp_path, text))
    assert caught.value.message.startswith(repr(str(tmp_path / "config.json")))
    assert said in caught.value.message


@pytest.mark.real
@pytest.mark.skipif(not ZOO.is_dir(), reason="the folder of real files is absent")
def test_real_configs() -> None:
    config = read_hf_config(ZOO / "hf-tiny-21")
    assert config is not None
    assert gpt2_settings(config) == HFSettings(1, 1, 2, 1024, 21, "gelu_tanh", tied_head=True)
    assert read_hf_config(ZOO / "minGPT-adder") is None
