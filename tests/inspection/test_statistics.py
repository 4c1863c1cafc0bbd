"""The figures of a checkpoint, one tensor after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from model_files import build, envelope, save_nanogpt
from training_files import build_trained, save_trained

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.checkpoints.fingerprints import fingerprint
from nanogpt_cli.inspection.statistics import StatsReport, gather_statistics


def stats(path: Path, **options: Any) -> StatsReport:
    return gather_statistics(open_checkpoint(str(path)), **options)


def test_every_weight_once(tmp_path: Path) -> None:
    model = build()
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    found = stats(path)
    parameters = dict(model.named_parameters())
    assert {each.name for each in found.tensors} == set(parameters)
    for each in found.tensors:
        values = parameters[each.name].detach().double()
        assert each.measures.mean == pytest.approx(float(values.mean()), abs=1e-9)
        assert each.measures.std == pytest.approx(float(values.std(correction=0)), rel=1e-9)
    assert found.fingerprint == fingerprint(open_checkpoint(str(path)).architecture)


def test_an_untrained_model_shows(tmp_path: Path) -> None:
    found = stats(save_trained(tmp_path / "ckpt.pt", steps=0))
    assert {each.state for each in found.tensors} == {"as initialised"}
    assert [(rows.count, rows.rows) for rows in found.untrained] == [(65, 65), (16, 16)]
    ratios = [each.std_over_init for each in found.tensors if each.std_over_init is not None]
    assert len(ratios) == 2 + 2 * 4
    assert ratios == pytest.approx([1] * 10, abs=0.05)


def test_a_trained_model_does_not(tmp_path: Path) -> None:
    found = stats(save_trained(tmp_path / "ckpt.pt", steps=30, rate=3e-2))
    assert [each.name for each in found.tensors if each.state] == []
    assert [rows.count for rows in found.untrained] == [0, 0]


def test_dead_and_frozen_parts_show(tmp_path: Path) -> None:
    model, saved = build_trained(steps=30, rate=3e-2)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(5)
    frozen, dead = "transformer.h.1.mlp.c_proj.weight", "transformer.h.0.attn.c_attn.weight"
    torch.nn.init.normal_(state[frozen], std=0.02 / 2)
    state[dead].zero_()
    torch.save({**saved, "model": state}, tmp_path / "ckpt.pt")
    states = {each.name: each.state for each in stats(tmp_path / "ckpt.pt").tensors}
    assert {name: state for name, state in states.items() if state} == {
        frozen: "as initialised",
        dead: "all zero",
    }


def test_positions_beyond_the_trained_context(tmp_path: Path) -> None:
    _, saved = build_trained(positions=10, block_size=16)
    saved["optimizer"]["state"][1]["exp_avg"][3] = 0  # which a gradient long ago leaves behind
    torch.save(saved, tmp_path / "ckpt.pt")
    wte, wpe = stats(tmp_path / "ckpt.pt").untrained
    assert wte.count == 0
    assert (wpe.untrained, wpe.evidence) == (((10, 15),), "Adam")


def test_the_same_without_an_optimizer(tmp_path: Path) -> None:
    _, saved = build_trained(steps=30, positions=20, block_size=64, n_embd=48, rate=3e-2)
    del saved["optimizer"]
    torch.save(saved, tmp_path / "ckpt.pt")
    _, wpe = stats(tmp_path / "ckpt.pt").untrained
    assert wpe.evidence == "noise"
    assert wpe.count == pytest.approx(44, abs=2)
    assert wpe.untrained[0][1] == 63


def test_moments_of_another_shape_prove_nothing(tmp_path: Path) -> None:
    model, saved = build_trained(positions=10, block_size=16)
    model.crop_block_size(12)
    saved["model_args"]["block_size"] = 12
    torch.save({**saved, "model": model.state_dict()}, tmp_path / "ckpt.pt")
    assert stats(tmp_path / "ckpt.pt").untrained[1].evidence != "Adam"


@pytest.mark.parametrize("tied", [True, False])
def test_a_drift_that_all_rows_share_is_looked_for_in_a_tied_embedding_alone(
    tmp_path: Path, tied: bool
) -> None:
    model = build(vocab_size=512, n_embd=64, n_head=4, n_layer=1, block_size=512, tied_head=tied)
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(512, 64, generator=draw) * 0.02
    rows[:465] += torch.randn(465, 64, generator=draw) * 0.1
    rows[465:] += torch.randn(1, 64, generator=draw) * 0.1
    with torch.no_grad():
        model.transformer.wte.weight.copy_(rows)
        model.transformer.wpe.weight.copy_(rows)
    wte, wpe = stats(save_nanogpt(tmp_path / "ckpt.pt", model)).untrained
    assert (wte.count > 40, wpe.count) == (tied, 0)


def test_nan_and_inf_are_counted(tmp_path: Path) -> None:
    model = build()
    with torch.no_grad():
        model.transformer.wpe.weight[0, :3] = float("nan")
        model.transformer.ln_f.weight[1] = float("inf")
    found = stats(save_nanogpt(tmp_path / "ckpt.pt", model))
    assert (found.nan, found.inf) == (3, 1)
    counts = {each.name: (each.measures.nan, each.measures.inf) for each in found.tensors}
    assert counts["transformer.wpe.weight"] == (3, 0)
    assert counts["transformer.ln_f.weight"] == (0, 1)


def test_filter_sort_and_optimizer(tmp_path: Path) -> None:
    path = save_trained(tmp_path / "ckpt.pt")
    assert [each.name for each in stats(path, pattern="*.ln_?.weight", sort="name").tensors] == [
        "transformer.h.0.ln_1.weight",
        "transformer.h.0.ln_2.weight",
        "transformer.h.1.ln_1.weight",
        "transformer.h.1.ln_2.weight",
        "transformer.ln_f.weight",
    ]
    found = stats(path, optimizer=True, pattern="transformer.wpe.weight").tensors
    assert [each.section for each in found] == ["weights", "other", "adam_m", "adam_v"]
    assert found[1].measures.mean == 3


def test_masks_are_measured_when_they_are_named(tmp_path: Path) -> None:
    model = build()
    state = dict(model.state_dict())
    state["transformer.h.0.attn.bias"] = torch.ones(1, 1, 16, 16).tril()
    torch.save({**envelope(model), "model": state}, tmp_path / "ckpt.pt")
    assert "masks" not in {each.section for each in stats(tmp_path / "ckpt.pt").tensors}
    found = stats(tmp_path / "ckpt.pt", pattern="*.h.0.attn.bias").tensors
    assert [(each.section, each.measures.zeros) for each in found] == [("masks", 120)]


def test_how_far_an_untied_head_is_from_wte(tmp_path: Path) -> None:
    state = {name: tensor.clone() for name, tensor in build().state_dict().items()}
    state["lm_head.weight"][0, 0] += 2
    torch.save({**envelope(build()), "model": state}, tmp_path / "ckpt.pt")
    found = stats(tmp_path / "ckpt.pt")
    assert found.max_head_difference == pytest.approx(2)
    assert stats(save_nanogpt(tmp_path / "tied.pt", build())).max_head_difference is None
