"""A checkpoint that training writes again while a session samples from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from model_files import build, envelope

from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.errors import CheckpointError

# In a process of its own: at a page that its file has lost, a process ends with a bus error.
SAMPLES = """
import sys
from pathlib import Path
from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.generation.prompt import PromptText
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.steps.choose import StepChoice

path, step = Path(sys.argv[1]), sys.argv[2]
whole = path.read_bytes()
settings = SampleSettings(max_new_tokens=12)

def write(content):  # in place, as torch.save does
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(content)

for kind in ("float32", "float16", "bfloat16", "int8"):
    write(whole)
    is_int8 = kind == "int8"
    session = Session(
        open_checkpoint(str(path)),
        tokenizer="ids",
        device="cpu",
        dtype="float32" if is_int8 else kind,
        choice=StepChoice("int8" if is_int8 else None, step == "compiled", None, None),
    )
    prompt = session.encode(PromptText("1 2 3"))
    texts = []
    for content in (whole, bytes(len(whole)), b""):
        if texts:
            write(content)
        texts.append([piece.id for piece in session.sample(prompt, settings)])
    assert texts[0] == texts[1] == texts[2], (kind, texts)
    assert (session.engine.step.name, len(texts[0])) == (step, 12)
print("all the same")
"""


@pytest.mark.parametrize("step", ["compiled", "eager"])
def test_what_is_loaded_stays_whatever_becomes_of_the_file(step: str, tmp_path: Path) -> None:
    torch.save(envelope(build(n_embd=64, n_head=4, vocab_size=500)), tmp_path / "ckpt.pt")
    done = subprocess.run(
        [sys.executable, "-c", SAMPLES, str(tmp_path / "ckpt.pt"), step],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "all the same\n"), done.stderr


@pytest.mark.parametrize("mapped", [True, False])
def test_a_file_written_again_before_its_weights_were_read_is_refused(
    mapped: bool, tmp_path: Path
) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(envelope(build()), path)
    checkpoint = open_checkpoint(str(path))
    load_model(checkpoint, mapped=mapped)
    torch.save(envelope(build()), path)
    with pytest.raises(CheckpointError, match=r"was written again while it was read") as caught:
        load_model(checkpoint, mapped=mapped)
    assert caught.value.hint == "run the command again, once it is whole"
