"""A crop that is killed at any moment: the output is absent or whole, the input untouched."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from model_files import build, save_nanogpt

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.surgery import crop

KILLS = 8
"""Each is a moment drawn anew from the time that a whole crop takes."""


def make_file(folder: Path) -> Path:
    ballast = {"ballast": torch.arange(4_000_000, dtype=torch.float32)}
    return save_nanogpt(folder / "ckpt.pt", build(), **ballast)


def make_folder(folder: Path) -> Path:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: Any = {"n_layer": 2, "n_head": 2, "n_embd": 128, "vocab_size": 20_000}
    model = GPT2LMHeadModel(GPT2Config(**sizes, n_positions=64))
    model.save_pretrained(folder / "model", max_shard_size="4MB")
    return folder / "model"


def digest(path: Path) -> str:
    """Return a hash of a file, or of all files of a folder."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    whole = b"".join(file.name.encode() + file.read_bytes() for file in files)
    return hashlib.sha256(whole).hexdigest()


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def run(source: Path, *, force: bool = False) -> Path:
    report = crop(open_checkpoint(str(source)), 8, verify=False, force=force)
    return Path(report.output)


def run_and_kill(source: Path, after_seconds: float) -> bool:
    """Crop in a child that is killed; return whether it was still at work."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork of a process with threads: the child uses none
        child = os.fork()
    if child == 0:
        try:
            os.write(write_end, b"!")
            run(source, force=True)
        finally:
            os._exit(0)
    os.read(read_end, 1)
    time.sleep(after_seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(read_end)
    os.close(write_end)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("make", [make_file, make_folder])
@pytest.mark.parametrize("exists", [False, True])
def test_a_crop_killed_at_any_moment(
    tmp_path: Path, make: Callable[[Path], Path], exists: bool
) -> None:
    source = make(tmp_path)
    before = digest(source)
    start = time.perf_counter()
    target = run(source)
    seconds = time.perf_counter() - start
    whole, moments = digest(target), random.Random(7)
    killed = 0
    for _ in range(KILLS):
        if not exists:
            remove(target)
        killed += run_and_kill(source, moments.uniform(0, seconds))
        assert digest(source) == before
        if target.exists():
            assert digest(target) == whole
    assert killed > 0
    run(source, force=True)
    assert digest(target) == whole
    assert {path.name for path in tmp_path.iterdir()} == {source.name, target.name}
