"""`nanogpt inspect`, from the command line down: the default view, streams, exit codes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Outcome, Run
from model_files import build, envelope, save_meta, save_nanogpt
from safetensors.torch import save_file
from training_files import save_trained

HOSTILE_NAME = "evil[/b]\x1b[31m\u202e\nname[bold]"

PROBE = """
import sys
from pathlib import Path
from nanogpt_cli.cli import main
code = main(["inspect", *sys.argv[1:]])
heavy = sorted({"torch", "numpy", "tiktoken", "transformers", "safetensors"} & set(sys.modules))
status = Path("/proc/self/status").read_text()
peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
print(code, heavy, peak, file=sys.stderr)
"""


def report(nanogpt: Run, *args: object) -> dict[str, Any]:
    outcome = nanogpt("inspect", *args, "--json", "-q")
    assert (outcome.code, outcome.err) == (0, "")
    row: dict[str, Any] = outcome.rows[0]
    return row


def lines(outcome: Outcome) -> list[str]:
    """Return the lines of stdout with runs of blanks made one."""
    return [" ".join(line.split()) for line in outcome.out.splitlines()]


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    save_meta(tmp_path)
    return save_trained(tmp_path / "ckpt.pt")


def test_the_whole_view(nanogpt: Run, trained: Path) -> None:
    outcome = nanogpt("inspect", trained)
    size = trained.stat().st_size
    shown = lines(outcome)
    assert outcome.code == 0
    assert shown[0] == str(trained)
    assert shown[1].startswith("torch zip, version 3, as torch 2.7 and newer write it, ")
    assert f"({size:,} bytes)" in shown[1]
    for line in (
        "n_layer 2 the file",
        "bias False the tensors' shapes",
        "activation gelu assumed: the file does not say",
        "parameters 15,504 by nanoGPT's rule, without wpe",
        "15,888 in all, a tied head once",
        "float32 15,888 in 15 tensors",
        "head storage tied: head and wte are one storage",
        f"tokenizer char 65 ids, fits: {trained.parent / 'meta.pkl'}",
        "iter_num 3 of 100",
        "tokens a step 320 4 x 5 x 16: batch_size x gradient_accumulation_steps x block_size",
        "best_val_loss 2.5000 the last, maybe not the best: always_save_checkpoint was on, so "
        "every evaluation replaced the file and its loss, better or not",
        "ln(vocab_size) 4.1744 what guessing gives",
        "weights 15 63,552 25.37 %",
        "torch._utils._rebuild_tensor_v2 known 79",
        f'next: nanogpt sample {trained} --prompt "..."',
    ):
        start = line if "25.37" not in line else "weights 15 63,552"
        assert any(each.startswith(start) for each in shown), line
    assert any(each.startswith("tokens seen 960 taking") for each in shown)


def test_streams_name_the_file(nanogpt: Run, trained: Path) -> None:
    outcome = nanogpt("inspect", trained)
    assert outcome.err == f"note: inspecting {trained}, iter_num 3, best_val_loss 2.5000\n"
    assert "inspecting" not in outcome.out
    assert nanogpt("inspect", trained, "-q").err == ""


def test_json_has_raw_numbers(nanogpt: Run, trained: Path) -> None:
    found = report(nanogpt, trained)
    assert found["schema"] == "nanogpt.inspect/1"
    assert found["path"] == str(trained)
    assert found["config"]["n_embd"] == {"value": 24, "source": "file"}
    assert found["parameters"]["nanogpt"] == 15_504
    assert found["training"]["tokens_seen"] == 960
    assert found["training"]["loss"]["nats_per_token"] == 2.5
    sections = {each["name"]: each["stored_bytes"] for each in found["stored"]["sections"]}
    assert sections["weights"] == sections["adam_m"] == sections["adam_v"] == 63_552
    assert sum(sections.values()) == found["stored"]["tensor_bytes"]
    assert found["tying"] == {"kind": "storage", "max_abs_difference": 0.0}
    assert found["tokenizer"]["status"] == "fits"


def test_left_out_it_is_out_or_the_demo(
    nanogpt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = nanogpt("inspect")
    assert outcome.code == 0
    assert "using demo" in outcome.err
    save_trained(tmp_path / "out" / "ckpt.pt")
    outcome = nanogpt("inspect")
    assert "using out/ckpt.pt" in outcome.err
    assert lines(outcome)[0] == "out/ckpt.pt"


@pytest.mark.parametrize(
    ("vocab_size", "uniform", "flagged"), [(65, 4.1744, 4.1), (50257, 10.8249, 10.9)]
)
def test_a_barely_trained_model_is_flagged(
    nanogpt: Run, tmp_path: Path, vocab_size: int, uniform: float, flagged: float
) -> None:
    model = build(vocab_size=vocab_size)
    path = save_nanogpt(tmp_path / "ckpt.pt", model, best_val_loss=torch.tensor(flagged))
    outcome = nanogpt("inspect", path)
    assert f"ln(vocab_size) {uniform}" in "\n".join(lines(outcome))
    (line,) = (each for each in lines(outcome) if each.startswith("best_val_loss"))
    assert "UNTRAINED, within 5 %" in line
    assert "--stats, to see which weights moved" in outcome.out
    assert report(nanogpt, path)["training"]["loss"]["is_untrained"]
    save_nanogpt(path, model, best_val_loss=0.94 * uniform)
    assert "UNTRAINED" not in nanogpt("inspect", path).out


@pytest.mark.parametrize(
    ("prefix", "named"),
    [
        ("_orig_mod.", "_orig_mod."),
        ("module.", "module."),
        ("module._orig_mod.", "_orig_mod. module."),
    ],
)
def test_a_removed_prefix_is_named(nanogpt: Run, tmp_path: Path, prefix: str, named: str) -> None:
    model = build()
    state = {prefix + name: tensor for name, tensor in model.state_dict().items()}
    torch.save({**envelope(model), "model": state}, tmp_path / "ckpt.pt")
    outcome = nanogpt("inspect", tmp_path / "ckpt.pt")
    assert f"prefixes {named} removed from the stored names" in lines(outcome)


def test_what_fills_a_file(nanogpt: Run, tmp_path: Path) -> None:
    model = build()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for layer in range(2):
        state[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 16, 16).tril()
    torch.save({**envelope(model), "model": state}, tmp_path / "ckpt.pt")
    shown = "\n".join(lines(nanogpt("inspect", tmp_path / "ckpt.pt")))
    assert "head 1 6,240" in shown
    assert "a copy of wte" in shown
    assert "causal masks 2 2,048" in shown


def test_heads_by_flag(nanogpt: Run, tmp_path: Path) -> None:
    torch.save(build().state_dict(), tmp_path / "weights.pt")
    outcome = nanogpt("inspect", tmp_path / "weights.pt")
    assert "n_head unknown give --n-head N" in lines(outcome)
    assert '--n-head N --tokenizer ids --prompt "0", since nothing in' in outcome.out
    assert "n_head 3 a flag" in lines(nanogpt("inspect", tmp_path / "weights.pt", "--n-head", 3))


def test_a_tokenizer_that_is_missing_or_of_another_model(nanogpt: Run, tmp_path: Path) -> None:
    path = save_nanogpt(tmp_path / "ckpt.pt", build(vocab_size=300))
    outcome = nanogpt("inspect", path)
    assert outcome.code == 0
    assert "tokenizer none missing" in "\n".join(lines(outcome))
    save_meta(tmp_path)
    outcome = nanogpt("inspect", path)
    assert outcome.code == 0
    assert "tokenizer char misfit" in "\n".join(lines(outcome))


def test_a_hostile_table_beside_a_good_checkpoint(nanogpt: Run, tmp_path: Path) -> None:
    path = save_nanogpt(tmp_path / "ckpt.pt", build())
    mark = tmp_path / "sprung"
    command = f"touch {mark}".encode()
    hostile = b"cposix\nsystem\n(X" + len(command).to_bytes(4, "little") + command + b"tR."
    (tmp_path / "meta.pkl").write_bytes(hostile)
    outcome = nanogpt("inspect", path)
    assert outcome.code == 1
    assert "would call 'posix.system' (at byte 0 of meta.pkl)" in outcome.err
    assert "parameters" in outcome.out
    assert "posix.system refused 0" in lines(outcome)
    assert not mark.exists()


def test_names_and_settings_from_a_file_are_harmless(nanogpt: Run, tmp_path: Path) -> None:
    folder = tmp_path / "[red]x"
    path = save_nanogpt(
        folder / "ckpt.pt",
        build(),
        config={"dataset": HOSTILE_NAME, "init_from": HOSTILE_NAME},
        other={HOSTILE_NAME: torch.zeros(3)},
    )
    for args in ((), ("--tensors",), ("--tensors", "--tree"), ("--stats",), ("--check",)):
        outcome = nanogpt("inspect", path, *args)
        assert outcome.code == 0
        for text in (outcome.out, outcome.err):
            assert not {"\x1b", "\u202e"} & set(text)
        assert "[red]x" in outcome.out
    assert "evil[/b]\\x1b[31m\\u202e\\nname[bold]" in nanogpt("inspect", path).out
    assert "other.evil[/b]\\x1b[31m" in nanogpt("inspect", path, "--tensors").out


def test_a_missing_path_is_wrong_usage(nanogpt: Run, tmp_path: Path) -> None:
    outcome = nanogpt("inspect", tmp_path / "none.pt")
    assert (outcome.code, outcome.out) == (2, "")
    assert str(tmp_path / "none.pt") in outcome.err


@pytest.mark.parametrize("as_json", [True, False])
def test_nothing_heavy_is_imported_whatever_the_size(trained: Path, as_json: bool) -> None:
    args = [str(trained), *(["--json"] if as_json else [])]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *args], capture_output=True, text=True, check=True
    )
    code, heavy, peak = done.stderr.splitlines()[-1].split()
    assert (code, heavy) == ("0", "[]")
    assert int(peak) < 80_000  # KiB


def test_every_view_is_one_json_object(nanogpt: Run, trained: Path) -> None:
    schemas = {
        (): "nanogpt.inspect/1",
        ("--tensors",): "nanogpt.inspect-tensors/1",
        ("--stats",): "nanogpt.inspect-stats/1",
        ("--diff", str(trained)): "nanogpt.inspect-diff/1",
        ("--check",): "nanogpt.inspect-check/1",
    }
    for args, schema in schemas.items():
        outcome = nanogpt("inspect", trained, *args, "--json")
        assert json.loads(outcome.out)["schema"] == schema
        assert outcome.out.count("\n") == 1


@pytest.mark.real
def test_a_file_from_the_old_format(nanogpt: Run, zoo: Path) -> None:
    outcome = nanogpt("inspect", zoo / "hf-legacy-bin")
    assert outcome.code == 0
    assert "torch legacy file, as torch before 1.6 writes it" in outcome.out
    assert "causal masks 4 2,097,160" in "\n".join(lines(outcome))


def on_a_terminal(width: int, *args: object) -> str:
    """Return what a terminal of that width is sent."""
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    words = [sys.executable, "-m", "nanogpt_cli", "inspect", *map(str, args)]
    with subprocess.Popen(
        words, stdout=follower, stderr=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(follower)
        sent = b""
        with contextlib.suppress(OSError):  # how the end of a terminal is told
            while chunk := os.read(leader, 65536):
                sent += chunk
        assert process.wait() == 0
    os.close(leader)
    return sent.decode()


def test_a_terminal_gets_bold_and_lines_that_fit(trained: Path) -> None:
    for args in ((), ("--tensors",), ("--stats",), ("--check",)):
        sent = on_a_terminal(80, trained, *args)
        assert "\x1b[1m" in sent
        assert "\\x1b" not in sent
        shown = re.sub("\x1b\\[[0-9;]*m", "", sent).splitlines()
        assert max(map(len, shown)) <= 80


def test_numbers_are_whole_in_a_narrow_terminal(trained: Path) -> None:
    sent = on_a_terminal(70, trained, "--tensors")
    assert "6,912" in sent
    assert "…" not in sent


def training_lines(nanogpt: Run, folder: Path, **extra: Any) -> list[str]:
    return lines(nanogpt("inspect", save_nanogpt(folder / "ckpt.pt", build(), **extra)))


def test_curves_and_losses_in_words(nanogpt: Run, tmp_path: Path) -> None:
    constant = {"learning_rate": 0.5, "decay_lr": False}
    shown = training_lines(nanogpt, tmp_path, config=constant, best_val_loss=9.0)
    assert "learning rate 0.5 constant: decay_lr was off" in shown
    (loss,) = (line for line in shown if line.startswith("best_val_loss"))
    assert loss == (
        "best_val_loss 9.0000 WORSE THAN GUESSING; best or last: "
        "the file does not say whether always_save_checkpoint was on"
    )


def test_the_optimizers_rate_is_told_where_it_differs(nanogpt: Run, tmp_path: Path) -> None:
    path = save_trained(tmp_path / "ckpt.pt", rate=0.5)
    (line,) = (each for each in lines(nanogpt("inspect", path)) if each.startswith("learning"))
    assert line.endswith("; the optimizer itself says 0.5")
    assert "warmup, 30.0 % through: 0.001 after 10 iterations, 0.0001 from 100 on" in line


def test_a_folder_of_shards(nanogpt: Run, tmp_path: Path) -> None:
    state = {name: tensor.clone() for name, tensor in build().state_dict().items()}
    del state["lm_head.weight"]
    names = list(state)
    shards = {"model-1.safetensors": names[:9], "model-2.safetensors": names[9:]}
    for shard, keys in shards.items():
        save_file({key: state[key] for key in keys}, tmp_path / shard, {"format": "pt"})
    places = {key: shard for shard, keys in shards.items() for key in keys}
    index = {"weight_map": places}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    sizes = {"n_layer": 2, "n_head": 3, "n_embd": 24, "n_positions": 16, "vocab_size": 65}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    outcome = nanogpt("inspect", tmp_path)
    assert outcome.code == 0
    total = sum((tmp_path / shard).stat().st_size for shard in shards)
    assert f"({total:,} bytes), 2 files" in lines(outcome)[1]
    assert "n_embd 24 config.json" in lines(outcome)
    found = report(nanogpt, tmp_path)
    assert found["stored"]["file_bytes"] == total
    assert [Path(each["path"]).name for each in found["files"]] == sorted(shards)


def test_a_large_untied_head_is_left_to_stats(nanogpt: Run, tmp_path: Path) -> None:
    model = build(vocab_size=90_000)
    state = dict(model.state_dict())
    state["lm_head.weight"] = state["transformer.wte.weight"] + 0.5
    path = tmp_path / "ckpt.pt"
    torch.save({**envelope(model), "model": state}, path)
    shown = "\n".join(lines(nanogpt("inspect", path)))
    assert "head untied untied: head and wte differ; --stats measures by how much" in shown
    assert "head - wte 0.5" in "\n".join(lines(nanogpt("inspect", path, "--stats")))


def test_slices_that_drag_their_storage_along(nanogpt: Run, tmp_path: Path) -> None:
    state = dict(build().state_dict())
    state["transformer.wpe.weight"] = torch.zeros(160, 24)[:16]
    torch.save({**envelope(build()), "model": state}, tmp_path / "ckpt.pt")
    shown = "\n".join(lines(nanogpt("inspect", tmp_path / "ckpt.pt")))
    assert "unused 13,824 " in shown
    assert "in storages beyond their tensors: saved slices" in shown
