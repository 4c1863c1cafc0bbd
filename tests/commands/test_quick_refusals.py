"""A command line that is wrong is refused before torch, which takes more than a second, is there.

All of them run in one process, in which an import of torch ends the command.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from model_files import build, save_meta, save_nanogpt

from nanogpt_cli.commands import COMMANDS

SPY = """
import contextlib, io, json, sys
class Reached(BaseException): pass
class Spy:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "transformers", "numpy"):
            raise Reached(name)
sys.meta_path.insert(0, Spy())
from nanogpt_cli.cli import main
told = []
for words in json.loads(sys.argv[1]):
    sys.stdin, errors = None, io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        try:
            code = main(words)
        except Reached as heavy:
            code = f"{heavy} was imported"
    told.append([code, errors.getvalue()])
print(json.dumps(told))
"""

LINES: dict[str, tuple[int, str]] = {
    "sample none.pt": (2, "no such file or folder"),
    "sample ckpt.pt --device gpu": (2, "unknown device 'gpu'"),
    "sample ckpt.pt --threads 0": (2, "--threads 0: it must be 1 to 1024"),
    "sample ckpt.pt --tokenizer none": (2, "nothing that --tokenizer can read lies at"),
    "sample ckpt.pt --meta none.pkl": (2, "nothing that --meta can read lies at"),
    "sample ckpt.pt --prompt FILE:none.txt": (2, "no prompt file at"),
    "sample ckpt.pt --prompt ö": (2, "1 character of the prompt"),
    "sample ckpt.pt --rng nanogpt --quantize int8": (2, "--rng nanogpt is sample.py's own loop"),
    "sample ckpt.pt --prompts none.txt": (2, "no file of prompts at"),
    "sample ckpt.pt --prompts .": (2, "'.' is a folder"),
    "sample ckpt.pt --prompts odd.jsonl": (2, "the first line of 'odd.jsonl'"),
    "sample ckpt.pt --prompts text -o there": (2, "'there' exists already"),
    "sample ckpt.pt --top-p 2": (2, "--top-p 2: it must be above 0 and at most 1"),
    "params none.pt": (2, "no such file or folder"),
    "params gpt2 --gpus 0": (2, "the number of GPUs is 0"),
    "crop ckpt.pt --block-size 0": (2, "block_size is 0"),
    "crop ckpt.pt --block-size 99": (2, "cannot grow block_size from 16 to 99"),
    "crop ckpt.pt --block-size 8 -o there": (2, "'there' exists already"),
    "crop ckpt.pt --block-size 8 -o ckpt.pt": (2, "the output 'ckpt.pt' is the input"),
    "crop demo --block-size 8 -o no/x.pt": (2, "cannot write 'no/x.pt': there is no folder"),
    "crop none.pt --block-size 8": (2, "no such file or folder"),
    "convert demo": (2, "no output was named"),
    "convert demo -o x.foo": (2, "the output's name 'x.foo' does not say its format"),
    "convert demo -o there --to nanogpt": (2, "'there' exists already"),
    "convert ckpt.pt -o ckpt.pt": (2, "the output 'ckpt.pt' is the input"),
    "convert demo -o x.pt --fresh-optimizer --weights-only": (2, "--fresh-optimizer and"),
    "convert demo -o x.pt --meta none.pkl": (2, "nothing that --meta can read lies at"),
    "convert ckpt.pt -o x.pt --trim-vocab --tokenizer ids": (2, "--trim-vocab needs a tokenizer"),
    "convert none.pt -o x.pt": (2, "no such file or folder"),
    "convert text -o x.pt": (1, "'text' is not a PyTorch checkpoint"),
    "inspect ckpt.pt -p A --html there": (2, "'there' exists already"),
    "inspect ckpt.pt -p A --html ckpt.pt": (2, "the output 'ckpt.pt' is the input"),
    "inspect ckpt.pt -p A --save there.npz": (2, "'there.npz' exists already"),
    "inspect ckpt.pt -p A --save x.txt": (2, "--save 'x.txt': the name must end in"),
    "inspect ckpt.pt -p A --view none": (2, "no view is named 'none'"),
    "inspect ckpt.pt -p A --top 0": (2, "--top 0: a table has at least 1 row"),
    "inspect ckpt.pt -p A --track AB": (2, "'AB' is 2 tokens"),
    "inspect ckpt.pt -p A --view attention --head 1": (2, "--head without a layer"),
    "inspect ckpt.pt -p A --view attention --layer 9": (2, "no layer 9: the model's 2 layers"),
    "inspect ckpt.pt -p A --view surprisal --stride 17": (2, "--stride 17: it must be 1 to"),
    "inspect ckpt.pt -p A --view contributions --position 1": (2, "no position 1: the 1 token is"),
    "inspect ckpt.pt -p FILE:none.bin": (2, "no token file at"),
    "inspect ckpt.pt --stats --filter none": (2, "no tensor's name matches 'none'"),
    "inspect ckpt.pt --check --tokenizer none": (2, "nothing that --tokenizer can read lies at"),
    "inspect ckpt.pt --diff none.pt": (2, "no such file or folder"),
    "inspect ckpt.pt --device gpu": (2, "unknown device 'gpu'"),
    "bench none.pt": (2, "no such file or folder"),
    "bench ckpt.pt --dtype int4": (2, "unknown dtype 'int4'"),
    "bench ckpt.pt --rounds 0": (2, "--rounds 0: it must be at least 1"),
    "bench ckpt.pt --new-tokens 99": (2, "8 prompt tokens and 99 new ones are more than"),
    "bench ckpt.pt --device gpu": (2, "unknown device 'gpu'"),
    "doctor now": (2, "got unexpected extra argument"),
}
"""Command lines, the exit code of each, and how its error begins."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, list[str]]]:
    """Run every line in a folder that holds what they name; the code and stderr of each."""
    folder = tmp_path_factory.mktemp("quick")
    save_nanogpt(folder / "ckpt.pt", build(bias=False))
    save_meta(folder)
    files = {"odd.jsonl": '{"text": "A"}\n', "text": "A\n", "there": "A\n", "there.npz": "A\n"}
    for name, content in files.items():
        (folder / name).write_text(content)
    done = subprocess.run(
        [sys.executable, "-c", SPY, json.dumps([shlex.split(line) for line in LINES])],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=folder,
    )
    outcomes = json.loads(done.stdout)
    assert sorted(path.name for path in folder.iterdir()) == sorted(["ckpt.pt", "meta.pkl", *files])
    return {
        line: (code, err.splitlines()) for line, (code, err) in zip(LINES, outcomes, strict=True)
    }


@pytest.mark.parametrize("line", LINES)
def test_what_is_wrong_is_told_at_once_and_with_a_hint(
    told: dict[str, tuple[int, list[str]]], line: str
) -> None:
    code, message = LINES[line]
    given, err = told[line]
    assert given == code, err
    assert err[-2].startswith(f"error: {message}")
    assert err[-1].startswith("hint: ")


def test_every_command_has_a_wrong_line() -> None:
    assert {line.split()[0] for line in LINES} == {command.__name__ for command in COMMANDS}


def test_the_spy_sees_torch(tmp_path: Path) -> None:
    words = ["sample", "demo", "-m", "1", "--prompt", "A"]
    done = subprocess.run(
        [sys.executable, "-c", SPY, json.dumps([words])],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    )
    assert json.loads(done.stdout)[0][0] == "torch was imported"
