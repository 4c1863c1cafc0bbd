"""Finding the position table's moments in an optimizer's state, whoever wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from crop_files import adamw, batch, differences, load, raw, step, trained
from model_files import build, envelope, save_nanogpt

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.model import GPT
from nanogpt_cli.surgery import crop

WPE = "transformer.wpe.weight"
SQUARE = {"vocab_size": 16, "n_embd": 12}
"""The embedding has the position table's shape."""


def save(path: Path, model: GPT, optimizer: Any, **extra: Any) -> Path:
    torch.save(envelope(model, optimizer=optimizer, **extra), path)
    return path


def cropped(path: Path, block_size: int = 5) -> Any:
    crop(open_checkpoint(str(path)), block_size)
    return load(path.with_name(f"{path.stem}-{block_size}.pt"))


def train_with(model: GPT, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    step(model, optimizer, batch(model))
    return optimizer


def cut_states(before: Any, after: Any) -> list[str]:
    return [path for path in differences(before, after) if path.startswith("/optimizer")]


def test_nanogpts_order_of_old_sorted_by_name_with_embeddings_undecayed(tmp_path: Path) -> None:
    model = build(**SQUARE)
    parameters = dict(model.named_parameters())
    linear = sorted(
        name
        for name in parameters
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
    )
    others = sorted(set(parameters) - set(linear))
    groups = [{"params": [parameters[n] for n in names]} for names in (linear, others)]
    optimizer = train_with(model, groups)
    path = save(tmp_path / "ckpt.pt", model, optimizer.state_dict())
    key = len(linear) + others.index(WPE)
    assert cut_states(load(path), cropped(path)) == [
        f"/optimizer/state/{key}/exp_avg",
        f"/optimizer/state/{key}/exp_avg_sq",
    ]


def test_one_group_in_the_models_order(tmp_path: Path) -> None:
    model = build(**SQUARE)
    optimizer = train_with(model, [{"params": list(model.parameters())}])
    path = save(tmp_path / "ckpt.pt", model, optimizer.state_dict())
    assert [name.split("/")[3] for name in cut_states(load(path), cropped(path))] == ["1", "1"]


def test_names_in_the_groups_win(tmp_path: Path) -> None:
    model = build(**SQUARE)
    named = sorted(model.named_parameters(), reverse=True)
    optimizer = train_with(model, [{"params": [parameter for _, parameter in named]}])
    state = optimizer.state_dict()
    state["param_groups"][0]["param_names"] = [f"_orig_mod.{name}" for name, _ in named]
    path = save(tmp_path / "ckpt.pt", model, state)
    key = str([name for name, _ in named].index(WPE))
    assert [name.split("/")[3] for name in cut_states(load(path), cropped(path))] == [key, key]


def test_a_state_keyed_by_name(tmp_path: Path) -> None:
    model, optimizer = trained(**SQUARE)
    state = optimizer.state_dict()
    names = [name for name, p in model.named_parameters() if p.dim() >= 2]
    names += [name for name, p in model.named_parameters() if p.dim() < 2]
    for group in state["param_groups"]:
        group["params"] = [names[key] for key in group["params"]]
    state["state"] = {names[key]: moments for key, moments in state["state"].items()}
    path = save(tmp_path / "ckpt.pt", model, state)
    assert cut_states(load(path), cropped(path)) == [
        f"/optimizer/state/{WPE}/exp_avg",
        f"/optimizer/state/{WPE}/exp_avg_sq",
    ]


def test_further_moments_of_the_tables_shape_are_cut_too(tmp_path: Path) -> None:
    model = build()
    optimizer = torch.optim.AdamW(adamw(model).param_groups, amsgrad=True)
    for group in optimizer.param_groups:
        group["amsgrad"] = True
    step(model, optimizer, batch(model))
    path = save(tmp_path / "ckpt.pt", model, optimizer.state_dict())
    before, after = load(path), cropped(path)
    assert [name.rpartition("/")[2] for name in cut_states(before, after)] == [
        "exp_avg",
        "exp_avg_sq",
        "max_exp_avg_sq",
    ]
    moment = after["optimizer"]["state"][1]["max_exp_avg_sq"]
    assert raw(moment) == raw(before["optimizer"]["state"][1]["max_exp_avg_sq"][:5])


def test_an_optimizer_that_took_no_step_has_nothing_to_cut(tmp_path: Path) -> None:
    model = build()
    path = save(tmp_path / "ckpt.pt", model, adamw(model).state_dict())
    assert cut_states(load(path), cropped(path)) == []


def test_a_frozen_table_has_nothing_to_cut(tmp_path: Path) -> None:
    model = build()
    model.transformer.wpe.weight.requires_grad = False
    optimizer = adamw(model)
    step(model, optimizer, batch(model))
    path = save(tmp_path / "ckpt.pt", model, optimizer.state_dict())
    assert cut_states(load(path), cropped(path)) == []


def test_a_table_in_another_layout_leaves_no_moments_behind(tmp_path: Path) -> None:
    model, optimizer = trained()
    state = optimizer.state_dict()
    moments = state["state"][1]
    moments["exp_avg"] = moments["exp_avg"].t().contiguous().t()
    path = save(tmp_path / "ckpt.pt", model, state)
    after = cropped(path)
    assert raw(after["optimizer"]["state"][1]["exp_avg"]) == raw(moments["exp_avg"][:5])
    column = moments["exp_avg"][5:, 7]
    assert raw(column) in path.read_bytes()
    assert raw(column) not in (tmp_path / "ckpt-5.pt").read_bytes()


def shuffled(state: dict[str, Any]) -> None:
    """Swap two parameters that the order decides."""
    moments = state["state"]
    moments[1], moments[3] = moments[3], moments[1]


def split(state: dict[str, Any]) -> None:
    """Spread the parameters over three groups."""
    first = state["param_groups"][0]
    params = first["params"]
    state["param_groups"].append({**first, "params": params[4:]})
    first["params"] = params[:4]


@pytest.mark.parametrize("change", [shuffled, split])
def test_an_unknown_order_is_an_error_that_says_what_to_type(tmp_path: Path, change: Any) -> None:
    model, optimizer = trained()
    state = optimizer.state_dict()
    change(state)
    path = save(tmp_path / "ckpt.pt", model, state)
    with pytest.raises(CheckpointError) as caught:
        crop(open_checkpoint(str(path)), 5)
    assert caught.value.message.startswith(
        f"cannot tell which state in 'optimizer' belongs to '{WPE}'"
    )
    assert caught.value.hint == "--weights-only leaves the optimizer out"
    assert [each.name for each in tmp_path.iterdir()] == ["ckpt.pt"]
    report = crop(open_checkpoint(str(path)), 5, weights_only=True)
    assert report.dropped == ("optimizer",)


def test_several_optimizers_in_a_list(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = tmp_path / "ckpt.pt"
    states = [optimizer.state_dict(), adamw(model).state_dict()]
    torch.save(envelope(model, optimizers=states), path)
    after = cropped(path)
    assert after["optimizers"][0]["state"][1]["exp_avg"].shape == (5, 24)
    assert after["optimizers"][1]["state"] == {}
    report = crop(open_checkpoint(str(path)), 6, weights_only=True)
    assert report.dropped == ("optimizers",)


def test_an_optimizer_under_another_name(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = save_nanogpt(tmp_path / "ckpt.pt", model, optim_state=optimizer.state_dict())
    assert cropped(path)["optim_state"]["state"][1]["exp_avg"].shape == (5, 24)
