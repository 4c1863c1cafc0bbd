"""Every envelope, prefix and layout in the wild becomes the right model, or one clear error."""

from __future__ import annotations

import argparse
import copy
import types
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from model_files import SIZES, build, envelope, save_nanogpt
from safetensors.torch import save_file

from nanogpt_cli.checkpoints import Checkpoint, load_model, open_checkpoint
from nanogpt_cli.checkpoints.fitting import parameter_shapes
from nanogpt_cli.errors import CheckpointError, UsageError
from nanogpt_cli.model import GPT

IDX = torch.arange(12).view(1, 12)


def save(path: Path, content: object) -> str:
    torch.save(content, path)
    return str(path)


def logits(model: GPT) -> torch.Tensor:
    out: torch.Tensor = model.eval()(IDX, IDX)[0]
    return out


def load(ref: str, n_head: int | None = None) -> tuple[Checkpoint, torch.Tensor]:
    checkpoint = open_checkpoint(ref, n_head=n_head)
    return checkpoint, logits(load_model(checkpoint))


def renamed(model: GPT, rename: Any) -> dict[str, torch.Tensor]:
    return {rename(name): tensor for name, tensor in model.state_dict().items()}


def refusal(ref: str, n_head: int | None = None) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load_model(open_checkpoint(ref, n_head=n_head))
    return caught.value


def test_parameter_shapes_are_the_models() -> None:
    for options in ({}, {"bias": False}, {"tied_head": False}):
        model = build(**options)
        expected = {name: tuple(p.shape) for name, p in model.named_parameters()}
        assert list(parameter_shapes(model.config).items()) == list(expected.items())


@pytest.mark.parametrize("bias", [True, False])
def test_a_nanogpt_file_gives_its_model_bit_for_bit(tmp_path: Path, bias: bool) -> None:
    model = build(bias=bias, dropout=0.1)
    checkpoint, loaded = load(str(save_nanogpt(tmp_path / "ckpt.pt", model)))
    assert torch.equal(loaded, logits(model))
    assert checkpoint.config == model.config
    assert (checkpoint.iter_num, checkpoint.best_val_loss) == (250, 2.5)
    assert checkpoint.train_config == {"dataset": "letters", "batch_size": 4}
    assert checkpoint.architecture.tying == "storage"
    assert checkpoint.notes == ()


@pytest.mark.parametrize(
    "prefix",
    ["_orig_mod.", "module.", "model.", "_orig_mod.module.", "module._orig_mod.", "module.module."],
)
def test_wrappers_prefixes_are_removed_and_named(tmp_path: Path, prefix: str) -> None:
    model = build()
    content = envelope(model, model=renamed(model, lambda name: prefix + name))
    checkpoint, loaded = load(save(tmp_path / "ckpt.pt", content))
    assert torch.equal(loaded, logits(model))
    assert set(checkpoint.architecture.prefixes) == {f"{p}." for p in prefix[:-1].split(".")}


def test_blocks_that_were_compiled_one_by_one_are_read(tmp_path: Path) -> None:
    model = build()
    names = renamed(model, lambda name: name.replace(".attn.", "._orig_mod.attn."))
    _, loaded = load(save(tmp_path / "ckpt.pt", envelope(model, model=names)))
    assert torch.equal(loaded, logits(model))


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    model = build()
    names = {**model.state_dict(), "module.transformer.ln_f.bias": torch.zeros(24)}
    error = refusal(save(tmp_path / "ckpt.pt", envelope(model, model=names)))
    assert "two tensors are named 'transformer.ln_f.bias'" in error.message


def test_an_unknown_prefix_is_quoted(tmp_path: Path) -> None:
    model = build()
    names = renamed(model, lambda name: f"net.{name}")
    error = refusal(save(tmp_path / "ckpt.pt", envelope(model, model=names)))
    assert "every tensor's name begins with 'net.'" in error.message


@pytest.mark.parametrize("key", ["model", "model_state_dict", "model_state", "state_dict", "sd"])
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_the_state_dict_is_found_under_its_usual_names(
    tmp_path: Path, key: str, kind: type
) -> None:
    model = build()
    content = envelope(model)
    content[key] = kind(content.pop("model"))
    assert torch.equal(load(save(tmp_path / "x.pt", content))[1], logits(model))


def test_a_bare_state_dict_needs_its_number_of_heads(tmp_path: Path) -> None:
    model = build()
    ref = save(tmp_path / "model.pt", model.state_dict())
    checkpoint, loaded = load(ref, n_head=3)
    assert torch.equal(loaded, logits(model))
    assert checkpoint.architecture.sources["n_head"] == "flag"
    assert open_checkpoint(ref).architecture.n_head_known is False
    with pytest.raises(UsageError) as caught:
        load_model(open_checkpoint(ref))
    assert "24 columns" in caught.value.message
    assert caught.value.hint == "give --n-head N; divisors of 24: 1, 2, 3"


@pytest.mark.parametrize("n_head", [0, -3, 5, 10**30])
def test_a_number_of_heads_that_does_not_divide_is_a_wrong_flag(
    tmp_path: Path, n_head: int
) -> None:
    ref = save(tmp_path / "model.pt", build().state_dict())
    with pytest.raises(UsageError) as caught:
        open_checkpoint(ref, n_head=n_head)
    assert f"--n-head {n_head} does not divide the model's 24 columns" in caught.value.message


def test_n_head_may_repeat_the_file_but_not_contradict_it(tmp_path: Path) -> None:
    ref = str(save_nanogpt(tmp_path / "ckpt.pt", build()))
    open_checkpoint(ref, n_head=3)
    with pytest.raises(UsageError, match="--n-head 4 contradicts the file, which says n_head 3"):
        open_checkpoint(ref, n_head=4)


def test_masks_are_no_parameters_and_biases_are_no_masks(tmp_path: Path) -> None:
    model = build()
    masked = build(attention="manual")
    content = envelope(model, model=dict(masked.state_dict()))
    for layer in range(2):
        content["model"][f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    checkpoint, loaded = load(save(tmp_path / "ckpt.pt", content))
    assert torch.equal(loaded, logits(model))
    assert len(checkpoint.architecture.masks) == 4
    assert "transformer.h.0.attn.c_attn.bias" in checkpoint.architecture.weights
    content["model"]["transformer.h.1.attn.bias"] = torch.zeros(24)
    message = refusal(save(tmp_path / "other.pt", content)).message
    assert message.endswith("not this GPT: 1 unexpected weight: 'transformer.h.1.attn.bias'")


def test_a_missing_head_is_the_embedding(tmp_path: Path) -> None:
    model = build()
    weights = dict(model.state_dict())
    del weights["lm_head.weight"]
    checkpoint = open_checkpoint(save(tmp_path / "ckpt.pt", envelope(model, model=weights)))
    loaded = load_model(checkpoint)
    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    assert torch.equal(logits(loaded), logits(model))
    assert (checkpoint.architecture.tying, checkpoint.notes) == ("absent", ())


def test_equal_copies_are_tied_by_value(tmp_path: Path) -> None:
    model = build()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    checkpoint = open_checkpoint(save(tmp_path / "ckpt.pt", envelope(model, model=weights)))
    assert checkpoint.architecture.tying == "value"
    assert checkpoint.config.tied_head


def test_a_head_of_its_own_is_kept_with_one_note(tmp_path: Path) -> None:
    model = build(tied_head=False)
    checkpoint, loaded = load(str(save_nanogpt(tmp_path / "ckpt.pt", model)))
    assert torch.equal(loaded, logits(model))
    assert not checkpoint.config.tied_head
    assert len(checkpoint.notes) == 1


@dataclass
class ForeignConfig:
    block_size: int = 16
    vocab_size: int = 65
    n_layer: int = 2
    n_head: int = 3
    n_embd: int = 24


def test_build_nanogpts_pickled_config_is_read_and_means_the_tanh_gelu(tmp_path: Path) -> None:
    model = build(activation="gelu_tanh")
    content = {
        "model": model.state_dict(),
        "config": ForeignConfig(),
        "step": 19072,
        "val_loss": 3.05,
    }
    checkpoint, loaded = load(save(tmp_path / "model_19072.pt", content))
    assert torch.equal(loaded, logits(model))
    assert checkpoint.architecture.envelope.family == "build-nanogpt"
    assert (checkpoint.iter_num, checkpoint.best_val_loss) == (19072, 3.05)


class EasyDict(dict[str, Any]):
    """As configs often are: a dict whose entries are attributes too."""


@pytest.mark.parametrize("kind", [argparse.Namespace, types.SimpleNamespace, dict, EasyDict])
def test_a_config_may_be_a_namespace_or_a_dict(tmp_path: Path, kind: Any) -> None:
    model = build()
    content = {"model": model.state_dict(), "config": kind(**SIZES, dropout=0.0)}
    assert torch.equal(load(save(tmp_path / "x.pt", content))[1], logits(model))


def test_our_own_entry_says_the_activation(tmp_path: Path) -> None:
    model = build(activation="gelu_tanh")
    own = {"nanogpt_cli": {"activation": "gelu_tanh"}}
    _, loaded = load(str(save_nanogpt(tmp_path / "ckpt.pt", model, **own)))
    assert torch.equal(loaded, logits(model))


def conv1d(model: GPT) -> dict[str, torch.Tensor]:
    matrices = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    return {
        name: tensor.t().contiguous() if name.endswith(matrices) else tensor
        for name, tensor in model.state_dict().items()
    }


def test_conv1d_weights_without_a_config_are_gpt2s(tmp_path: Path) -> None:
    """Also the square attn.c_proj, which no shape shows to be transposed."""
    model = build(activation="gelu_tanh")
    checkpoint, loaded = load(save(tmp_path / "ckpt.pt", conv1d(model)), n_head=3)
    assert torch.equal(loaded, logits(model))
    assert checkpoint.notes == (
        "Conv1D weights without a config: taken as GPT-2's, with the tanh GELU",
    )


def test_hf_names_may_lack_transformer_and_head(tmp_path: Path) -> None:
    model = build(activation="gelu_tanh")
    bare = {name.removeprefix("transformer."): t for name, t in conv1d(model).items()}
    del bare["lm_head.weight"]
    assert torch.equal(load(save(tmp_path / "x.bin", bare), n_head=3)[1], logits(model))


def test_sizes_that_disagree_with_the_shapes_are_named(tmp_path: Path) -> None:
    model = build()
    content = envelope(model)
    content["model_args"]["vocab_size"] = 128
    error = refusal(save(tmp_path / "ckpt.pt", content))
    assert error.message.endswith(
        "'transformer.wte.weight' has shape [65, 24], and the file's config wants [128, 24]; "
        "1 tensor of 28 differ so"
    )


def test_every_missing_and_unexpected_key_counts(tmp_path: Path) -> None:
    model = build()
    weights = dict(model.state_dict())
    for name in [name for name in weights if ".ln_2." in name]:
        weights[f"{name}.renamed"] = weights.pop(name)
    weights |= {f"transformer.h.0.gate{i}.weight": torch.zeros(3) for i in range(6)}
    error = refusal(save(tmp_path / "ckpt.pt", envelope(model, model=weights)))
    assert "4 missing weights: 'transformer.h.0.ln_2.weight'" in error.message
    assert "10 unexpected weights: " in error.message
    assert error.message.endswith("and 5 more")


def test_a_file_with_biases_in_some_layers_says_so(tmp_path: Path) -> None:
    model = build(bias=False)
    weights = dict(model.state_dict())
    norms = [name for name in weights if ".ln_" in name]
    weights |= {name.replace("weight", "bias"): torch.zeros(24) for name in norms}
    error = refusal(save(tmp_path / "ckpt.pt", envelope(model, model=weights)))
    assert "missing weights: 'transformer.h.0.attn.c_attn.bias'" in error.message
    assert error.hint is not None
    assert "biases in some layers only" in error.hint


@pytest.mark.parametrize(
    "weights",
    [
        {"tok_embeddings.weight": torch.zeros(5, 4), "layers.0.w1.weight": torch.zeros(4, 4)},
        {"embedding.weight": torch.zeros(5, 4)},
    ],
)
def test_another_architecture_is_told_by_its_names(
    tmp_path: Path, weights: dict[str, torch.Tensor]
) -> None:
    content = envelope(build(), model=weights)
    error = refusal(save(tmp_path / "ckpt.pt", content))
    assert "not a GPT-2 model: no tensor is named 'transformer.wte.weight'" in error.message
    assert repr(next(iter(weights))) in error.message


def test_a_model_without_a_position_table_is_told(tmp_path: Path) -> None:
    state = dict(build().state_dict())
    del state["transformer.wpe.weight"]
    error = refusal(save(tmp_path / "ckpt.pt", envelope(build(), model=state)))
    assert "missing weight 'transformer.wpe.weight': it gives the model's sizes" in error.message


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    model = build()
    weights = dict(model.state_dict())
    name = "transformer.h.1.mlp.c_fc.weight"
    weights[name] = weights[name].to(torch.int8)
    error = refusal(save(tmp_path / "ckpt.pt", envelope(model, model=weights)))
    assert f"{name!r} is of type int8" in error.message


def test_a_claimed_number_of_layers_is_never_counted_out(tmp_path: Path) -> None:
    content = envelope(build())
    content["model_args"]["n_layer"] = 10**12
    error = refusal(save(tmp_path / "ckpt.pt", content))
    assert "the file's n_layer is 1000000000000, and it holds 28 weights in all" in error.message


def test_a_layer_whose_number_is_absurd_is_an_unexpected_weight(tmp_path: Path) -> None:
    content = envelope(build())
    content["model"] = dict(content["model"]) | {f"transformer.h.{'9' * 5000}.x": torch.zeros(1)}
    error = refusal(save(tmp_path / "ckpt.pt", content))
    assert "not this GPT: 1 unexpected weight: 'transformer.h.999" in error.message


def test_a_layer_without_a_number_is_no_layer(tmp_path: Path) -> None:
    state = dict(build().state_dict()) | {"transformer.h.rotary.weight": torch.zeros(1)}
    error = refusal(save(tmp_path / "bare.pt", state))
    assert error.message.endswith(
        "not this GPT: 1 unexpected weight: 'transformer.h.rotary.weight'"
    )


@pytest.mark.parametrize("loss", [10**400, -(10**400), float("inf"), float("nan")])
def test_a_loss_that_is_no_loss_is_left_out(tmp_path: Path, loss: float) -> None:
    content = envelope(build(), best_val_loss=loss, iter_num=10**400)
    checkpoint = open_checkpoint(save(tmp_path / "ckpt.pt", content))
    assert (checkpoint.best_val_loss, checkpoint.iter_num) == (None, None)


def test_facts_of_several_numbers_are_left_out(tmp_path: Path) -> None:
    content = envelope(build(), best_val_loss=torch.ones(2), iter_num=torch.ones(2))
    checkpoint = open_checkpoint(save(tmp_path / "ckpt.pt", content))
    assert (checkpoint.best_val_loss, checkpoint.iter_num) == (None, None)


@pytest.mark.parametrize("stated", ["three", "-3", "", "9" * 5000])
def test_metadata_that_is_no_size_is_left_out(tmp_path: Path, stated: str) -> None:
    path = tmp_path / "model.safetensors"
    state = {name: tensor.clone() for name, tensor in build().state_dict().items()}
    save_file(state, path, {"n_head": stated})
    assert not open_checkpoint(str(path)).architecture.n_head_known


def test_sizes_may_be_tensors_of_one_number(tmp_path: Path) -> None:
    content = envelope(build())
    content["model_args"]["n_head"] = torch.tensor(3)
    assert open_checkpoint(save(tmp_path / "ckpt.pt", content)).config.n_head == 3
    content["model_args"]["n_head"] = torch.tensor([3, 3])
    error = refusal(save(tmp_path / "ckpt.pt", content))
    assert "the file's n_head is a tensor of shape [2]" in error.message


def test_sizes_of_a_wrong_type_are_refused(tmp_path: Path) -> None:
    content = envelope(build())
    content["model_args"]["n_head"] = "3"
    error = refusal(save(tmp_path / "ckpt.pt", content))
    assert "the file's n_head is '3': it must be an integer" in error.message


def test_settings_of_a_fork_are_said_to_have_no_effect(tmp_path: Path) -> None:
    content = envelope(build())
    content["model_args"] |= {"rope": True, "window": 0}
    checkpoint = open_checkpoint(save(tmp_path / "ckpt.pt", content))
    assert checkpoint.notes == (
        "model_args has settings that nanoGPT lacks, taken as without effect: 'rope'",
    )


def test_files_that_are_no_checkpoint_dicts_say_what_they_hold(tmp_path: Path) -> None:
    cases: list[tuple[object, str]] = [
        (torch.zeros(3), "the file holds a single tensor, not a state dict"),
        ([1, 2], "the file holds a list, not a state dict"),
        ({"a": 1, "b": 2}, "no state dict in the file: its keys are 'a', 'b'"),
        ({}, "no state dict in the file: it is empty"),
        (
            {"optimizer": build().state_dict(), "iter_num": 1},
            "no state dict in the file: its keys are 'optimizer', 'iter_num'",
        ),
    ]
    for number, (content, message) in enumerate(cases):
        assert message in refusal(save(tmp_path / f"{number}.pt", content)).message


def test_a_whole_pickled_module_is_named_and_not_opened(tmp_path: Path) -> None:
    for content, where in (({"model": build()}, "'model'"), (build(), "the file")):
        error = refusal(save(tmp_path / "x.pt", content))
        told = f"{where} holds a whole pickled object of class 'nanogpt_cli.model.GPT'"
        assert told in error.message
        assert error.hint == "save model.state_dict() instead of the model"


def test_storages_on_a_gpu_load_without_one(tmp_path: Path) -> None:
    model = build()
    ref = save(tmp_path / "ckpt.pt", envelope(model))
    data = Path(ref).read_bytes()
    tagged = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00mps")
    assert tagged != data
    (tmp_path / "mps.pt").write_bytes(_with_crcs(tagged, tmp_path))
    assert torch.equal(load(str(tmp_path / "mps.pt"))[1], logits(model))


def _with_crcs(data: bytes, folder: Path) -> bytes:
    """Return a zip whose members were changed, written again so that its checksums hold."""
    import io
    import zipfile

    out = io.BytesIO()
    source = folder / "tagged.zip"
    source.write_bytes(data)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w") as new:
        for member in old.infolist():
            offset = member.header_offset + 30
            header = data[member.header_offset : offset]
            offset += int.from_bytes(header[26:28], "little")
            offset += int.from_bytes(header[28:30], "little")
            new.writestr(member.filename, data[offset : offset + member.file_size])
    return out.getvalue()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_float_types_load_as_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    model = build()
    stored = copy.deepcopy(model).to(dtype)
    _, loaded = load(str(save_nanogpt(tmp_path / "ckpt.pt", stored)))
    assert torch.equal(loaded, logits(stored.float()))


def test_float32_weights_are_the_files_own_bytes(tmp_path: Path) -> None:
    """Mapped, not copied; and writing to the model leaves the file as it was."""
    path = save_nanogpt(tmp_path / "ckpt.pt", build())
    before = path.read_bytes()
    model = load_model(open_checkpoint(str(path)))
    with torch.no_grad():
        model.transformer.wpe.weight.add_(1)
    assert path.read_bytes() == before


def test_a_config_json_of_hugging_faces_beside_a_weights_file_is_used(tmp_path: Path) -> None:
    model = build(activation="gelu_tanh")
    (tmp_path / "config.json").write_text(
        '{"model_type": "gpt2", "n_layer": 2, "n_head": 3, "n_embd": 24, "n_positions": 16,'
        ' "vocab_size": 65, "activation_function": "gelu_new"}'
    )
    checkpoint, loaded = load(save(tmp_path / "renamed.pt", conv1d(model)))
    assert torch.equal(loaded, logits(model))
    assert checkpoint.architecture.sources["n_head"] == "file"


def test_a_config_json_beside_it_never_outdoes_what_a_file_says_itself(tmp_path: Path) -> None:
    model = build()
    (tmp_path / "config.json").write_text(
        '{"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 24, "n_positions": 16,'
        ' "vocab_size": 65, "activation_function": "gelu_new"}'
    )
    content = {"model": model.state_dict(), "config": dict(SIZES)}
    checkpoint, loaded = load(save(tmp_path / "model.pt", content))
    assert torch.equal(loaded, logits(model))
    assert (checkpoint.config.n_head, checkpoint.config.activation) == (3, "gelu")


def test_from_pretrained_takes_a_path_and_overrides_dropout_alone(tmp_path: Path) -> None:
    model = build()
    ref = str(save_nanogpt(tmp_path / "ckpt.pt", model))
    loaded = GPT.from_pretrained(ref, {"dropout": 0.3})
    assert loaded.training
    assert loaded.config.dropout == 0.3
    assert loaded.blocks[1].attn.dropout == loaded.blocks[1].mlp.dropout.p == 0.3
    assert torch.equal(logits(loaded), logits(model))
    with pytest.raises(AssertionError, match="only dropout can be overridden, not"):
        GPT.from_pretrained(ref, {"block_size": 8})
