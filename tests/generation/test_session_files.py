"""A checkpoint that training writes again while a session samples from it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from model_files import build, envelope

from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.errors import CheckpointError, NanoGPTError
from nanogpt_cli.generation.prompt import PromptText
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.steps.choose import StepChoice

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


def ids_of(session: Session) -> list[int | None]:
    prompt = session.encode(PromptText("1 2 3"))
    return [piece.id for piece in session.sample(prompt, SampleSettings(max_new_tokens=12))]


def opened(path: Path, notes: list[str]) -> Session:
    choice = StepChoice(None, False, None, None)
    checkpoint = open_checkpoint(str(path))
    return Session(checkpoint, tokenizer="ids", device="cpu", choice=choice, notify=notes.append)


def test_a_file_written_again_before_it_is_loaded_is_taken_as_it_now_is(tmp_path: Path) -> None:
    path, notes = tmp_path / "ckpt.pt", list[str]()
    torch.save(envelope(build(seed=1)), path)
    session = opened(path, notes)
    torch.save(envelope(build(seed=2), iter_num=7), path)
    ids = ids_of(session)
    assert ids == ids_of(opened(path, []))
    assert notes == ["the checkpoint was written again while it was read, and is now of iter_num 7"]


def test_a_save_that_is_not_over_is_waited_for(tmp_path: Path) -> None:
    path, notes = tmp_path / "ckpt.pt", list[str]()
    torch.save(envelope(build()), path)
    session, whole = opened(path, notes), path.read_bytes()
    path.write_bytes(whole[:4000])
    timer = threading.Timer(0.3, path.write_bytes, [whole])
    timer.start()
    assert len(ids_of(session)) == 12
    timer.join()
    assert len(notes) == 1


def test_another_model_in_its_place_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(envelope(build()), path)
    session = opened(path, [])
    torch.save(envelope(build(n_layer=1)), path)
    with pytest.raises(NanoGPTError, match="and holds another model now"):
        ids_of(session)


def test_what_was_said_of_the_weights_holds_them(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(envelope(build(seed=1)), path)
    session = opened(path, [])
    assert len(session.identity["weights"]) == 64
    torch.save(envelope(build(seed=2)), path)
    with pytest.raises(CheckpointError, match="was written again while it was read"):
        ids_of(session)
