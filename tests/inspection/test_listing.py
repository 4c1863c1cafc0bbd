"""The tensors of a checkpoint, by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from model_files import build, envelope
from training_files import build_trained, save_trained

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.errors import UsageError
from nanogpt_cli.inspection.listing import TensorsReport, list_tensors
from nanogpt_cli.inspection.optimizer import read_optimizer


def names(report: TensorsReport) -> list[str]:
    return [row.name for row in report.tensors]


def test_weights_in_the_files_order(tmp_path: Path) -> None:
    model, saved = build_trained()
    torch.save(saved, tmp_path / "ckpt.pt")
    report = list_tensors(open_checkpoint(str(tmp_path / "ckpt.pt")))
    assert names(report) == [*model.state_dict(), "best_val_loss"]
    parameters = len(list(model.parameters()))
    assert report.optimizer_tensors_left_out == 3 * parameters
    assert report.tensors_in_file == 3 * parameters + len(report.tensors)


def test_a_row(tmp_path: Path) -> None:
    path = save_trained(tmp_path / "ckpt.pt")
    rows = {row.name: row for row in list_tensors(open_checkpoint(str(path))).tensors}
    row = rows["transformer.h.1.mlp.c_fc.weight"]
    assert (row.shape, row.dtype, row.elements) == ((96, 24), "float32", 96 * 24)
    assert (row.stored_bytes, row.section, row.shares_with) == (4 * 96 * 24, "weights", None)
    assert rows["lm_head.weight"].shares_with == "transformer.wte.weight"
    assert rows["lm_head.weight"].section == "head"


def test_filter_and_sort(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(save_trained(tmp_path / "ckpt.pt")))
    found = list_tensors(checkpoint, pattern="*.h.0.attn.*", sort="size")
    assert names(found) == [
        "transformer.h.0.attn.c_attn.weight",
        "transformer.h.0.attn.c_proj.weight",
    ]
    every = list_tensors(checkpoint, sort="size").tensors
    order = [(-row.stored_bytes, row.name) for row in every]
    assert order == sorted(order)
    left = list_tensors(checkpoint).optimizer_tensors_left_out
    assert found.optimizer_tensors_left_out == left > 0
    assert names(list_tensors(checkpoint, sort="name")) == sorted(names(list_tensors(checkpoint)))


def test_a_filter_finds_stored_and_canonical_names(tmp_path: Path) -> None:
    state = {f"module.{name}": tensor for name, tensor in build().state_dict().items()}
    torch.save({**envelope(build()), "model": state}, tmp_path / "ckpt.pt")
    checkpoint = open_checkpoint(str(tmp_path / "ckpt.pt"))
    assert names(list_tensors(checkpoint, pattern="transformer.wpe.*")) == [
        "module.transformer.wpe.weight"
    ]
    assert len(list_tensors(checkpoint, pattern="module.*").tensors) == len(state)


def test_a_filter_without_a_match_is_wrong_usage(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(save_trained(tmp_path / "ckpt.pt")))
    with pytest.raises(UsageError, match=r"no tensor's name matches '\*\.nothing'.*and 12 more"):
        list_tensors(checkpoint, pattern="*.nothing")


def test_the_optimizers_entries_under_their_weights(tmp_path: Path) -> None:
    model, saved = build_trained()
    torch.save(saved, tmp_path / "ckpt.pt")
    report = list_tensors(open_checkpoint(str(tmp_path / "ckpt.pt")), optimizer=True)
    owners = {row.name: row.canonical for row in report.tensors if row.is_optimizers}
    assert report.optimizer_tensors_left_out == 0
    by_index = [n for n, p in model.named_parameters() if p.dim() >= 2]
    by_index += [n for n, p in model.named_parameters() if p.dim() < 2]
    for index, owner in enumerate(by_index):
        assert owners[f"optimizer.state.{index}.exp_avg"] == owner
    assert {row.section for row in report.tensors if row.name.endswith("exp_avg_sq")} == {"adam_v"}


def test_the_order_of_an_early_train_py(tmp_path: Path) -> None:
    """Before 2-D decided, Linear weights alone decayed, and each group was sorted by name.

    By name, layer 10 comes before layer 2.
    """
    model, saved = build_trained(1, n_layer=11)
    parameters = dict(model.named_parameters())
    linear = [n for n, p in parameters.items() if p.dim() >= 2 and ".w" in n]
    decayed = sorted(n for n in linear if not n.startswith(("transformer.wte", "transformer.wpe")))
    others = sorted(set(parameters) - set(decayed))
    optimizer = torch.optim.AdamW(
        [{"params": [parameters[n] for n in decayed]}, {"params": [parameters[n] for n in others]}]
    )
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    torch.save({**saved, "optimizer": optimizer.state_dict()}, tmp_path / "ckpt.pt")
    state = read_optimizer(open_checkpoint(str(tmp_path / "ckpt.pt")))
    assert state is not None
    assert state.order == "an early train.py"
    assert list(state.owners.values()) == decayed + others


def test_the_order_of_the_model_itself(tmp_path: Path) -> None:
    model, saved = build_trained()
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    before = {"scheduler": {"state": {}}, **saved}
    torch.save({**before, "optimizer": optimizer.state_dict()}, tmp_path / "ckpt.pt")
    state = read_optimizer(open_checkpoint(str(tmp_path / "ckpt.pt")))
    assert state is not None
    assert (state.key, state.order) == ("optimizer", "the model")
    assert list(state.owners.values()) == [name for name, _ in model.named_parameters()]


def test_what_shares_bytes_is_told(tmp_path: Path) -> None:
    flat = torch.zeros(4)
    extra = {"a": flat, "b": flat[:2], "c": flat, "d": flat[:0], "e": flat[:0]}
    torch.save(envelope(build(), extra=extra), tmp_path / "ckpt.pt")
    rows = list_tensors(open_checkpoint(str(tmp_path / "ckpt.pt")), pattern="extra.*").tensors
    assert [row.shares_with for row in rows] == [None, None, "extra.a", None, None]


def test_conv1d_matrices_are_marked(tmp_path: Path) -> None:
    state = dict(build().state_dict())
    for name in state:
        if name.endswith(("attn.c_attn.weight", "c_proj.weight", "c_fc.weight")):
            state[name] = state[name].t().contiguous()
    torch.save(state, tmp_path / "weights.pt")
    rows = list_tensors(open_checkpoint(str(tmp_path / "weights.pt"))).tensors
    turned = {row.name.split(".", 3)[-1] for row in rows if row.transposed}
    assert turned == {
        *("attn.c_attn.weight", "attn.c_proj.weight"),
        *("mlp.c_fc.weight", "mlp.c_proj.weight"),
    }
