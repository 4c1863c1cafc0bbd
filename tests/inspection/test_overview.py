"""The overview: what a checkpoint is, from names, shapes and settings alone."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from model_files import build, envelope, save_meta, save_nanogpt
from training_files import save_trained

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.inspection.overview import ConfigValue, OverviewReport, survey


def look(path: Path, **options: Any) -> OverviewReport:
    return survey(open_checkpoint(str(path)), **options)


def save_state(path: Path, state: dict[str, torch.Tensor], **extra: Any) -> Path:
    torch.save({**envelope(build()), "model": state, **extra}, path)
    return path


def test_config_and_where_it_came_from(tmp_path: Path) -> None:
    found = look(save_nanogpt(tmp_path / "ckpt.pt", build())).config
    assert found["n_layer"] == ConfigValue(2, "file")
    assert found["n_head"] == ConfigValue(3, "file")
    assert found["bias"] == ConfigValue(True, "shapes")
    assert found["activation"] == ConfigValue("gelu", "assumed")
    assert found["dropout"] == ConfigValue(0.0, "file")
    assert list(found) == [
        *("n_layer", "n_head", "n_embd", "block_size", "vocab_size"),
        *("bias", "dropout", "activation"),
    ]


def test_heads_that_nothing_says_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(build().state_dict(), path)
    found = look(path)
    assert found.config["n_head"] == ConfigValue(None, "unknown")
    assert found.config["n_embd"] == ConfigValue(24, "shapes")
    given = survey(open_checkpoint(str(path), n_head=3))
    assert given.config["n_head"] == ConfigValue(3, "flag")


def test_counts_are_nanogpts(tmp_path: Path) -> None:
    model = build()
    found = look(save_nanogpt(tmp_path / "ckpt.pt", model)).parameters
    assert found.nanogpt == model.get_num_params()
    assert found.total == sum(each.numel() for each in model.parameters())


def test_tied_by_storage(tmp_path: Path) -> None:
    tying = look(save_nanogpt(tmp_path / "ckpt.pt", build())).tying
    assert (tying.kind, tying.max_abs_difference) == ("storage", 0.0)


def test_tied_by_value(tmp_path: Path) -> None:
    state = {name: tensor.clone() for name, tensor in build().state_dict().items()}
    tying = look(save_state(tmp_path / "ckpt.pt", state)).tying
    assert (tying.kind, tying.max_abs_difference) == ("value", 0.0)


def test_no_head_stored(tmp_path: Path) -> None:
    state = dict(build().state_dict())
    del state["lm_head.weight"]
    tying = look(save_state(tmp_path / "ckpt.pt", state)).tying
    assert (tying.kind, tying.max_abs_difference) == ("absent", None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_untied_with_the_largest_difference(tmp_path: Path, dtype: torch.dtype) -> None:
    state = {name: tensor.clone().to(dtype) for name, tensor in build().state_dict().items()}
    state["lm_head.weight"][3, 4] -= 0.5
    expected = float((state["lm_head.weight"] - state["transformer.wte.weight"]).abs().max())
    tying = look(save_state(tmp_path / "ckpt.pt", state)).tying
    assert tying.kind == "untied"
    assert tying.max_abs_difference == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(
    "odd",
    [lambda head: head.half(), lambda head: head.t().contiguous().t()],
    ids=["half", "turned"],
)
def test_a_head_that_takes_the_weights_reader_is_not_compared(tmp_path: Path, odd: Any) -> None:
    state = {name: tensor.clone() for name, tensor in build().state_dict().items()}
    state["lm_head.weight"] = odd(state["lm_head.weight"] + 1)
    tying = look(save_state(tmp_path / "ckpt.pt", state)).tying
    assert (tying.kind, tying.max_abs_difference) == ("untied", None)


@pytest.mark.parametrize(
    ("prefix", "removed"),
    [
        ("_orig_mod.", ("_orig_mod.",)),
        ("module.", ("module.",)),
        ("module._orig_mod.", ("_orig_mod.", "module.")),
        ("", ()),
    ],
)
def test_prefixes_are_named(tmp_path: Path, prefix: str, removed: tuple[str, ...]) -> None:
    state = {prefix + name: tensor for name, tensor in build().state_dict().items()}
    found = look(save_state(tmp_path / "ckpt.pt", state))
    assert found.prefixes == removed
    assert found.stored.sections[0].tensors == len(state) - 1


def test_types_of_the_weights(tmp_path: Path) -> None:
    state = {name: tensor.clone() for name, tensor in build(bias=False).state_dict().items()}
    for name in state:
        if "ln_" not in name:
            state[name] = state[name].bfloat16()
    del state["lm_head.weight"]
    found = look(save_state(tmp_path / "ckpt.pt", state)).dtypes
    assert [(row.dtype, row.tensors) for row in found] == [("bfloat16", 10), ("float32", 5)]
    assert sum(row.parameters for row in found) == sum(each.numel() for each in state.values())


def test_a_table_that_fits(tmp_path: Path) -> None:
    save_meta(tmp_path)
    found = look(save_nanogpt(tmp_path / "ckpt.pt", build())).tokenizer
    assert (found.status, found.name, found.n_vocab, found.padding_rows) == ("fits", "char", 65, 0)
    assert found.path == str(tmp_path / "meta.pkl")


def test_padding_rows(tmp_path: Path) -> None:
    save_meta(tmp_path)
    found = look(save_nanogpt(tmp_path / "ckpt.pt", build(vocab_size=70))).tokenizer
    assert (found.status, found.padding_rows) == ("fits", 5)


def test_a_table_of_another_model_is_told_and_no_failure(tmp_path: Path) -> None:
    save_meta(tmp_path)
    found = look(save_nanogpt(tmp_path / "ckpt.pt", build(vocab_size=300))).tokenizer
    assert (found.status, found.n_vocab) == ("misfit", 65)
    assert "65 ids and the model has 300" in found.message


def test_no_table_is_no_failure(tmp_path: Path) -> None:
    found = look(save_nanogpt(tmp_path / "ckpt.pt", build())).tokenizer
    assert found.status == "missing"
    assert str(tmp_path / "meta.pkl") in found.message


def test_a_damaged_table_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "meta.pkl").write_text("not a pickle")
    found = look(save_nanogpt(tmp_path / "ckpt.pt", build())).tokenizer
    assert (found.status, found.refused) == ("damaged", ())


def test_a_hostile_table_is_refused_with_its_globals(tmp_path: Path) -> None:
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(_Trap(tmp_path / "sprung")))
    found = look(save_nanogpt(tmp_path / "ckpt.pt", build())).tokenizer
    assert found.status == "refused"
    assert [(use.name, use.verdict) for use in found.refused] == [("posix.system", "refused")]
    assert not (tmp_path / "sprung").exists()


class _Trap:
    """What touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        import os

        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize(
    ("zipped", "container", "age"),
    [
        (True, "torch zip, version 3", "as torch 2.7 and newer write it"),
        (False, "torch legacy file", "as torch before 1.6 writes it"),
    ],
)
def test_container_and_its_age(tmp_path: Path, zipped: bool, container: str, age: str) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(envelope(build()), path, _use_new_zipfile_serialization=zipped)
    found = look(path)
    assert (found.container, found.age) == (container, age)


def test_globals_with_their_verdicts(tmp_path: Path) -> None:
    found = look(save_trained(tmp_path / "ckpt.pt")).globals
    verdicts = {use.name: use.verdict for use in found}
    assert verdicts["torch._utils._rebuild_tensor_v2"] == "known"
    assert all(use.offset > 0 for use in found)


@pytest.mark.real
def test_a_checkpoint_of_stock_nanogpt(zoo: Path) -> None:
    found = look(zoo / "nanogpt-char")
    assert (found.parameters.total, found.parameters.nanogpt) == (205_248, 201_152)
    assert found.training.tokens_seen == 900 * 512
    assert found.training.loss.kind == "best"
    schedule = found.training.schedule
    assert schedule is not None
    assert schedule.learning_rate == schedule.optimizer_learning_rate
    assert found.tokenizer.status == "fits"


@pytest.mark.real
def test_minimal_state_dicts(zoo: Path, tmp_path: Path) -> None:
    found = look(zoo / "minGPT-adder" / "model.pt")
    assert found.parameters.total == 86_160
    assert found.stored.sections[2].stored_bytes == 3 * 6 * 6 * 4
    assert found.tying.kind == "untied"
    assert found.tying.max_abs_difference == pytest.approx(0.437387, abs=1e-6)
    copied = shutil.copy(zoo / "makemore-names" / "model.pt", tmp_path)
    assert look(Path(copied)).config["n_head"].value is None
