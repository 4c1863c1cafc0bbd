"""Cropping nanoGPT's own files: what is cut, and that nothing else is."""

from __future__ import annotations

import sys
import zipfile
from collections import Counter, OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from crop_files import adamw, batch, differences, load, raw, save_training, step, trained
from model_files import build, envelope, save_nanogpt

from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.errors import CheckpointError, NanoGPTError, UsageError
from nanogpt_cli.model import GPT, GPTConfig
from nanogpt_cli.surgery import CropReport, crop

WPE = "transformer.wpe.weight"


def run(path: Path, block_size: int, **options: Any) -> CropReport:
    return crop(open_checkpoint(str(path)), block_size, **options)


def out(path: Path, block_size: int) -> Path:
    return path.with_name(f"{path.stem}-{block_size}{path.suffix}")


TRAPS = {
    "plain": {},
    "vocab_size is block_size": {"vocab_size": 16},
    "n_embd is block_size": {"n_embd": 24, "block_size": 24},
    "4 n_embd is block_size": {"n_embd": 12, "block_size": 48},
    "3 n_embd is block_size": {"n_embd": 12, "block_size": 36},
    "vocab, block and width are one": {"n_embd": 24, "block_size": 24, "vocab_size": 24},
    "no biases": {"bias": False, "vocab_size": 16},
}


@pytest.mark.parametrize("config", TRAPS.values(), ids=TRAPS)
def test_only_positions_are_cut(tmp_path: Path, config: dict[str, Any]) -> None:
    path = save_training(tmp_path / "ckpt.pt", **config)
    before = load(path)
    report = run(path, 8)
    after = load(tmp_path / "ckpt-8.pt")
    assert differences(before, after) == [
        f"/model/{WPE}",
        "/model_args/block_size",
        "/config/block_size",
        "/optimizer/state/1/exp_avg",
        "/optimizer/state/1/exp_avg_sq",
    ]
    assert after["model_args"]["block_size"] == after["config"]["block_size"] == 8
    assert raw(after["model"][WPE]) == raw(before["model"][WPE][:8])
    for name in ("exp_avg", "exp_avg_sq"):
        moments = [tree["optimizer"]["state"][1][name] for tree in (before, after)]
        assert raw(moments[1]) == raw(moments[0][:8])
        assert moments[1].shape == after["model"][WPE].shape
    assert report.verification is not None
    assert report.verification.largest_difference == 0
    assert report.verification.positions == 8
    assert {cut.name for cut in report.cuts} == {
        WPE,
        "optimizer.state[1].exp_avg",
        "optimizer.state[1].exp_avg_sq",
        "model_args.block_size",
        "config.block_size",
    }


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied_head", [True, False])
def test_training_resumes_as_if_the_model_had_been_cropped_in_memory(
    tmp_path: Path, bias: bool, tied_head: bool
) -> None:
    config = {"bias": bias, "tied_head": tied_head, "vocab_size": 16, "n_embd": 12}
    model, optimizer = trained(**config)
    path = tmp_path / "ckpt.pt"
    torch.save(envelope(model, optimizer=optimizer.state_dict()), path)
    run(path, 5)
    saved = load(tmp_path / "ckpt-5.pt")
    resumed = GPT(GPTConfig(**saved["model_args"], tied_head=tied_head))
    resumed.load_state_dict(saved["model"])
    resumed_optimizer = adamw(resumed)
    resumed_optimizer.load_state_dict(saved["optimizer"])
    idx = batch(model, 5)
    losses = [step(model, optimizer, idx), step(resumed, resumed_optimizer, idx)]
    assert losses[0] == losses[1]
    expected = dict(model.named_parameters())
    for name, parameter in resumed.named_parameters():
        whole = expected[name][:5] if name == WPE else expected[name]
        assert torch.equal(parameter, whole), name


def test_the_cut_rows_are_not_in_the_file_and_it_shrinks_by_their_size(tmp_path: Path) -> None:
    model = build(n_embd=768, block_size=1024, n_layer=1, n_head=12)
    marker = torch.linspace(3, 4, 768)
    with torch.no_grad():
        model.transformer.wpe.weight[600] = marker
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    assert raw(marker) in path.read_bytes()
    report = run(path, 256, weights_only=True)
    written = out(path, 256).read_bytes()
    assert raw(marker) not in written
    saved = path.stat().st_size - len(written)
    assert abs(saved - 2_359_296) < 0.01 * 2_359_296
    assert report.before_bytes == path.stat().st_size
    assert report.after_bytes == len(written)
    positions = next(part for part in report.parts if part.name == "position table")
    assert (positions.before_bytes, positions.after_bytes) == (3_145_728, 786_432)


def flat(model: GPT) -> dict[str, torch.Tensor]:
    """Return a state dict whose tensors are slices of one storage, as flat optimizers leave it."""
    state = model.state_dict()
    del state["lm_head.weight"]
    everything = torch.cat([tensor.reshape(-1) for tensor in state.values()])
    sizes = [tensor.numel() for tensor in state.values()]
    parts = zip(state.items(), torch.split(everything, sizes), strict=True)
    return {name: part.view(tensor.shape) for (name, tensor), part in parts}


def transposed(model: GPT) -> dict[str, torch.Tensor]:
    """Return a state dict whose position table is stored column by column."""
    return {**model.state_dict(), WPE: model.state_dict()[WPE].t().contiguous().t()}


@pytest.mark.parametrize("layout", [flat, transposed])
def test_a_table_inside_a_larger_storage_leaves_no_rows_behind(tmp_path: Path, layout: Any) -> None:
    model = build()
    row = model.transformer.wpe.weight[12]
    column = model.transformer.wpe.weight[8:, 3]
    path = tmp_path / "ckpt.pt"
    torch.save(envelope(model, model=layout(model)), path)
    before = path.read_bytes()
    assert raw(row) in before or raw(column) in before
    run(path, 8)
    after = out(path, 8).read_bytes()
    assert raw(row) not in after
    assert raw(column) not in after
    state = load(out(path, 8))["model"]
    assert raw(state[WPE]) == raw(model.transformer.wpe.weight[:8])
    for name, tensor in model.state_dict().items():
        if name not in (WPE, "lm_head.weight"):
            assert raw(state[name]) == raw(tensor)


def test_a_saved_slice_does_not_drag_its_storage_along(tmp_path: Path) -> None:
    big = torch.randn(100, 1000)
    extra = {"slice": big[3], "again": big[3], "part": big[3, 10:20], "other": big[7:9]}
    path = save_nanogpt(tmp_path / "ckpt.pt", build(), **extra)
    run(path, 8)
    after = load(out(path, 8))
    assert path.stat().st_size - out(path, 8).stat().st_size > 4 * 97_000 - 2_000
    for name, tensor in extra.items():
        assert torch.equal(after[name], tensor)
    assert after["slice"].data_ptr() == after["again"].data_ptr()
    assert after["part"].data_ptr() == after["slice"].data_ptr() + 40
    assert after["other"].untyped_storage().nbytes() == 8_000


@dataclass
class Config:
    """A stranger's class, pickled into a checkpoint."""

    block_size: int
    n_layer: int = 2
    n_head: int = 3
    n_embd: int = 24
    vocab_size: int = 65
    notes: Any = None


class Slotted:
    """A class whose state is a pair."""

    __slots__ = ("block_size", "n_head")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.n_head = 3


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put the classes into a module that can be taken away again."""
    module = type(sys)("strangers")
    for cls in (Config, Slotted):
        monkeypatch.setattr(cls, "__module__", "strangers")
        setattr(module, cls.__name__, cls)
    monkeypatch.setitem(sys.modules, "strangers", module)
    return monkeypatch


def test_an_inert_record_is_written_back_with_another_block_size(
    tmp_path: Path, foreign: pytest.MonkeyPatch
) -> None:
    config = Config(16, notes={"shared": [1, 2]})
    path = tmp_path / "model_00250.pt"
    content = {
        "model": build().state_dict(),
        "config": config,
        "step": 250,
        "hparams": Slotted(16),
        "again": config.notes,
    }
    torch.save(content, path)
    foreign.delitem(sys.modules, "strangers")
    run(path, 8)
    assert "strangers" not in sys.modules
    with zipfile.ZipFile(out(path, 8)) as archive:
        assert b"cstrangers\nConfig\n" in archive.read("archive/data.pkl")
    module = type(sys)("strangers")
    module.Config, module.Slotted = Config, Slotted  # type: ignore[attr-defined]
    foreign.setitem(sys.modules, "strangers", module)
    after = load(out(path, 8), weights_only=False)
    assert after["config"] == Config(8, notes={"shared": [1, 2]})
    assert after["config"].notes is after["again"]
    assert type(after["hparams"]) is Slotted
    assert (after["hparams"].block_size, after["hparams"].n_head) == (8, 3)
    assert after["step"] == 250


def test_extras_of_every_readable_kind_come_back_as_they_were(tmp_path: Path) -> None:
    import argparse
    import pathlib
    import types

    extras = {
        "best": np.float64(1.25),
        "count": np.int32(7),
        "array": torch.arange(3, dtype=torch.int16),
        "half": torch.tensor([1.5, float("nan")], dtype=torch.bfloat16),
        "flag": torch.tensor(True),
        "nothing": torch.zeros(0, 4),
        "out": pathlib.PurePosixPath("/runs/1"),
        "args": argparse.Namespace(lr=1e-3, block_size=16),
        "space": types.SimpleNamespace(a=(1, (2.5, None))),
        "dtype": torch.float16,
        "device": torch.device("cuda:1"),
        "size": torch.Size([2, 3]),
        "letters": {"b", "a"},
        "frozen": frozenset({1}),
        "raw": b"\x00\xff",
        "many": Counter("hello"),
        "order": OrderedDict(z=1, a=2),
        "numbers": [2**70, -5, 300, 70_000, -(2**31), 1 - 2j, float("inf"), True],
        "text": "caf\u00e9 \u2028 \U0001f600",
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    path = save_nanogpt(tmp_path / "ckpt.pt", build(), **extras)
    run(path, 8)
    before, after = (load(each, weights_only=False) for each in (path, out(path, 8)))
    after["args"].block_size += 8
    assert differences(before, after) == [f"/model/{WPE}", "/model_args/block_size"]
    assert before["model"]._metadata == after["model"]._metadata


def open_prefixes(path: Path) -> tuple[str, ...]:
    return open_checkpoint(str(path)).architecture.prefixes


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
def test_prefixes_are_cleaned(tmp_path: Path, prefix: str) -> None:
    model = build()
    state = model.state_dict()
    renamed = OrderedDict((prefix + name, tensor) for name, tensor in state.items())
    renamed._metadata = OrderedDict(  # type: ignore[attr-defined]
        {"": {}, **{f"{prefix}{name}".strip("."): {} for name, _ in model.named_modules()}}
    )
    path = tmp_path / "ckpt.pt"
    torch.save(envelope(model, model=renamed), path)
    report = run(path, 8)
    assert report.notes == (
        f"removed from the weights' names: {', '.join(map(repr, open_prefixes(path)))}",
    )
    assert prefix.encode() not in out(path, 8).read_bytes()
    after = load(out(path, 8))["model"]
    assert list(after) == list(state)
    assert set(after._metadata) == {name for name, _ in model.named_modules()}


def test_a_second_copy_of_the_head_goes_and_its_name_stays(tmp_path: Path) -> None:
    model = build()
    state = model.state_dict()
    state["lm_head.weight"] = state["lm_head.weight"].clone()
    path = tmp_path / "ckpt.pt"
    torch.save(envelope(model, model=state), path)
    report = run(path, 8)
    after = load(out(path, 8))["model"]
    head, wte = after["lm_head.weight"], after["transformer.wte.weight"]
    assert head.data_ptr() == wte.data_ptr()
    part = next(part for part in report.parts if part.name == "second copy of the head")
    assert (part.before_bytes, part.after_bytes) == (65 * 24 * 4, 0)


def test_parameters_in_a_state_dict_stay_parameters(tmp_path: Path) -> None:
    model = build()
    path = tmp_path / "ckpt.pt"
    torch.save(envelope(model, model=dict(model.named_parameters())), path)
    run(path, 8, dtype="bfloat16")
    after = load(out(path, 8))["model"]
    assert {type(weight) for weight in after.values()} == {torch.nn.Parameter}
    assert all(weight.requires_grad for weight in after.values())
    assert raw(after[WPE]) == raw(model.transformer.wpe.weight[:8].bfloat16())


def test_an_untied_head_stays(tmp_path: Path) -> None:
    model = build(tied_head=False)
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    run(path, 8)
    assert raw(load(out(path, 8))["model"]["lm_head.weight"]) == raw(model.lm_head.weight)


def test_stored_masks_are_cut_in_every_layer(tmp_path: Path) -> None:
    model = build(attention="manual", n_layer=3)
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    report = run(path, 5)
    after = load(out(path, 5))["model"]
    for layer in range(3):
        mask = after[f"transformer.h.{layer}.attn.bias"]
        assert mask.shape == (1, 1, 5, 5)
        assert torch.equal(mask[0, 0], torch.ones(5, 5).tril())
    assert sum(cut.name.endswith(".attn.bias") for cut in report.cuts) == 3
    part = next(part for part in report.parts if part.name == "causal masks")
    assert (part.before_bytes, part.after_bytes) == (3 * 16 * 16 * 4, 3 * 25 * 4)
    cropped = GPT(GPTConfig(**load(out(path, 5))["model_args"], attention="manual"))
    cropped.load_state_dict(after)


def test_logits_on_kept_positions_are_the_same(tmp_path: Path) -> None:
    model = build()
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    run(path, 8)
    cropped = load_model(open_checkpoint(str(out(path, 8)))).eval()
    assert cropped.config.block_size == 8
    idx = batch(model, 8)
    with torch.no_grad():
        assert torch.equal(cropped(idx, idx)[0], model(idx, idx)[0])


def test_a_legacy_file_becomes_a_zip_and_says_so(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = tmp_path / "ckpt.pt"
    content = envelope(model, optimizer=optimizer.state_dict())
    torch.save(content, path, _use_new_zipfile_serialization=False)
    report = run(path, 8)
    assert zipfile.is_zipfile(out(path, 8))
    assert not zipfile.is_zipfile(path)
    assert "output is a zip" in " ".join(report.notes)
    assert len(differences(load(path), load(out(path, 8)))) == 4


def test_a_compressed_archive_is_read_through(tmp_path: Path) -> None:
    path = save_training(tmp_path / "plain.pt")
    packed = tmp_path / "ckpt.pt"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(packed, "w", 8) as archive:
        for name in source.namelist():
            archive.writestr(name, source.read(name))
    run(path, 8)
    run(packed, 8)
    assert out(packed, 8).read_bytes() == out(path, 8).read_bytes()


def test_weights_only_keeps_what_sampling_needs(tmp_path: Path) -> None:
    path = save_training(tmp_path / "ckpt.pt")
    report = run(path, 8, weights_only=True)
    after = load(out(path, 8))
    assert list(after) == ["model", "model_args", "iter_num", "best_val_loss", "config"]
    assert report.dropped == ("optimizer",)
    assert any("cannot resume" in note for note in report.notes)
    optimizer = next(part for part in report.parts if part.name.startswith("optimizer"))
    assert optimizer.after_bytes == 0


def test_weights_only_without_an_optimizer_has_no_effect_and_says_so(tmp_path: Path) -> None:
    path = save_nanogpt(tmp_path / "ckpt.pt", build())
    report = run(path, 8, weights_only=True)
    assert "--weights-only has no effect: the input has no optimizer" in report.notes


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_cast_changes_every_weight_and_counts_what_it_cost(tmp_path: Path, dtype: str) -> None:
    path = save_training(tmp_path / "ckpt.pt", attention="manual")
    report = run(path, 8, dtype=dtype)
    before, after = load(path), load(out(path, 8))
    kind = getattr(torch, dtype)
    largest, changed = 0.0, 0
    for name, weight in before["model"].items():
        expected = weight[:8] if name == WPE else weight
        if name.endswith(".attn.bias"):
            assert after["model"][name].dtype == torch.float32
            continue
        assert raw(after["model"][name]) == raw(expected.to(kind))
        if name != "lm_head.weight":
            difference = (expected - expected.to(kind).float()).abs()
            largest = max(largest, difference.max().item())
            changed += int((difference > 0).sum())
    assert after["optimizer"]["state"][0]["exp_avg"].dtype == torch.float32
    assert report.cast is not None
    assert (report.cast.largest_difference, report.cast.changed) == (largest, changed)
    assert report.verification is not None
    assert 0 < report.verification.largest_difference < 0.5
    wte = after["model"]["transformer.wte.weight"]
    assert wte.data_ptr() == after["model"]["lm_head.weight"].data_ptr()


def test_a_weight_too_large_for_float16_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    model = build()
    with torch.no_grad():
        model.blocks[1].mlp.c_fc.weight[3, 4] = 70_000.0
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    with pytest.raises(CheckpointError) as caught:
        run(path, 8, dtype="float16")
    assert caught.value.message == (
        "'transformer.h.1.mlp.c_fc.weight' holds 70000: float16 ends at 65504"
    )
    assert [each.name for each in tmp_path.iterdir()] == ["ckpt.pt"]
    run(path, 8, dtype="bfloat16")


def test_infinities_and_nans_of_the_source_are_no_overflow(tmp_path: Path) -> None:
    model = build()
    with torch.no_grad():
        model.transformer.wte.weight[0, :3] = torch.tensor([float("inf"), float("nan"), 1e-9])
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    report = run(path, 8, dtype="float16")
    assert report.cast is not None
    assert report.cast.vanished == 1
    row = load(out(path, 8))["model"]["transformer.wte.weight"][0, :3]
    assert row.isinf().tolist() == [True, False, False]
    assert row.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("legacy", [False, True])
def test_the_size_that_it_has_gives_a_copy(tmp_path: Path, legacy: bool) -> None:
    path = tmp_path / "ckpt.pt"
    content = envelope(build())
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    report = run(path, 16)
    assert out(path, 16).read_bytes() == path.read_bytes()
    assert report.is_copy
    assert report.cuts == ()
    assert report.notes == ("block_size is 16 already: there is nothing to do but copy",)


def test_the_size_that_it_has_still_drops_the_optimizer(tmp_path: Path) -> None:
    path = save_training(tmp_path / "ckpt.pt")
    report = run(path, 16, weights_only=True)
    assert not report.is_copy
    assert "optimizer" not in load(out(path, 16))


@pytest.mark.parametrize(
    ("block_size", "message"),
    [
        (17, "cannot grow block_size from 16 to 17: learned positions end at 16"),
        (0, "block_size is 0: a model has at least 1 position"),
        (-3, "block_size is -3: a model has at least 1 position"),
    ],
)
def test_impossible_sizes(tmp_path: Path, block_size: int, message: str) -> None:
    path = save_nanogpt(tmp_path / "ckpt.pt", build())
    with pytest.raises(UsageError) as caught:
        run(path, block_size)
    assert (caught.value.message, caught.value.exit_code) == (message, 2)
    assert [each.name for each in tmp_path.iterdir()] == ["ckpt.pt"]


def test_one_position_is_enough(tmp_path: Path) -> None:
    path = save_training(tmp_path / "ckpt.pt")
    run(path, 1)
    assert load(out(path, 1))["model"][WPE].shape == (1, 24)


def test_a_dry_run_writes_nothing_and_tells_the_size_to_the_byte(tmp_path: Path) -> None:
    path = save_training(tmp_path / "ckpt.pt")
    promised = run(path, 8, dry_run=True)
    assert [each.name for each in tmp_path.iterdir()] == ["ckpt.pt"]
    assert promised.verification is None
    done = run(path, 8)
    assert promised.after_bytes == done.after_bytes == out(path, 8).stat().st_size
    assert promised.parts == done.parts
    assert promised.cuts == done.cuts


def test_one_input_gives_one_output_to_the_byte(tmp_path: Path) -> None:
    path = save_training(tmp_path / "ckpt.pt", extra={"letters": set("hello world")})
    run(path, 8)
    first = out(path, 8).read_bytes()
    run(path, 8, force=True)
    assert out(path, 8).read_bytes() == first


def test_a_bare_state_dict_with_masks_and_unknown_heads(tmp_path: Path) -> None:
    model = build(attention="manual", tied_head=False, activation="gelu_tanh")
    path = tmp_path / "model.pt"
    torch.save(model.state_dict(), path)
    report = run(path, 8)
    assert report.verification is not None
    assert report.verification.largest_difference == 0
    assert any("number of heads" in note for note in report.notes)
    after = load(out(path, 8))
    assert type(after) is OrderedDict
    assert after["transformer.h.1.attn.bias"].shape == (1, 1, 8, 8)


def test_a_config_beside_a_bare_file_does_not_undo_the_crop(tmp_path: Path) -> None:
    model = build(activation="gelu_tanh")
    path = tmp_path / "weights.bin"
    torch.save(model.state_dict(), path)
    sizes = {"n_layer": 2, "n_head": 3, "n_embd": 24, "vocab_size": 65, "n_positions": 16}
    (tmp_path / "config.json").write_text(str({"model_type": "gpt2", **sizes}).replace("'", '"'))
    run(path, 8)
    cropped = open_checkpoint(str(out(path, 8)))
    assert (cropped.config.block_size, cropped.config.n_head) == (8, 3)


@pytest.mark.parametrize("stated", [np.int64(16), 16.0, True])
def test_every_config_with_a_block_size_is_set(tmp_path: Path, stated: Any) -> None:
    path = save_nanogpt(tmp_path / "ckpt.pt", build(), config={"block_size": stated, "lr": 0.1})
    run(path, 8)
    assert load(out(path, 8))["config"] == {"block_size": 8, "lr": 0.1}


def test_a_second_model_in_the_file_is_kept_and_named(tmp_path: Path) -> None:
    model = build()
    path = save_nanogpt(tmp_path / "ckpt.pt", model, ema=build(seed=5).state_dict())
    report = run(path, 8)
    assert "'ema' holds another position table, which is kept as it is" in report.notes
    assert load(out(path, 8))["ema"][WPE].shape == (16, 24)


def test_what_was_written_wrong_is_not_kept(tmp_path: Path) -> None:
    model = build()
    path = save_nanogpt(tmp_path / "ckpt.pt", model)

    def damage(done: int, total: int) -> None:
        """Flip one bit of a weight once all is written, as a bad disk would."""
        if done == total:
            (written,) = tmp_path.glob(".*.tmp")
            data = bytearray(written.read_bytes())
            data[data.index(raw(model.transformer.ln_f.weight)) + 2] ^= 1
            written.write_bytes(data)

    with pytest.raises(NanoGPTError, match="its logits differ") as caught:
        run(path, 8, progress=damage)
    assert caught.value.exit_code == 3
    assert [each.name for each in tmp_path.iterdir()] == ["ckpt.pt"]


def test_a_large_file_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    ballast = {"ballast": torch.zeros(25_000_000), "half": torch.zeros(25_000_000).bfloat16()}
    path = save_training(tmp_path / "ckpt.pt", extra=ballast)
    del ballast
    source = open_checkpoint(str(path))
    start, most = anonymous_bytes(), 0

    def watch(_done: int, _total: int) -> None:
        nonlocal most
        most = max(most, anonymous_bytes())

    crop(source, 8, progress=watch)
    assert out(path, 8).stat().st_size > 150_000_000
    assert most - start < 30_000_000


def anonymous_bytes() -> int:
    """Return this process's memory, mapped files apart."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("memory is told apart on Linux alone")
    line = next(line for line in status.read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def test_without_verification_nothing_is_compared(tmp_path: Path) -> None:
    path = save_nanogpt(tmp_path / "ckpt.pt", build())
    assert run(path, 8, verify=False).verification is None
    assert open_checkpoint(str(out(path, 8))).config.block_size == 8
