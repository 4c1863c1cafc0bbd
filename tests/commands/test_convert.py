"""`nanogpt convert` as its users type it: what it writes, refuses, keeps and says."""

from __future__ import annotations

import io
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from conftest import Run
from hub_server import HubServer, Repository, running_hub
from model_files import build, save_meta, save_nanogpt
from rich.console import Console

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.checkpoints.fingerprints import fingerprint
from nanogpt_cli.commands.convert import render
from nanogpt_cli.conversion import ConversionSettings, convert
from nanogpt_cli.model import GPT, GPTConfig

NANOGPT = [sys.executable, "-m", "nanogpt_cli"]


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """A checkpoint of 65 characters with its table, in a folder of its own."""
    save_meta(tmp_path / "in")
    return save_nanogpt(tmp_path / "in" / "ckpt.pt", build())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_model_goes_to_hugging_face_and_back_and_writes_the_same_text(
    nanogpt: Run, letters: Path, out: Path
) -> None:
    assert nanogpt("convert", letters, "-o", out / "hf").code == 0
    assert nanogpt("convert", out / "hf", "-o", out / "back.pt").code == 0
    assert names_in(out) == ["back.pt", "hf", "meta.pkl"]
    texts = [
        nanogpt("sample", source, "-p", "HELLO", "-m", 40, "-t", 0).out
        for source in (letters, out / "hf", out / "back.pt")
    ]
    assert texts[0] == texts[1] == texts[2]
    assert len(texts[0]) == 46


def test_the_report(nanogpt: Run, letters: Path, out: Path) -> None:
    result = nanogpt("convert", letters, "-o", out / "hf")
    lines = [line.rstrip() for line in result.out.splitlines()]
    labels = [line.split("  ")[0] for line in lines]
    assert labels == ["source", "output", "model", "weights", "tokenizer", "verified", "logits"]
    facts = dict(zip(labels, (line[11:] for line in lines), strict=True))
    size = letters.stat().st_size
    assert facts["source"] == f"{letters}: torch zip, version 3, {size / 1000:.1f} kB"
    assert facts["model"] == (
        "2 layers, 3 heads, 24 wide, block 16, vocab 65, biases, tied head, exact GELU"
    )
    assert facts["weights"] == "28 tensors in float32, 8 of them transposed"
    assert facts["tokenizer"] == "char: meta.pkl"
    assert facts["verified"] == "28 weights read back bit for bit"
    assert facts["logits"].startswith("transformers on the output, nanogpt's GPT on the source: ")
    assert "at 100 % of 16 positions" in facts["logits"]
    assert result.err == (
        "note: transformers has no tokenizer for a table of characters: meta.pkl goes along, "
        "and nanogpt reads it\n"
    )


def test_the_report_as_json(nanogpt: Run, letters: Path, out: Path) -> None:
    (row,) = nanogpt("convert", letters, "-o", out / "a.pt", "--json", "-q").rows
    assert (row["schema"], row["to"], row["dry_run"]) == ("nanogpt.convert/1", "nanogpt", False)
    assert (row["iter_num"], row["best_val_loss"], row["optimizer"]) == (250, 2.5, None)
    assert row["files"][0] == {
        "name": "a.pt",
        "size_bytes": (out / "a.pt").stat().st_size,
        "sha256": None,
    }
    assert row["verification"]["logits"]["largest_difference"] == 0.0
    assert row["output_bytes"] == sum(file["size_bytes"] for file in row["files"])
    assert row["tensors"][0]["name"] == "transformer.wte.weight"


def test_the_fingerprint_is_the_one_that_inspect_shows(
    nanogpt: Run, letters: Path, out: Path
) -> None:
    (row,) = nanogpt("convert", letters, "-o", out / "hf", "--json").rows
    expected = fingerprint(open_checkpoint(str(letters)).architecture)
    record = json.loads((out / "hf" / "conversion.json").read_text())
    assert row["fingerprint"] == record["fingerprint"] == expected
    (row,) = nanogpt("convert", letters, "-o", out / "a.pt", "--dtype", "float16", "--json").rows
    assert row["fingerprint"] == fingerprint(open_checkpoint(str(out / "a.pt")).architecture)
    assert row["fingerprint"] != expected


def test_a_dry_run_plans_everything_and_writes_nothing(
    nanogpt: Run, letters: Path, out: Path
) -> None:
    for name in ("hf", "a.pt", "a.safetensors"):
        (row,) = nanogpt("convert", letters, "-o", out / name, "--dry-run", "--json").rows
        assert names_in(out) == []
        nanogpt("convert", letters, "-o", out / name)
        written = [out / name] if (out / name).is_file() else list((out / name).iterdir())
        size = sum(path.stat().st_size for path in written if path.name != "conversion.json")
        assert row["output_bytes"] == size
        assert row["verification"] is None
        for path in written:
            path.unlink()
        for path in out.iterdir():
            path.rmdir() if path.is_dir() else path.unlink()


def test_render_fits_a_narrow_terminal(letters: Path, out: Path) -> None:
    report = convert(str(letters), out / "a.pt", ConversionSettings(to="nanogpt"))
    console = Console(width=60, file=io.StringIO())
    console.print(render(report))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= 60 for line in text.splitlines())
    assert "iter_num 250, best_val_loss 2.5, no optimizer" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "x.bin"], "the output's name 'x.bin' does not say its format"),
        ([], "no output was named"),
        (["-o", "a.pt", "--fresh-optimizer", "--weights-only"], "contradict each other"),
        (["-o", "a", "--fresh-optimizer"], "--fresh-optimizer has no place in the format 'hf'"),
        (["-o", "a.pt", "--n-head", 4], "--n-head 4 contradicts the file"),
        (["-o", "nowhere/a.pt"], "there is no folder 'nowhere'"),
        (["-o", "a.pt", "--tokenizer", "ids", "--trim-vocab"], "--trim-vocab needs a tokenizer"),
    ],
)
def test_wrong_usage_is_exit_2(
    nanogpt: Run,
    letters: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[object],
    message: str,
) -> None:
    monkeypatch.chdir(out)
    result = nanogpt("convert", letters, *words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert names_in(out) == []


def test_a_source_must_be_given(nanogpt: Run) -> None:
    assert nanogpt("convert", "-o", "a.pt").code == 2


def test_a_source_that_is_not_there(nanogpt: Run, out: Path) -> None:
    result = nanogpt("convert", out / "ckpt.pt", "-o", out / "a.pt")
    assert result.code == 2
    assert f"no such file or folder: {str(out / 'ckpt.pt')!r}" in result.err


@pytest.mark.parametrize("name", ["hf", "a.pt", "a.safetensors"])
def test_an_output_that_exists_needs_force(
    nanogpt: Run, letters: Path, out: Path, name: str
) -> None:
    nanogpt("convert", letters, "-o", out / name)
    path = out / name
    marker = path if path.is_file() else path / "model.safetensors"
    marker.write_bytes(b"before")
    result = nanogpt("convert", letters, "-o", path)
    assert (result.code, marker.read_bytes()) == (2, b"before")
    assert f"{str(path)!r} exists already" in result.err
    assert nanogpt("convert", letters, "-o", path, "--force").code == 0
    assert len(marker.read_bytes()) > 10_000


def test_the_source_is_never_the_output(nanogpt: Run, letters: Path, out: Path) -> None:
    nanogpt("convert", letters, "-o", out / "hf")
    (out / "link.pt").symlink_to(letters)
    before = letters.read_bytes()
    weights = (out / "hf" / "model.safetensors").read_bytes()
    for source, output, to in (
        (letters, letters, "nanogpt"),
        (letters, out / "link.pt", "nanogpt"),
        (letters.parent, letters, "nanogpt"),
        (letters, letters.parent, "hf"),
        (out / "hf", out / "hf", "hf"),
        (out / "hf", out / "hf" / "model.safetensors", "safetensors"),
    ):
        result = nanogpt("convert", source, "-o", output, "--to", to, "--force")
        assert (result.code, result.out) == (2, ""), (source, output)
    assert letters.read_bytes() == before
    assert (out / "hf" / "model.safetensors").read_bytes() == weights


def test_a_folder_that_is_no_models_is_not_replaced(nanogpt: Run, letters: Path, out: Path) -> None:
    (out / "notes").mkdir()
    (out / "notes" / "diary.txt").write_text("dear diary")
    result = nanogpt("convert", letters, "-o", out / "notes", "--force")
    assert result.code == 2
    assert (out / "notes" / "diary.txt").read_text() == "dear diary"


def test_a_refusal_is_exit_1_and_leaves_nothing(nanogpt: Run, out: Path) -> None:
    (out / "hf").mkdir()
    weights = {"wte.weight": torch.zeros(4, 4)}
    safetensors.torch.save_file(weights, out / "hf" / "model.safetensors")
    (out / "hf" / "config.json").write_text(json.dumps({"model_type": "gptj", "n_embd": 4}))
    result = nanogpt("convert", out / "hf", "-o", out / "a.pt")
    assert (result.code, result.out) == (1, "")
    assert "model_type 'gptj'" in result.err
    assert names_in(out) == ["hf"]


def test_no_verify_says_so(nanogpt: Run, letters: Path, out: Path) -> None:
    result = nanogpt("convert", letters, "-o", out / "hf", "--no-verify")
    assert "verified   no, by --no-verify" in result.out
    record = json.loads((out / "hf" / "conversion.json").read_text())
    assert record["verification"] is None


def test_underscores_are_accepted_where_nanogpt_users_type_them(
    nanogpt: Run, letters: Path, out: Path
) -> None:
    words = ["--activation", "gelu_tanh", "--weights_only"]
    result = nanogpt("convert", letters, "-o", out / "a.pt", *words)
    assert result.code == 0, result.err
    loaded = torch.load(out / "a.pt", weights_only=True)
    assert loaded["nanogpt_cli"] == {"activation": "gelu_tanh"}


def test_the_dtype_of_sampling_does_not_cast_a_conversion(
    nanogpt: Run, letters: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NANOGPT_DTYPE", "bfloat16")
    (row,) = nanogpt("convert", letters, "-o", out / "a.pt", "--json").rows
    assert row["model"]["dtypes"] == ["float32"]


def test_local_files_convert_without_a_network(
    nanogpt: Run, letters: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert nanogpt("convert", letters, "-o", out / "hf").code == 0
    assert nanogpt("convert", out / "hf", "-o", out / "a.safetensors").code == 0


def test_a_checkpoint_of_gpt2s_size_without_its_optimizer_is_a_third(
    nanogpt: Run, letters: Path, out: Path
) -> None:
    model = build()
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")
    model(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.long))[1].backward()
    optimizer.step()
    source = save_nanogpt(letters, model, optimizer=optimizer.state_dict())
    result = nanogpt("convert", source, "-o", out / "a.pt", "--weights-only")
    assert "left out   the optimizer" in result.out
    assert "no optimizer in the output: train.py's resume wants one" in result.err
    assert (out / "a.pt").stat().st_size < source.stat().st_size / 2.5
    texts = [nanogpt("sample", path, "-m", 20).out for path in (source, out / "a.pt")]
    assert texts[0] == texts[1]


@pytest.fixture
def server() -> Iterator[HubServer]:
    with running_hub() as started:
        yield started


def test_a_hub_model_by_its_name(server: HubServer, letters: Path, out: Path) -> None:
    """The real client, in a process of its own, from a server that speaks the hub's protocol."""
    convert(str(letters), out / "hf", ConversionSettings(to="hf"))
    files = {path.name: path.read_bytes() for path in (out / "hf").iterdir()}
    server.repositories["openai-community/gpt2"] = Repository(files)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment = {**kept, "HF_ENDPOINT": server.url, "HF_HOME": str(out / "home")}
    command = [*NANOGPT, "convert", "gpt2", "-o", "gpt2.pt", "--json"]
    done = subprocess.run(command, cwd=out, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["source"]["given"] == "gpt2"
    assert row["source"]["revision"] == "a" * 40
    file = torch.load(out / "gpt2.pt", weights_only=True)
    model = GPT(GPTConfig(**file["model_args"]))
    model.load_state_dict(file["model"])
    wte = build().transformer.wte.weight
    assert torch.equal(model.transformer.wte.weight, wte)
    copy = [*NANOGPT, "convert", "gpt2", "-o", "gpt2", "--to", "hf", "--offline", "--dry-run"]
    done = subprocess.run(copy, cwd=out, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, "a folder called as the hub's model is another thing"
    # The table of characters is no file of the hub's models, and so does not come along.
    assert row["tokenizer"] is None
    count = len(server.requests)
    again = [*command, "--force", "--offline", "--dry-run"]
    done = subprocess.run(again, cwd=out, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(server.requests) == count


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from nanogpt_cli.conversion import ConversionSettings, convert
import nanogpt_cli.conversion.verification

source, folder, name, to, times = sys.argv[1:]
settings, output = ConversionSettings(to=to), Path(folder, name)
random.seed(int(times))

def convert_in_child():
    child = os.fork()
    if child == 0:
        convert(source, output, settings, force=True)
        os._exit(0)
    return child

def state():
    paths = sorted(output.iterdir()) if output.is_dir() else [output]
    kept = [path for path in paths if path.name != "conversion.json"]
    return [(path.name, path.read_bytes()) for path in kept] if output.exists() else None

os.waitpid(convert_in_child(), 0)  # the first one is slower
start = time.monotonic()
os.waitpid(convert_in_child(), 0)
seconds, whole = time.monotonic() - start, state()
assert whole is not None
killed = 0
for _ in range(int(times)):
    child = convert_in_child()
    time.sleep(random.uniform(0, seconds))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    killed += os.WIFSIGNALED(status)
    assert state() in (None, whole), "neither absent nor whole"
os.waitpid(convert_in_child(), 0)
assert state() == whole
print(killed, sorted(os.listdir(folder)))
"""


@pytest.mark.parametrize(("name", "to"), [("hf", "hf"), ("a.pt", "nanogpt")])
def test_killed_at_any_moment_it_leaves_the_old_or_the_new_whole(
    letters: Path, out: Path, name: str, to: str
) -> None:
    before = letters.read_bytes()
    times = os.environ.get("KILL_TIMES", "4")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, letters, out, name, to, times],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    killed, left = done.stdout.strip().split(" ", 1)
    assert int(killed) > 0
    assert left == str(sorted([name] if to == "hf" else [name, "meta.pkl"]))
    assert letters.read_bytes() == before


def test_a_full_disk_is_one_clear_error(letters: Path, out: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    for name in ("hf", "a.pt"):
        done = subprocess.run(
            [*NANOGPT, "convert", letters, "-o", out / name],
            capture_output=True,
            text=True,
            preexec_fn=limit,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert f"error: cannot write {str(out / name)!r}" in done.stderr
        assert "Traceback" not in done.stderr
        assert names_in(out) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_folder_that_cannot_be_written_to(nanogpt: Run, letters: Path, out: Path) -> None:
    out.chmod(0o500)
    result = nanogpt("convert", letters, "-o", out / "a.pt")
    out.chmod(0o700)
    assert result.code == 1
    assert f"cannot write {str(out / 'a.pt')!r}" in result.err


def test_text_from_a_file_does_not_reach_the_terminal_raw(letters: Path, out: Path) -> None:
    report = convert(str(letters), out / "a.pt", ConversionSettings(to="nanogpt"))
    hostile: Any = replace(report, left_out=("the entry '\x1b[31m[bold]x[/bold]'",))
    console = Console(width=200, file=io.StringIO(), markup=False)
    console.print(render(hostile))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in shown
    assert "[bold]x[/bold]" in shown
