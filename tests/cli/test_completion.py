"""Completion: what may come next, and real shells that ask."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from terminals import Terminal
from test_imports import HEAVY

from nanogpt_cli.commands import COMMANDS
from nanogpt_cli.inspection.behaviour import VIEWS

MODELS = ["demo", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2"]
PATHS = ["a.pt", "b.safetensors", "my models/", "out/", "pytorch_model.bin"]
"""Of the folder below: what a checkpoint can be, in order."""

Ask = Callable[..., list[str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with checkpoints and other files."""
    for name in (
        "out/ckpt.pt",
        "my models/c d.pth",
        ".hidden/x.pt",
        *PATHS[:2],
        PATHS[-1],
        "x.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ask(nanogpt: Run, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return a function that gives the candidates for the last of some words."""

    def offered(*words: str, shell: str = "1") -> list[str]:
        monkeypatch.setenv("_NANOGPT_COMPLETE", shell)
        got = nanogpt(*words)
        assert (got.code, got.err) == (0, "")
        return [line.split("\t")[0] for line in got.out.splitlines()]

    return offered


def test_commands(ask: Ask) -> None:
    assert ask() == [command.__name__ for command in COMMANDS] == ask("") == ask("-q", "")
    assert ask("c") == ["crop", "convert"]
    assert ask("nope", "") == []
    assert ask("zzz") == []
    assert ask("--show-completion", "") == ["bash", "zsh", "fish"]
    assert {"--help", "--version", "--quiet"} <= set(ask("--"))


def test_every_candidate_says_what_it_is(nanogpt: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_NANOGPT_COMPLETE", "1")
    assert nanogpt("sam").out == "sample\tContinue a prompt with a checkpoint's own words.\n"
    for command in COMMANDS:
        for line in nanogpt(command.__name__, "--").out.splitlines():
            assert line.partition("\t")[2], line


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("sample", "--max"), ["--max-new-tokens"]),
        (("sample", "--max_n"), ["--max-new-tokens"]),
        (("sample", "--stre"), ["--stream"]),
        (("sample", "--no-s"), ["--no-special", "--no-stream"]),
        (("sample", "--top-k", "5", "--top-"), ["--top-p"]),
        (("sample", "--stop", "a", "--sto"), ["--stop"]),
        (("sample", "--init"), []),
        (("sample", "--", "--top"), []),
        (("sample", "--conf"), ["--config"]),
    ],
)
def test_options(ask: Ask, words: tuple[str, ...], offered: list[str]) -> None:
    assert ask(*words) == offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("sample", "--dtype", ""), ["auto", "float32", "bfloat16", "float16"]),
        (("sample", "--dtype", "f"), ["float32", "float16"]),
        (("sample", "--dtype=f"), ["--dtype=float32", "--dtype=float16"]),
        (("sample", "--dtype", "=", "f"), ["float32", "float16"]),
        (("sample", "--dtype", "="), ["auto", "float32", "bfloat16", "float16"]),
        (("sample", "demo", "--quantize", ""), ["int8"]),
        (("sample", "--device", "c"), ["cpu", "cuda"]),
        (("inspect", "--view", ""), [view.name for view in VIEWS]),
        (("convert", "demo", "--to", "h"), ["hf"]),
        (("bench", "--dtype", "i"), ["int8"]),
        (("params", "--gpu", "H"), ["H100", "H200"]),
        (("params", "--rule", "n"), ["nanogpt", "non-embedding"]),
        (("sample", "--tokenizer", "i"), ["ids"]),
        (("sample", "--temperature", ""), []),
        (("sample", "-p", ""), []),
        (("sample", "-qp", ""), []),
    ],
)
def test_values(ask: Ask, words: tuple[str, ...], offered: list[str]) -> None:
    assert ask(*words) == offered


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("sample", ""), [*MODELS, *PATHS]),
        (("sample", "-q", "--top-k", "5", ""), [*MODELS, *PATHS]),
        (("sample", "-p", "x", ""), [*MODELS, *PATHS]),
        (("sample", "demo", ""), []),
        (("sample", "--top-k=5", "demo", ""), []),
        (("params", "demo", "gpt2-x"), ["gpt2-xl"]),
        (("crop", "o"), ["out/"]),
        (("convert", "out/"), ["out/ckpt.pt"]),
        (("convert", "./ou"), ["./out/"]),
        (("bench", "my mod"), ["my models/"]),
        (("bench", "my models/"), ["my models/c d.pth"]),
        (("inspect", "demo", "--diff", "b"), ["b.safetensors"]),
        (("inspect", "."), [".hidden/"]),
        (("sample", "gone/"), []),
        (("sample", "--meta", ""), [*PATHS, "x.txt"]),
        (("sample", "--prompts", "x"), ["x.txt"]),
        (("sample", "--config=x"), ["--config=x.txt"]),
        (("crop", "demo", "-o", "x"), ["x.txt"]),
        (("sample", "--", ""), [*MODELS, *PATHS]),
    ],
)
def test_paths_and_models(ask: Ask, words: tuple[str, ...], offered: list[str]) -> None:
    assert ask(*words) == offered


def test_a_home_is_kept_as_it_was_typed(
    ask: Ask, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert ask("sample", "~/o") == ["~/out/"]


def test_what_begins_like_no_path_offers_none(ask: Ask) -> None:
    assert ask("sample", "~nobody-of-this-name/") == []
    assert ask("sample", "a\0b/") == []


def test_weights_are_offered_however_their_ending_is_written(ask: Ask, folder: Path) -> None:
    (folder / "OLD.PT").touch()
    assert ask("sample", "OLD") == ["OLD.PT"]


def test_a_name_that_would_break_the_lines_is_not_offered(ask: Ask, folder: Path) -> None:
    (folder / "x\ny.pt").touch()
    (folder / "x\ty.pt").touch()
    assert ask("sample", "x") == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("typed", [r"my\ mo", "'my mo", '"my mo', "'my mo'"])
def test_bash_hands_words_over_with_their_quotes(ask: Ask, typed: str) -> None:
    assert ask("sample", typed, shell="bash") == ["my models/"]


def test_asking_imports_nothing_heavy(folder: Path) -> None:
    script = "import sys; from nanogpt_cli.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, "sample", ""],
        env={**os.environ, "_NANOGPT_COMPLETE": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    *lines, modules = done.stdout.splitlines()
    assert len(lines) == len(MODELS) + len(PATHS)
    names = {name.partition(".")[0] for name in modules.split()}
    assert names & (HEAVY | {"rich"}) == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_what_the_shell_can_read(nanogpt: Run, shell: str) -> None:
    got = nanogpt("--show-completion", shell)
    assert (got.code, got.err) == (0, "")
    head = got.out.splitlines()[:3]
    if shell == "zsh":
        assert head.pop(0) == "#compdef nanogpt"
    assert head[0] == f"# Completion of nanogpt for {shell}; to have it in every shell:"
    assert head[1].startswith(f"#   nanogpt --show-completion {shell} >")
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    subprocess.run([shell, "-n"], input=got.out.encode(), check=True, timeout=60)


# --- real shells


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a `nanogpt` of this installation on the path."""
    place = tmp_path_factory.mktemp("bin") / "nanogpt"
    place.write_text(f'#!/bin/sh\nexec {sys.executable} -m nanogpt_cli "$@"\n')
    place.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place.parent}{os.pathsep}{os.environ['PATH']}")


def shell_says(shell: str, *words: str) -> list[str]:
    """Return what a shell prints that runs a script."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    done = subprocess.run([shell, *words], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.usefixtures("program", "folder")
def test_bash_s_function() -> None:
    script = r"""
        source <(nanogpt --show-completion bash)
        try() {
            COMP_WORDS=("$@") COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _nanogpt_completion "$1"
            (IFS='|'; echo "${COMPREPLY[*]}")
        }
        try nanogpt cr
        try nanogpt sample gpt2-
        try nanogpt sample 'my\ mo'
        try nanogpt sample --dtype = fl
        try nanogpt sample nothing-begins-so
        complete -p nanogpt
    """
    assert shell_says("bash", "--norc", "-c", script) == [
        "crop",
        "gpt2-medium|gpt2-large|gpt2-xl",
        "my models",
        "float32|float16",
        "",
        "complete -o filenames -F _nanogpt_completion nanogpt",
    ]


@pytest.mark.usefixtures("program", "folder")
def test_fish() -> None:
    asked = ["cr", "sample gpt2-x", r"sample my\ mo", "sample --dtype=fl", "inspect --view le"]
    script = "nanogpt --show-completion fish | source\n"
    script += "\n".join(f"complete -C 'nanogpt {words}'" for words in asked)
    found = shell_says("fish", "--no-config", "-c", script)
    assert [line.split("\t")[0] for line in found] == [
        *("crop", "gpt2-xl", "my models/", "--dtype=float16", "--dtype=float32", "lens")
    ]


LINES = [
    ("cro\t", "crop"),
    ("sample distil\t", "sample distilgpt2"),
    ("sample ou\tck\t", "sample out/ckpt.pt"),
    ("sample my\t", "sample my models/"),
    ("inspect --vie\tle\t", "inspect --view lens"),
]
"""What is typed after `nanogpt `, Tab included, and what a shell takes the line for then."""


@pytest.fixture
def typist(program: None) -> Iterator[Callable[[str], Any]]:
    """Return a function that opens a shell on a terminal, which completes."""
    del program
    opened: list[Terminal] = []

    def start(shell: str) -> Terminal:
        if shutil.which(shell) is None:
            pytest.skip(f"no {shell} here")
        bare = {"bash": ("bash", "--norc", "--noprofile", "-i"), "zsh": ("zsh", "-f", "-i")}
        terminal = Terminal(program=bare[shell], TERM="dumb", PS1="$ ", INPUTRC="/dev/null")
        opened.append(terminal)
        terminal.wait_for("$ ")
        terminal.type(f"source <(nanogpt --show-completion {shell}); echo rea''dy\r")
        terminal.wait_for("ready\r\n")
        terminal.wait_for("$ ")
        return terminal

    yield start
    for terminal in opened:
        terminal.__exit__()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_tab_completes_what_is_typed(typist: Callable[[str], Terminal], shell: str) -> None:
    terminal = typist(shell)
    for keys, line in LINES:
        terminal.type(f"nanogpt {keys}\x01echo @\x05@\r")  # at the start and the end of the line
        terminal.wait_for(f"\n@nanogpt {line}")  # and a space, which zsh takes back
        terminal.wait_for("$ ")
