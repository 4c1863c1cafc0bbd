"""The other views of `nanogpt inspect`: tensors, figures, checks, differences, refusals."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch
from conftest import Run
from model_files import build, envelope, save_meta, save_nanogpt
from pickle_recipes import LIVE, REFUSED, entry, whole
from training_files import build_trained, save_trained


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    save_meta(tmp_path)
    return save_trained(tmp_path / "ckpt.pt", steps=20, rate=3e-2)


def squeeze(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def hostile_zip(path: Path, value: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", whole(entry("model", value)))
        archive.writestr("a/version", "3\n")
    return path


# --- tensors


def test_tensors_flat(nanogpt: Run, trained: Path) -> None:
    shown = squeeze(nanogpt("inspect", trained, "--tensors").out)
    assert "transformer.h.0.attn.c_attn.weight 72 x 24 1,728 6,912 float32" in shown
    assert "best_val_loss scalar 1 4 float32" in shown
    assert any("lm_head.weight 65 x 24" in line and "the bytes of" in line for line in shown)
    assert shown[-1] == (
        "17 of 62 tensors, 17,449 elements, 63,556 bytes, shared ones once; "
        "--optimizer shows the optimizer's 45, too"
    )


def test_tensors_as_a_tree_with_sums(nanogpt: Run, trained: Path) -> None:
    shown = squeeze(nanogpt("inspect", trained, "--tensors", "--tree", "--filter", "*.h.1.*").out)
    assert shown[:4] == [
        str(trained),
        "└── transformer 6,960 in 27.8 kB",
        "└── h 6,960 in 27.8 kB",
        "└── 1 6,960 in 27.8 kB",
    ]
    assert any(line.endswith("weight 96 x 24 float32") for line in shown)


def test_tensors_of_the_optimizer(nanogpt: Run, trained: Path) -> None:
    out = nanogpt("inspect", trained, "--tensors", "--optimizer", "--sort", "name").out
    assert "Adam m, of transformer.wte.weight" in out
    names = [line.split()[0] for line in out.splitlines()[4:-2] if line]
    assert names == sorted(names)
    assert len(names) == 62


def test_a_filter_that_matches_nothing(nanogpt: Run, trained: Path) -> None:
    outcome = nanogpt("inspect", trained, "--tensors", "--filter", "*.nothing.*")
    assert (outcome.code, outcome.out) == (2, "")
    assert "no tensor's name matches '*.nothing.*'" in outcome.err


def test_two_views_at_once(nanogpt: Run, trained: Path) -> None:
    outcome = nanogpt("inspect", trained, "--stats", "--check")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--stats and --check are two views" in outcome.err


def test_settings_without_effect_are_told(nanogpt: Run, trained: Path) -> None:
    err = nanogpt("inspect", trained, "--filter", "*", "--sort", "size", "--tree").err
    assert "note: --filter has no effect without --tensors or --stats" in err
    assert "note: --sort has no effect without --tensors or --stats" in err
    assert "note: --tree has no effect without --tensors" in err


# --- figures


def test_stats(nanogpt: Run, trained: Path) -> None:
    outcome = nanogpt("inspect", trained, "--stats")
    shown = squeeze(outcome.out)
    assert outcome.code == 0
    assert any(line.startswith("tensor mean std x init min max norm zeros") for line in shown)
    assert "as initialised 0 of 15 weights are as nanoGPT draws them" in shown
    assert any(line.startswith("fingerprint ") and len(line.split()[1]) == 64 for line in shown)
    (row,) = nanogpt("inspect", trained, "--stats", "--json").rows
    assert len(row["tensors"]) == 15
    assert row["tensors"][0]["measures"]["elements"] == 65 * 24


def test_stats_show_nan_dead_parts_and_untouched_rows(nanogpt: Run, tmp_path: Path) -> None:
    model, saved = build_trained(steps=20, positions=10, rate=3e-2)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["transformer.h.0.mlp.c_fc.weight"][0, 0] = float("nan")
    state["transformer.h.1.mlp.c_fc.weight"].zero_()
    torch.save({**saved, "model": state}, tmp_path / "ckpt.pt")
    outcome = nanogpt("inspect", tmp_path / "ckpt.pt", "--stats")
    shown = squeeze(outcome.out)
    assert "all zero 1 transformer.h.1.mlp.c_fc.weight" in shown
    assert "NaN, Inf 1, 0 not a usable model" in shown
    assert "wpe never trained 6 of 16 rows, 10 to 15: Adam never saw a gradient there" in shown
    (row,) = nanogpt("inspect", tmp_path / "ckpt.pt", "--stats", "--json").rows
    assert row["nan"] == 1
    assert "NaN" not in outcome.err


# --- checks


def test_a_clean_file(nanogpt: Run, trained: Path) -> None:
    outcome = nanogpt("inspect", trained, "--check")
    assert outcome.code == 0
    assert squeeze(outcome.out)[-1] == "ok: 0 faults, 0 warnings in 17 checks"


def test_a_fault_is_exit_3(nanogpt: Run, tmp_path: Path) -> None:
    model = build()
    with torch.no_grad():
        model.get_parameter("transformer.h.0.mlp.c_fc.weight")[0, :7] = float("nan")
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    outcome = nanogpt("inspect", path, "--check")
    shown = squeeze(outcome.out)
    assert outcome.code == 3
    assert "finite fault 7 NaN and 0 Inf in 1 of 28 tensors" in shown
    assert "transformer.h.0.mlp.c_fc.weight: 7 NaN, 0 Inf of 2,304" in shown
    (row,) = nanogpt("inspect", path, "--check", "--json").rows
    assert (row["status"], row["faults"]) == ("fault", 1)


def test_a_long_list_is_cut_and_json_has_it_whole(nanogpt: Run, tmp_path: Path) -> None:
    saved = envelope(build())
    saved["model"] = {
        name: tensor for name, tensor in saved["model"].items() if ".h.1." not in name
    }
    path = tmp_path / "ckpt.pt"
    torch.save(saved, path)
    outcome = nanogpt("inspect", path, "--check")
    assert outcome.code == 3
    assert "missing transformer.h.1.ln_1.weight" in outcome.out
    assert "and 7 more; --json lists all" in outcome.out
    (row,) = nanogpt("inspect", path, "--check", "--json").rows
    (keys,) = (each for each in row["checks"] if each["name"] == "keys")
    assert len(keys["findings"]) == 12


def test_another_model_is_a_fault(nanogpt: Run, tmp_path: Path) -> None:
    torch.save({"model": {"tok_embeddings.weight": torch.zeros(2, 2)}}, tmp_path / "ckpt.pt")
    outcome = nanogpt("inspect", tmp_path / "ckpt.pt", "--check")
    assert outcome.code == 3
    assert "not a GPT-2 model" in outcome.out
    assert outcome.err == ""


def test_checking_what_cannot_be_read(nanogpt: Run, tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    outcome = nanogpt("inspect", path, "--check")
    assert outcome.code == 1
    assert "Git LFS pointer" in outcome.err


# --- differences


def test_the_same_model(nanogpt: Run, trained: Path, tmp_path: Path) -> None:
    _, saved = build_trained(steps=20, rate=3e-2)
    state = {f"module.{name}": tensor for name, tensor in saved["model"].items()}
    other = tmp_path / "other.pt"
    torch.save({**saved, "model": state, "iter_num": 21}, other)
    outcome = nanogpt("inspect", trained, "--diff", other)
    shown = squeeze(outcome.out)
    assert outcome.code == 0
    assert "same model: 15 of 15 weights are equal" in shown
    assert "iter_num 20 21" in shown
    assert shown[-1].endswith(", of both")


def test_different_models_are_exit_3(nanogpt: Run, trained: Path, tmp_path: Path) -> None:
    other = save_trained(tmp_path / "other.pt", steps=21, rate=3e-2)
    outcome = nanogpt("inspect", trained, "--diff", other)
    assert outcome.code == 3
    assert "different models: 0 of 15 weights are equal" in outcome.out
    assert "cosine" in outcome.out
    (row,) = nanogpt("inspect", trained, "--diff", other, "--json").rows
    assert row["same"] is False
    assert all(0 < each["relative_norm"] < 1 for each in row["tensors"])


def test_a_missing_other(nanogpt: Run, trained: Path, tmp_path: Path) -> None:
    outcome = nanogpt("inspect", trained, "--diff", tmp_path / "none.pt")
    assert (outcome.code, outcome.out) == (2, "")


# --- refusals


def test_a_refused_file_still_shows_what_is_in_it(nanogpt: Run, tmp_path: Path) -> None:
    path = hostile_zip(tmp_path / "ckpt.pt", LIVE["os.system"](f"touch {tmp_path}/sprung"))
    outcome = nanogpt("inspect", path)
    shown = squeeze(outcome.out)
    assert outcome.code == 1
    assert shown[1].startswith("not opened, nothing was run, ")
    assert "a/data.pkl " in "\n".join(shown)
    assert "os.system refused 13" in shown
    assert "the file would call 'os.system' (at byte 13 of data.pkl)" in outcome.err
    assert outcome.err.count("error: ") == 1
    assert not (tmp_path / "sprung").exists()


def test_the_same_in_json(nanogpt: Run, tmp_path: Path) -> None:
    path = hostile_zip(tmp_path / "ckpt.pt", REFUSED["torch.load"])
    outcome = nanogpt("inspect", path, "--json")
    (row,) = outcome.rows
    assert outcome.code == 1
    assert row["schema"] == "nanogpt.inspect-refusal/1"
    assert row["pickles"] == [
        {
            "name": "a/data.pkl",
            "globals": [{"name": "torch.load", "offset": 13, "verdict": "refused"}],
        }
    ]


@pytest.mark.parametrize("recipe", sorted(REFUSED))
def test_one_message_for_every_refused_call(nanogpt: Run, tmp_path: Path, recipe: str) -> None:
    outcome = nanogpt("inspect", hostile_zip(tmp_path / "ckpt.pt", REFUSED[recipe]))
    assert outcome.code == 1
    assert outcome.err.count("error: ") == 1
    assert "Traceback" not in outcome.err
    assert recipe in outcome.out


@pytest.mark.parametrize("view", ["--tensors", "--stats", "--diff=demo"])
def test_no_view_opens_a_refused_file(nanogpt: Run, tmp_path: Path, view: str) -> None:
    path = hostile_zip(tmp_path / "ckpt.pt", LIVE["os.system"]("true"))
    outcome = nanogpt("inspect", path, view)
    assert outcome.code == 1
    assert "os.system" in outcome.out


def test_a_file_cut_short(nanogpt: Run, trained: Path) -> None:
    trained.write_bytes(trained.read_bytes()[:20_000])
    outcome = nanogpt("inspect", trained)
    assert outcome.code == 1
    assert "found by their headers" in outcome.out
    assert "the file is cut: 20,000 bytes" in outcome.err


def test_names_in_a_refused_file_are_harmless(nanogpt: Run, tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/[red]\x1b[31m\u202e.txt", "")
        archive.writestr("a/data.pkl", whole(entry("m", b"c[/b]\x1b\nx\n)R")))
    outcome = nanogpt("inspect", path)
    assert outcome.code == 1
    assert not {"\x1b", "\u202e"} & set(outcome.out + outcome.err)
    assert "a/[red]\\x1b[31m\\u202e.txt" in outcome.out
    assert "[/b]\\x1b.x" in outcome.out
