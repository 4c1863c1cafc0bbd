"""Every named check: what makes it ok, a warning or a fault."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from model_files import build, envelope, save_meta, save_nanogpt
from torch import Tensor
from training_files import build_trained, save_trained

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.checkpoints.fitting import MisfitError
from nanogpt_cli.inspection.checks import (
    Check,
    CheckReport,
    check_checkpoint,
    check_misfit,
    check_refused,
)

State = dict[str, Tensor]
Edit = Callable[[dict[str, Any]], object]


def check(path: Path) -> CheckReport:
    return check_checkpoint(open_checkpoint(str(path)))


def answer(report: CheckReport, name: str) -> Check:
    (found,) = (each for each in report.checks if each.name == name)
    return found


def edited(tmp_path: Path, edit: Edit, **config: Any) -> CheckReport:
    """Check a trained file, edited, with its table beside it."""
    model, saved = build_trained(steps=20, rate=3e-2, **config)
    saved["model"] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    saved["model"]["lm_head.weight"] = saved["model"]["transformer.wte.weight"]
    edit(saved)
    torch.save(saved, tmp_path / "ckpt.pt")
    save_meta(tmp_path)
    return check(tmp_path / "ckpt.pt")


@pytest.mark.parametrize("bias", [True, False])
def test_a_clean_training_checkpoint(tmp_path: Path, bias: bool) -> None:
    report = edited(tmp_path, lambda _: None, bias=bias)
    assert {each.name: each.status for each in report.checks if each.status != "ok"} == {}
    assert (report.status, report.faults, report.warnings) == ("ok", 0, 0)
    assert answer(report, "step").detail == "20 steps, as many as iter_num"
    assert ("biases" in {each.name for each in report.checks}) is bias


def test_a_fresh_model_gets_warnings_only(tmp_path: Path) -> None:
    path = save_trained(tmp_path / "ckpt.pt", steps=0, bias=True)
    report = check(path)
    warned = {each.name for each in report.checks if each.status == "warn"}
    assert warned == {"norms", "biases", "optimizer", "tokenizer"}
    assert (report.status, report.faults, report.warnings) == ("warn", 0, 4)


# --- values


def test_nan_and_inf_with_counts(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        saved["model"]["transformer.h.0.mlp.c_fc.weight"][0, :3] = float("nan")
        saved["model"]["transformer.ln_f.weight"][0] = float("-inf")

    found = answer(edited(tmp_path, edit), "finite")
    assert found.status == "fault"
    assert found.detail == "3 NaN and 1 Inf in 2 of 15 tensors"
    assert found.findings == (
        "transformer.h.0.mlp.c_fc.weight: 3 NaN, 0 Inf of 2,304",
        "transformer.ln_f.weight: 0 NaN, 1 Inf of 24",
    )


@pytest.mark.parametrize(("value", "shown"), [(0.0, "0"), (0.5, "0.5")])
def test_a_matrix_of_one_value(tmp_path: Path, value: float, shown: str) -> None:
    name = "transformer.h.1.attn.c_proj.weight"
    report = edited(tmp_path, lambda saved: saved["model"][name].fill_(value))
    found = answer(report, "matrices")
    assert (found.status, found.findings) == ("fault", (f"{name} is {shown} throughout",))


@pytest.mark.parametrize(("value", "status"), [(0.0, "fault"), (1.0, "warn"), (2.0, "warn")])
def test_norm_weights_of_one_value(tmp_path: Path, value: float, status: str) -> None:
    name = "transformer.ln_f.weight"
    report = edited(tmp_path, lambda saved: saved["model"][name].fill_(value))
    assert answer(report, "norms").status == status


def test_zero_biases_are_only_a_warning(tmp_path: Path) -> None:
    name = "transformer.h.0.mlp.c_fc.bias"
    report = edited(tmp_path, lambda saved: saved["model"][name].zero_(), bias=True)
    assert answer(report, "biases").status == "warn"
    assert report.faults == 0


def test_mixed_types(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        name = "transformer.wpe.weight"
        saved["model"][name] = saved["model"][name].half()

    found = answer(edited(tmp_path, edit), "dtypes")
    assert (found.status, found.findings) == ("warn", ("transformer.wpe.weight is float16",))


# --- tying and masks


def test_an_untied_head_is_a_warning(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        saved["model"]["lm_head.weight"] = saved["model"]["transformer.wte.weight"] - 0.25
        del saved["optimizer"]

    report = edited(tmp_path, edit)
    assert answer(report, "tying").status == "warn"
    assert "by up to 0.25" in answer(report, "tying").detail
    assert report.faults == 0


@pytest.mark.parametrize(("says", "status"), [(True, "fault"), (False, "warn")])
def test_an_untied_head_that_config_json_ties(tmp_path: Path, says: bool, status: str) -> None:
    import json

    state = {name: tensor.clone() for name, tensor in build().state_dict().items()}
    state["lm_head.weight"] += 1
    torch.save(state, tmp_path / "pytorch_model.bin")
    sizes = {"n_layer": 2, "n_head": 3, "n_embd": 24, "n_positions": 16, "vocab_size": 65}
    config = {"model_type": "gpt2", **sizes, "tie_word_embeddings": says}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert answer(check(tmp_path), "tying").status == status


def masks(edit: Callable[[Tensor], Tensor]) -> Edit:
    def add(saved: dict[str, Any]) -> None:
        for layer in range(2):
            mask = torch.ones(1, 1, 16, 16).tril()
            name = f"transformer.h.{layer}.attn.bias"
            saved["model"][name] = edit(mask) if layer == 1 else mask

    return add


def test_masks_that_fit(tmp_path: Path) -> None:
    found = answer(edited(tmp_path, masks(lambda mask: mask)), "masks")
    assert (found.status, found.detail) == ("ok", "2 lower triangles of 16 x 16")


@pytest.mark.parametrize(
    ("edit", "finding"),
    [
        (lambda mask: mask[:, :, :8, :8], "is [1, 1, 8, 8], block_size wants [1, 1, 16, 16]"),
        (lambda mask: mask.mT, "is no lower triangle of ones"),
        (torch.ones_like, "is no lower triangle of ones"),
    ],
)
def test_masks_that_do_not(tmp_path: Path, edit: Callable[[Tensor], Tensor], finding: str) -> None:
    found = answer(edited(tmp_path, masks(edit)), "masks")
    assert found.status == "fault"
    assert found.findings == (f"transformer.h.1.attn.bias {finding}",)


# --- the optimizer


def test_moments_of_a_larger_context_are_stale(tmp_path: Path) -> None:
    """What cropping wpe and the config alone leaves behind: the first step would crash."""

    def edit(saved: dict[str, Any]) -> None:
        saved["model"]["transformer.wpe.weight"] = saved["model"]["transformer.wpe.weight"][:8]
        saved["model_args"]["block_size"] = saved["config"]["block_size"] = 8

    found = answer(edited(tmp_path, edit), "optimizer")
    assert found.status == "fault"
    assert found.findings == (
        "transformer.wpe.weight: exp_avg is [16, 24], the weight is [8, 24]",
        "transformer.wpe.weight: exp_avg_sq is [16, 24], the weight is [8, 24]",
    )


def test_parameters_that_do_not_add_up(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        saved["optimizer"]["param_groups"][1]["params"].pop()

    found = answer(edited(tmp_path, edit), "optimizer")
    assert (found.status, found.detail) == (
        "fault",
        "its groups list 14 parameters, the model has 15",
    )


def test_entries_of_no_parameter(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        saved["optimizer"]["state"][99] = saved["optimizer"]["state"][0]

    found = answer(edited(tmp_path, edit), "optimizer")
    assert (found.status, found.findings) == ("fault", ("no parameter has index 99",))


def test_one_moment_that_is_missing(tmp_path: Path) -> None:
    found = answer(
        edited(tmp_path, lambda saved: saved["optimizer"]["state"][1].pop("exp_avg")), "optimizer"
    )
    assert (found.status, found.findings) == ("warn", ("transformer.wpe.weight has no exp_avg",))


def test_rows_that_never_had_a_gradient_are_no_fault(tmp_path: Path) -> None:
    path = save_trained(tmp_path / "ckpt.pt", positions=10)
    assert answer(check(path), "moments").status == "ok"


def test_moments_that_are_missing(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        del saved["optimizer"]["state"][0]
        del saved["optimizer"]["state"][1]["exp_avg_sq"]

    found = answer(edited(tmp_path, edit), "optimizer")
    assert found.status == "warn"
    assert found.findings == (
        "transformer.wte.weight has no exp_avg and no exp_avg_sq",
        "transformer.wpe.weight has no exp_avg_sq",
    )


@pytest.mark.parametrize(
    ("iter_num", "dtype", "status"),
    [
        (20, "float32", "ok"),
        (25, "float32", "fault"),
        (15, "float32", "fault"),
        (25, "float16", "ok"),
        (15, "float16", "fault"),
    ],
)
def test_steps_and_iter_num(tmp_path: Path, iter_num: int, dtype: str, status: str) -> None:
    def edit(saved: dict[str, Any]) -> None:
        saved["iter_num"] = iter_num
        saved["config"]["dtype"] = dtype

    assert answer(edited(tmp_path, edit), "step").status == status


def test_weights_at_different_steps(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        saved["optimizer"]["state"][1]["step"] = torch.tensor(4.0)

    found = answer(edited(tmp_path, edit), "step")
    assert (found.status, found.findings) == ("fault", ("transformer.wpe.weight is at 4",))


@pytest.mark.parametrize(
    ("value", "detail"),
    [(float("nan"), "1 NaN and 0 Inf in 1 of 30 tensors"), (-1.0, "squares below zero")],
)
def test_moments_that_cannot_be(tmp_path: Path, value: float, detail: str) -> None:
    def edit(saved: dict[str, Any]) -> None:
        saved["optimizer"]["state"][3]["exp_avg_sq"][0] = value

    def edit_one(saved: dict[str, Any]) -> None:
        saved["optimizer"]["state"][3]["exp_avg_sq"].view(-1)[0] = value

    found = answer(edited(tmp_path, edit_one), "moments")
    assert (found.status, found.detail) == ("fault", detail)
    assert answer(edited(tmp_path, edit), "moments").status == "fault"


# --- settings


@pytest.mark.parametrize(
    ("init_from", "status"),
    [("scratch", "fault"), ("gpt2-xl", "ok"), ("resume", "ok"), (3, "warn")],
)
def test_config_and_model_args(tmp_path: Path, init_from: object, status: str) -> None:
    def edit(saved: dict[str, Any]) -> None:
        saved["config"] |= {"n_layer": 12, "init_from": init_from}

    found = answer(edited(tmp_path, edit), "config")
    assert found.status == status
    assert found.findings == ("n_layer is 12 in config, 2 in model_args",)


def test_a_config_that_has_biases_otherwise(tmp_path: Path) -> None:
    found = answer(edited(tmp_path, lambda saved: saved["config"].update(bias=True)), "config")
    assert found.findings == ("bias is True in config, False in model_args",)


def test_model_args_that_deny_the_biases(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        saved["model_args"]["bias"] = False

    found = answer(edited(tmp_path, edit, bias=True), "config")
    assert (found.status, found.detail) == (
        "fault",
        "model_args says bias False, and the model has biases",
    )


@pytest.mark.parametrize(("loss", "status"), [(2.5, "ok"), (4.1, "warn"), (9.0, "warn")])
def test_the_loss(tmp_path: Path, loss: float, status: str) -> None:
    report = edited(tmp_path, lambda saved: saved.update(best_val_loss=loss))
    assert answer(report, "loss").status == status


def test_heads_that_nothing_says(tmp_path: Path) -> None:
    torch.save(build().state_dict(), tmp_path / "weights.pt")
    assert answer(check(tmp_path / "weights.pt"), "n_head").status == "warn"


def test_a_table_of_another_model(tmp_path: Path) -> None:
    save_nanogpt(tmp_path / "ckpt.pt", build(vocab_size=300))
    save_meta(tmp_path)
    assert answer(check(tmp_path / "ckpt.pt"), "tokenizer").status == "fault"


def test_a_hostile_table(tmp_path: Path) -> None:
    save_nanogpt(tmp_path / "ckpt.pt", build())
    (tmp_path / "meta.pkl").write_bytes(b"cos\nsystem\n(X\x04\0\0\0truetR.")
    found = answer(check(tmp_path / "ckpt.pt"), "tokenizer")
    assert (found.status, found.findings) == ("fault", ("os.system at byte 0",))


def test_no_table_is_a_warning(tmp_path: Path) -> None:
    assert answer(check(save_nanogpt(tmp_path / "ckpt.pt", build())), "tokenizer").status == "warn"


def test_slices_with_all_that_they_were_cut_from(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        saved["model"]["transformer.wpe.weight"] = torch.randn(640, 24)[:16]

    found = answer(edited(tmp_path, edit), "storage")
    assert found.status == "warn"
    assert found.detail.startswith(f"{624 * 24 * 4:,} of ")


def test_foreign_classes_are_named(tmp_path: Path) -> None:
    path = save_nanogpt(tmp_path / "ckpt.pt", build(), extra=_Foreign())
    found = answer(check(path), "pickle")
    assert found.status == "warn"
    assert found.findings[0].startswith(f"{__name__}._Foreign at byte ")


class _Foreign:
    """What a trainer might have left in a file."""

    def __init__(self) -> None:
        self.width = 24


# --- files that are not opened


def misfit(tmp_path: Path, edit: Edit) -> CheckReport:
    saved = envelope(build())
    saved["model"] = {name: tensor.clone() for name, tensor in saved["model"].items()}
    edit(saved)
    path = tmp_path / "ckpt.pt"
    torch.save(saved, path)
    with pytest.raises(MisfitError) as caught:
        open_checkpoint(str(path))
    return check_misfit(path, caught.value)


def test_missing_and_unexpected_keys(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        del saved["model"]["transformer.h.1.ln_1.weight"]
        saved["model"]["transformer.h.0.gate"] = torch.randn(3)
        saved["model"]["transformer.h.0.mlp.c_fc.weight"][0] = float("nan")

    report = misfit(tmp_path, edit)
    keys = answer(report, "keys")
    assert (keys.status, keys.detail) == ("fault", "1 of 28 missing, 1 unexpected")
    assert keys.findings == (
        "missing transformer.h.1.ln_1.weight",
        "unexpected transformer.h.0.gate",
    )
    assert answer(report, "finite").status == "fault"
    assert (report.status, report.faults) == ("fault", 2)


def test_an_unexpected_key_alone_and_a_mask_that_does_not_fit(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        saved["model"]["transformer.h.0.gate"] = torch.randn(3)
        saved["model"]["transformer.h.0.attn.bias"] = torch.ones(1, 1, 8, 8).tril()

    report = misfit(tmp_path, edit)
    assert answer(report, "keys").findings == ("unexpected transformer.h.0.gate",)
    assert answer(report, "masks").status == "fault"


def test_wrong_shapes(tmp_path: Path) -> None:
    report = misfit(tmp_path, lambda saved: saved["model_args"].update(vocab_size=70))
    found = answer(report, "shapes")
    assert (found.status, found.findings) == (
        "fault",
        ("transformer.wte.weight is [65, 24], the config wants [70, 24]",),
    )


def test_weights_that_are_no_floats(tmp_path: Path) -> None:
    def edit(saved: dict[str, Any]) -> None:
        name = "transformer.h.0.mlp.c_fc.weight"
        saved["model"][name] = saved["model"][name].to(torch.int8)

    found = answer(misfit(tmp_path, edit), "dtypes")
    assert (found.status, found.findings) == (
        "fault",
        ("transformer.h.0.mlp.c_fc.weight is int8",),
    )


def test_a_file_that_holds_no_gpt() -> None:
    report = check_refused(Path("x.pt"), "not a GPT-2 model")
    assert (report.status, report.faults) == ("fault", 1)
    assert pickle.loads(pickle.dumps(report)) == report
