"""The output `nanogpt`: what stock nanoGPT does with a ckpt.pt, done to it."""

from __future__ import annotations

import datetime
import math
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from conversion_files import build_gpt2, load_pt, same_tensors, save_gpt2, to
from model_files import ALPHABET, build, envelope, save_meta, save_nanogpt

from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.model import GPT, GPTConfig

MODEL_ARGS = {"n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size", "dropout"}
TRAINING = {"weight_decay": 0.2, "learning_rate": 3e-4, "beta1": 0.8, "beta2": 0.9}


def load_stock(file: dict[str, Any]) -> GPT:
    """Build the model as sample.py and train.py do."""
    assert set(file["model_args"]) == MODEL_ARGS
    model = GPT(GPTConfig(**file["model_args"]))
    model.load_state_dict(file["model"])
    return model


def train(model: GPT, optimizer: torch.optim.Optimizer, steps: int = 1) -> None:
    for step in range(steps):
        idx = (torch.arange(8) * (step + 3) % model.config.vocab_size)[None]
        _, loss = model(idx, idx.roll(-1))
        assert loss is not None
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def trained(
    path: Path, *, amsgrad: bool = False, more: dict[str, Any] | None = None, **config: Any
) -> tuple[Path, GPT, torch.optim.Optimizer]:
    """Write a checkpoint with the optimizer of a model that has taken three steps."""
    model = build(**config)
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")
    for group in optimizer.param_groups:
        group["amsgrad"] = amsgrad
    train(model, optimizer, 3)
    state = optimizer.state_dict()
    return save_nanogpt(path, model, optimizer=state, **(more or {})), model, optimizer


@pytest.mark.parametrize("bias", [True, False])
def test_stock_code_loads_an_imported_gpt2(tmp_path: Path, bias: bool) -> None:
    model = build_gpt2()
    if not bias:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith(".bias"):
                    parameter.zero_()
    source = save_gpt2(tmp_path / "hf", model)
    report = to(source, tmp_path / "gpt2.pt", drop_zero_biases=not bias)
    file = load_pt(tmp_path / "gpt2.pt")
    assert list(file) == ["model", "model_args", "iter_num", "best_val_loss", "nanogpt_cli"]
    assert (file["iter_num"], file["best_val_loss"]) == (0, 1e9)
    assert file["nanogpt_cli"] == {"activation": "gelu_tanh"}
    assert file["model_args"]["bias"] is bias
    assert file["model_args"]["dropout"] == 0.0
    loaded = load_stock(file)
    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    shared = [file["model"][name] for name in ("lm_head.weight", "transformer.wte.weight")]
    assert shared[0].untyped_storage().data_ptr() == shared[1].untyped_storage().data_ptr()
    assert any("resume wants one" in note for note in report.notes)


def test_a_training_checkpoint_keeps_everything(tmp_path: Path) -> None:
    source, _, _ = trained(tmp_path / "ckpt.pt")
    report = to(source, tmp_path / "out.pt")
    before, after = load_pt(source), load_pt(tmp_path / "out.pt")
    assert same_tensors(after["model"], before["model"])
    assert after["optimizer"]["param_groups"] == before["optimizer"]["param_groups"]
    for number, entry in before["optimizer"]["state"].items():
        assert same_tensors(after["optimizer"]["state"][number], entry)
    for name in ("model_args", "iter_num", "best_val_loss", "config"):
        assert after[name] == before[name]
    assert report.optimizer == "kept"
    assert report.verification is not None
    assert report.verification.other_tensors == 3 * 28


def test_training_goes_on_from_the_output_as_from_the_source(tmp_path: Path) -> None:
    source, model, optimizer = trained(tmp_path / "ckpt.pt")
    to(source, tmp_path / "out.pt")
    file = load_pt(tmp_path / "out.pt")
    again = load_stock(file)
    resumed = again.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")
    resumed.load_state_dict(file["optimizer"])
    train(model, optimizer)
    train(again, resumed)
    assert same_tensors(again.state_dict(), model.state_dict())


def test_weights_only_drops_what_is_no_weight(tmp_path: Path) -> None:
    source, _, _ = trained(tmp_path / "ckpt.pt", more={"scaler": 5})
    report = to(source, tmp_path / "out.pt", weights_only=True)
    file = load_pt(tmp_path / "out.pt")
    wanted = ["model", "model_args", "iter_num", "best_val_loss", "config", "nanogpt_cli"]
    assert list(file) == wanted
    assert file["iter_num"] == 250
    assert report.left_out == ("the optimizer", "the entry 'scaler'")
    weights = sum(parameter.numel() for parameter in build().parameters()) * 4
    assert (tmp_path / "out.pt").stat().st_size < weights + 10_000 < source.stat().st_size


def test_a_fresh_optimizer_is_one_that_train_py_resumes_with(tmp_path: Path) -> None:
    source = save_gpt2(tmp_path / "hf", build_gpt2())
    report = to(source, tmp_path / "gpt2.pt", fresh_optimizer=True)
    file = load_pt(tmp_path / "gpt2.pt")
    model = load_stock(file)
    optimizer = model.configure_optimizers(0.3, 1.0, (0.5, 0.5), "cpu")
    own = optimizer.state_dict()
    assert file["optimizer"]["state"] == {}
    for group, expected in zip(file["optimizer"]["param_groups"], own["param_groups"], strict=True):
        assert group["params"] == expected["params"]
        assert group.keys() == expected.keys()
        own_settings = {**expected, "lr": 6e-4, "betas": (0.9, 0.95), "foreach": None}
        assert group == {**own_settings, "weight_decay": group["weight_decay"], "fused": None}
    assert [group["weight_decay"] for group in file["optimizer"]["param_groups"]] == [0.1, 0.0]
    optimizer.load_state_dict(file["optimizer"])
    before = model.transformer.wpe.weight.clone()
    train(model, optimizer)
    assert not torch.equal(model.transformer.wpe.weight, before)
    assert report.optimizer == "fresh"
    assert not any("resume wants one" in note for note in report.notes)


def test_a_fresh_optimizer_has_the_settings_of_the_file(tmp_path: Path) -> None:
    source, _, _ = trained(tmp_path / "ckpt.pt", more={"config": TRAINING})
    report = to(source, tmp_path / "out.pt", fresh_optimizer=True)
    assert report.left_out == ("the source's optimizer, for a fresh one",)
    groups = load_pt(tmp_path / "out.pt")["optimizer"]["param_groups"]
    assert [(group["lr"], group["betas"]) for group in groups] == [(3e-4, (0.8, 0.9))] * 2
    assert [group["weight_decay"] for group in groups] == [0.2, 0.0]


def test_trimming_cuts_the_moments_of_the_embedding_too(tmp_path: Path) -> None:
    save_meta(tmp_path)
    config = {"vocab_size": 72, "bias": True, "batch_size": 4}
    source, _, _ = trained(
        tmp_path / "ckpt.pt", vocab_size=72, amsgrad=True, more={"config": config}
    )
    report = to(source, tmp_path / "out.pt", trim_vocab=True)
    before, after = load_pt(source), load_pt(tmp_path / "out.pt")
    V = len(ALPHABET)
    assert after["model_args"]["vocab_size"] == V == report.model.vocab_size
    assert after["config"] == {"vocab_size": V, "bias": True, "batch_size": 4}
    assert torch.equal(
        after["model"]["transformer.wte.weight"], before["model"]["transformer.wte.weight"][:V]
    )
    state, original = after["optimizer"]["state"], before["optimizer"]["state"]
    for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
        assert torch.equal(state[0][name], original[0][name][:V])
        assert torch.equal(state[1][name], original[1][name])
    model = load_stock(after)
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")
    optimizer.load_state_dict(after["optimizer"])
    train(model, optimizer)


@pytest.mark.parametrize(("dtype", "n_embd"), [("float32", 12), ("float16", 24)])
def test_trimming_leaves_an_optimizer_out_that_is_another_models(
    tmp_path: Path, dtype: str, n_embd: int
) -> None:
    save_meta(tmp_path)
    held = trained(tmp_path / "other.pt", vocab_size=72, n_embd=n_embd)[2].state_dict()
    held["state"][99] = held["state"][0]
    source = save_nanogpt(tmp_path / "ckpt.pt", build(vocab_size=72), optimizer=held)
    report = to(source, tmp_path / "out.pt", trim_vocab=True, dtype=dtype)
    assert "the optimizer" in report.left_out
    file = load_pt(tmp_path / "out.pt")
    assert "optimizer" not in file
    assert load_stock(file).transformer.wte.weight.shape == (65, 24)


@pytest.mark.parametrize("family", ["nanogpt", "other"])
def test_an_optimizer_in_another_order_is_kept_in_nanogpts_own_files_alone(
    tmp_path: Path, family: str
) -> None:
    """What wrote the file resumes from it; what another program's numbers mean is not known."""
    held = trained(tmp_path / "other.pt", n_embd=12)[2].state_dict()
    file = envelope(build(), optimizer=held)
    if family == "other":
        file["state_dict"], file["config"] = file.pop("model"), file.pop("model_args")
    torch.save(file, tmp_path / "ckpt.pt")
    to(tmp_path / "ckpt.pt", tmp_path / "out.pt")
    found = load_pt(tmp_path / "out.pt")
    assert ("optimizer" in found) is (family == "nanogpt")
    assert "state_dict" not in found


def test_dropping_biases_drops_the_optimizer_that_numbers_them(tmp_path: Path) -> None:
    model = build()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")
    state = optimizer.state_dict()
    source = save_nanogpt(tmp_path / "ckpt.pt", model, optimizer=state, config={"bias": True})
    report = to(source, tmp_path / "out.pt", drop_zero_biases=True)
    file = load_pt(tmp_path / "out.pt")
    assert "optimizer" not in file
    assert file["config"] == {"bias": False}
    assert file["model_args"]["bias"] is False
    load_stock(file)
    assert "the source's optimizer does not fit the model in the output: left out" in report.notes


def test_biases_that_are_not_zero_are_not_dropped(tmp_path: Path) -> None:
    source = save_nanogpt(tmp_path / "ckpt.pt", build())
    with pytest.raises(CheckpointError) as caught:
        to(source, tmp_path / "out.pt", drop_zero_biases=True)
    assert caught.value.message.endswith("'transformer.h.0.ln_1.bias' is not zero")
    assert not (tmp_path / "out.pt").exists()


def test_objects_of_classes_become_plain_dicts(tmp_path: Path) -> None:
    """What torch's weights-only reader refuses in the source, it reads in the output."""
    settings = types.SimpleNamespace(dataset="letters", vocab_size=65, out=Path("out"))
    source = save_nanogpt(tmp_path / "ckpt.pt", build(), config=settings, scaler={"scale": 2.0})
    to(source, tmp_path / "out.pt")
    file = load_pt(tmp_path / "out.pt")
    assert file["config"] == {"dataset": "letters", "vocab_size": 65, "out": "out"}
    assert file["scaler"] == {"scale": 2.0}


def test_values_of_every_kind_become_plain(tmp_path: Path) -> None:
    kinds = {
        "set": {"b", "a", "c"},
        "class": types.SimpleNamespace,
        "pair": (1, (2.5, None)),
        "bytes": bytearray(b"ab"),
        "nan": float("nan"),
        (1, 2): "by a pair",
    }
    source = save_nanogpt(tmp_path / "ckpt.pt", build(), kinds=kinds)
    to(source, tmp_path / "out.pt")
    found = load_pt(tmp_path / "out.pt")["kinds"]
    assert math.isnan(found.pop("nan"))
    assert found == {
        "set": ["a", "b", "c"],
        "class": "types.SimpleNamespace",
        "pair": (1, (2.5, None)),
        "bytes": b"ab",
        "(1, 2)": "by a pair",
    }
    assert type(found["bytes"]) is bytes


def test_a_matrix_that_is_stored_turned_is_written_as_it_reads(tmp_path: Path) -> None:
    model = build()
    file = envelope(model)
    turned = {
        name: tensor.t().contiguous().t() if name.endswith("c_proj.weight") else tensor
        for name, tensor in file["model"].items()
    }
    torch.save({**file, "model": turned}, tmp_path / "ckpt.pt")
    to(tmp_path / "ckpt.pt", tmp_path / "out.pt")
    assert same_tensors(load_pt(tmp_path / "out.pt")["model"], dict(model.state_dict()))
    to(tmp_path / "ckpt.pt", tmp_path / "out.safetensors")
    found = safetensors.torch.load_file(tmp_path / "out.safetensors")
    assert same_tensors({**found, "lm_head.weight": model.lm_head.weight}, model.state_dict())


def test_what_no_plain_type_stands_for_is_left_out_by_name(tmp_path: Path) -> None:
    config = {"dataset": "letters", "started": datetime.date(2024, 1, 2)}
    source = save_nanogpt(
        tmp_path / "ckpt.pt", build(), config=config, noise=np.arange(3), seed=None
    )
    report = to(source, tmp_path / "out.pt")
    file = load_pt(tmp_path / "out.pt")
    assert file["config"] == {"dataset": "letters"}
    assert "noise" not in file
    assert file["seed"] is None
    assert report.left_out == (
        "the entry 'started', which holds a datetime.date",
        "the entry 'noise', which holds a numpy.ndarray",
    )


def test_an_untied_model_is_trimmed_in_both_matrices(tmp_path: Path) -> None:
    save_meta(tmp_path)
    source, model, _ = trained(tmp_path / "ckpt.pt", vocab_size=70, tied_head=False)
    to(source, tmp_path / "out.pt", trim_vocab=True)
    file = load_pt(tmp_path / "out.pt")
    assert torch.equal(file["model"]["lm_head.weight"], model.lm_head.weight[:65])
    shapes = {tuple(entry["exp_avg"].shape) for entry in file["optimizer"]["state"].values()}
    assert (65, 24) in shapes
    assert (70, 24) not in shapes


def test_foreign_arguments_do_not_reach_stock_code(tmp_path: Path) -> None:
    file = envelope(build())
    file["model_args"] |= {"flash": True}
    torch.save(file, tmp_path / "ckpt.pt")
    report = to(tmp_path / "ckpt.pt", tmp_path / "out.pt")
    load_stock(load_pt(tmp_path / "out.pt"))
    assert report.left_out == ("'flash' of model_args, which nanoGPT lacks",)


@pytest.mark.parametrize("suffix", ["out.pt", "hf"])
def test_prefixes_and_masks_are_cleaned(tmp_path: Path, suffix: str) -> None:
    model = build(attention="manual")
    file = envelope(model)
    file["model"] = {f"_orig_mod.{name}": tensor for name, tensor in file["model"].items()}
    torch.save(file, tmp_path / "ckpt.pt")
    report = to(tmp_path / "ckpt.pt", tmp_path / suffix)
    assert report.left_out == (
        "2 causal masks, no parameters",
        "the prefix '_orig_mod.' of tensor names",
    )
    if suffix == "out.pt":
        load_stock(load_pt(tmp_path / suffix))


def test_an_untied_head_keeps_both_matrices_and_says_what_stock_nanogpt_would_do(
    tmp_path: Path,
) -> None:
    model = build(tied_head=False)
    source = save_nanogpt(tmp_path / "ckpt.pt", model)
    report = to(source, tmp_path / "out.pt")
    assert same_tensors(load_pt(tmp_path / "out.pt")["model"], dict(model.state_dict()))
    assert any("stock nanoGPT would tie them" in note for note in report.notes)
    to(tmp_path / "out.pt", tmp_path / "hf")
    to(tmp_path / "hf", tmp_path / "back.pt")
    assert same_tensors(load_pt(tmp_path / "back.pt")["model"], dict(model.state_dict()))


def test_the_activation_can_be_overruled(tmp_path: Path) -> None:
    source = save_nanogpt(tmp_path / "ckpt.pt", build(activation="gelu_tanh"))
    report = to(source, tmp_path / "out.pt", activation="gelu_tanh")
    assert load_pt(tmp_path / "out.pt")["nanogpt_cli"] == {"activation": "gelu_tanh"}
    assert "--activation gelu_tanh: the source has gelu" in report.notes
