"""What no command may mind in a file: whose device it was on, how much lies beside the weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import Run
from model_files import build, envelope, save_meta, save_nanogpt
from pickle_recipes import text
from torch_files import Members, changed

from nanogpt_cli.commands import COMMANDS

WORDS: dict[str, list[list[object]]] = {
    "sample": [["-m", 8], ["-m", 8, "--rng", "nanogpt"]],
    "params": [[]],
    "crop": [["--block-size", 8]],
    "convert": [["-o", "out.pt"], ["-o", "out.safetensors"], ["-o", "hf"]],
    "inspect": [[], ["--tensors"], ["--stats"], ["--check"], ["--prompt", "TO BE"]],
    "bench": [["--prompt-tokens", 4, "--new-tokens", 4, "--rounds", 1, "--batch-size", 1]],
}
"""Each command, and whatever of it opens a file in a way of its own."""

HEAP = """
import sys
from pathlib import Path
from nanogpt_cli.cli import main
codes = [main([command, sys.argv[1], "-q"]) for command in ("params", "inspect")]
status = Path("/proc/self/status").read_text()
peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
print(codes, peak, file=sys.stderr)
"""


def tag(path: Path, device: str) -> None:
    """Have every storage in a file say that it was on another device."""

    def retag(members: Members) -> None:
        (name,) = (name for name in members if name.endswith("data.pkl"))
        assert text("cpu") in members[name]
        members[name] = members[name].replace(text("cpu"), text(device))

    path.write_bytes(changed(path.read_bytes(), retag))


def test_all_of_them_are_here() -> None:
    """But for what takes no file."""
    assert set(WORDS) == {command.__name__ for command in COMMANDS} - {"doctor"}


@pytest.mark.parametrize("command", WORDS)
def test_tensors_of_a_gpu_need_none(
    nanogpt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    save_meta(tmp_path)
    path = save_nanogpt(tmp_path / "ckpt.pt", build())
    tag(path, "cuda:0")
    for words in WORDS[command]:
        result = nanogpt(command, path, *words)
        assert (result.code, "error" in result.err) == (0, False), result.err
    for written in [*tmp_path.glob("ckpt-8.pt"), *tmp_path.glob("out*"), *tmp_path.glob("hf")]:
        assert nanogpt("sample", written, "-m", 8).code == 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells VmHWM")
def test_moments_that_are_not_shown_are_not_read(tmp_path: Path) -> None:
    """120 MB of them, and neither command takes 80 MB, Python's own memory included."""
    save_meta(tmp_path)
    moments = {"state": {0: {"exp_avg": torch.zeros(30_000_000)}}, "param_groups": []}
    torch.save(envelope(build(), optimizer=moments), tmp_path / "ckpt.pt")
    words = [sys.executable, "-c", HEAP, str(tmp_path / "ckpt.pt")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    codes, peak = done.stderr.splitlines()[-1].rsplit(" ", 1)
    assert codes == "[0, 0]"
    assert int(peak) < 80_000
