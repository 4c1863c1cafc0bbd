"""Batches that end too soon, and go on: by a kill, Ctrl-C, a reader that leaves, a full disk."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Run
from model_files import build, save_meta, save_nanogpt

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.cli import main
from nanogpt_cli.commands.sample import batch as sample_batch
from nanogpt_cli.commands.sample.batch_plan import BatchJob
from nanogpt_cli.generation.batch.prompts import Shard
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.steps.choose import StepChoice
from nanogpt_cli.generation.steps.library import find_compiler

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals, terminals and limits")
NANOGPT = [sys.executable, "-m", "nanogpt_cli", "sample", "--no-compile"]
PATIENCE_SECONDS = 120.0
MANY = 150
NEW_TOKENS = 8
PROMPTS = [
    {"prompt": "A"},
    {"prompt": "HELLO", "id": "é"},
    {"prompt": 5},
    {"prompt": "SOME LONGER PROMPT"},
    {"prompt": "B", "seed": 5},
]


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A character-level checkpoint of 65 characters with its meta.pkl."""
    folder = tmp_path_factory.mktemp("letters")
    save_meta(folder)
    return save_nanogpt(folder / "ckpt.pt", build())


@pytest.fixture
def few(tmp_path: Path) -> Path:
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    return path


@pytest.fixture(scope="module")
def many(letters: Path) -> Path:
    """Rows enough that some are made, and some are not, when a run is stopped."""
    path = letters.with_name("many.txt")
    path.write_text("".join(f"ROW {row} {'X' * (row % 23)}\n" for row in range(MANY)))
    return path


@pytest.fixture
def command(letters: Path, many: Path, tmp_path: Path) -> list[str]:
    options = ["--prompts", str(many), "-m", str(NEW_TOKENS), "--batch-size", "4"]
    return [*NANOGPT, str(letters), *options, "-o", str(tmp_path / "out")]


@pytest.fixture(scope="module")
def whole(letters: Path, many: Path) -> str:
    out = many.with_name("whole")
    options = ["--prompts", str(many), "-m", str(NEW_TOKENS), "-o", str(out)]
    assert main(["sample", "--no-compile", str(letters), *options]) == 0
    text = out.read_text()
    assert text.count("\n") == MANY
    return text


def start_and_wait_for_rows(command: list[str], path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.exists() or path.stat().st_size < 5_000:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return process


def test_a_file_cut_at_any_byte_of_its_last_two_rows_becomes_the_whole(
    letters: Path, few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = few.with_name("out")
    session = Session(open_checkpoint(str(letters)), choice=StepChoice(compile=False))
    settings = SampleSettings(max_new_tokens=1, num_samples=2)

    def run(*, resume: bool) -> None:
        job = BatchJob(str(few), out, None, resume, False, Shard())
        with pytest.raises(Exception, match="1 of 9 rows has an error"):
            sample_batch.run(job, session, settings)

    run(resume=False)
    whole = out.read_bytes()
    ends = [match.end() for match in re.finditer(b"\n", whole)]
    assert len(ends) == 9
    for size in [0, 1, ends[0], ends[3] + 5, *range(ends[-3], len(whole) + 1)]:
        os.truncate(out, size)
        run(resume=True)
        assert out.read_bytes() == whole
    assert "rows were missing" not in capsys.readouterr().err


def test_a_resumed_run_reports_the_errors_that_were_there(
    nanogpt: Run, letters: Path, few: Path
) -> None:
    out = few.with_name("out")
    words = ("sample", letters, "--no-compile", "--prompts", few, "-m", 4, "-o", out, "--resume")
    assert nanogpt(*words).code == 3
    whole = out.read_bytes()
    again = nanogpt(*words)
    assert (again.code, out.read_bytes()) == (3, whole)
    closing, error, _hint = again.err.splitlines()[-3:]
    assert closing == "0 rows after 5 that were there, 0 tokens, cpu, float32, seed 1337"
    assert error == "error: 1 of 5 rows has an error and no text"


def test_more_prompts_are_added_and_holes_are_filled_at_the_end(
    nanogpt: Run, letters: Path, few: Path
) -> None:
    out = few.with_name("out")
    words = ("sample", letters, "--no-compile", "--prompts", few, "-m", 4, "-o", out)
    whole = nanogpt(*words[:-2]).out.splitlines(keepends=True)
    lines = few.read_text().splitlines(keepends=True)
    few.write_text("".join(lines[:3]))
    nanogpt(*words)
    few.write_text("".join(lines))
    nanogpt(*words, "--resume")
    assert out.read_text() == "".join(whole)
    out.write_text("".join([whole[0], *whole[2:]]))
    result = nanogpt(*words, "--resume")
    assert out.read_text() == "".join([whole[0], *whole[2:], whole[1]])
    assert "note: rows were missing in the middle of the output" in result.err
    few.write_text(lines[0])
    result = nanogpt(*words, "--resume")
    assert "note: 4 rows of the output have no prompt any more" in result.err


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (["-m", 5], "max_new_tokens 4 then, 5 now"),
        (["-t", 1], "temperature 0.8 then, 1.0 now"),
        (["--dtype", "bfloat16"], "dtype 'float32' then, 'bfloat16' now"),
        (["--tokenizer", "ids"], "the weights or the tokenizer are not the same"),
        (["-s", 1], "row 0 is in"),
        (["--logprobs", 0], "has no log-probabilities"),
        (["--shard", "0/2"], "is row 1: no row of shard 0/2"),
    ],
    ids=str,
)
def test_other_settings_are_refused(
    nanogpt: Run, letters: Path, few: Path, options: list[object], changes: str
) -> None:
    out = few.with_name("out")
    words = ("sample", letters, "--no-compile", "--prompts", few, "-m", 4, "-o", out)
    nanogpt(*words)
    before = out.read_bytes()
    result = nanogpt(*words, *options, "--resume")
    assert (result.code, out.read_bytes()) == (2, before)
    assert changes in result.err


def test_resumed_rows_are_computed_as_those_that_were_there(
    nanogpt: Run, letters: Path, few: Path
) -> None:
    """Also where this run is long enough, or the step is there by now, to be compiled."""
    out, moved = few.with_name("out"), few.with_name("moved")
    words = ("sample", letters, "--prompts", few, "-m", 4, "-o")
    nanogpt(*words, out, "--no-compile")
    whole = out.read_text()
    lines = whole.splitlines(keepends=True)
    compiled = [line.replace('"step": "eager"', '"step": "compiled"') for line in lines]
    out.write_text(lines[0])
    nanogpt(*words, out, "--resume")
    assert out.read_text() == whole
    if find_compiler() is not None:
        moved.write_text(compiled[0])
        nanogpt(*words, moved, "--resume")
        steps = [json.loads(line)["step"] for line in moved.read_text().splitlines()]
        assert steps == ["compiled", "compiled", None, "compiled", "compiled"]


def test_resuming_waits_for_no_model(nanogpt: Run, letters: Path, few: Path) -> None:
    """What changes no text may change: the batch size, say, or where the output lies."""
    out = few.with_name("out")
    words = ("sample", letters, "--no-compile", "--prompts", few, "-m", 4, "-o")
    nanogpt(*words, out)
    moved = out.rename(out.with_name("moved"))
    before = moved.read_bytes()
    assert nanogpt(*words, moved, "--resume", "--batch-size", 1, "--threads", 1).code == 3
    assert moved.read_bytes() == before


@posix
def test_a_killed_run_goes_on_to_the_same_file(
    nanogpt: Run, command: list[str], whole: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start_and_wait_for_rows(command, out)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = out.read_text()
    assert whole.startswith(left)
    assert 1 < left.count("\n") < MANY
    assert nanogpt(*command[3:], "--force", "--resume").code == 2
    assert nanogpt(*command[3:], "--resume").code == 0
    assert out.read_text() == whole


@posix
def test_an_interrupted_run_says_how_to_go_on(
    nanogpt: Run, command: list[str], whole: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start_and_wait_for_rows(command, out)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert err.splitlines()[-2:] == [
        f"hint: add --resume to go on with {str(out)!r}",
        "interrupted",
    ]
    left = out.read_text()
    assert left.endswith("\n")
    assert whole.startswith(left)
    assert left.count("\n") < MANY
    assert nanogpt(*command[3:], "--resume").code == 0
    assert out.read_text() == whole


@posix
def test_two_runs_into_one_file_are_refused(
    nanogpt: Run, command: list[str], tmp_path: Path
) -> None:
    process = start_and_wait_for_rows(command, tmp_path / "out")
    result = nanogpt(*command[3:], "--resume")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert result.code == 1
    assert "another run is writing" in result.err


@posix
def test_a_reader_that_leaves_ends_the_run_quietly(command: list[str], whole: str) -> None:
    piped = [*command[:-2], "-q"]
    script = f"{' '.join(piped)} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == whole.splitlines(keepends=True)[0]


@posix
def test_a_full_disk_leaves_whole_rows_to_go_on_from(
    nanogpt: Run, command: list[str], whole: str, tmp_path: Path
) -> None:
    script = f"ulimit -f 40; trap '' XFSZ; exec {' '.join(command)}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, timeout=300
    )
    out = tmp_path / "out"
    assert done.returncode == 1
    *_, error, hint = done.stderr.splitlines()
    assert error == f"error: cannot write {str(out)!r}: file too large"
    assert hint == "hint: the rows in it are whole: make room, then add --resume for the rest"
    left = out.read_text()
    assert whole.startswith(left)
    assert 40_960 - 1_000 < len(left) < 40_960
    assert nanogpt(*command[3:], "--resume").code == 0
    assert out.read_text() == whole


@posix
def test_a_terminal_shows_how_far_it_is(command: list[str], whole: str, tmp_path: Path) -> None:
    from terminals import Terminal

    with Terminal(*command[3:], COLUMNS="100") as terminal:
        shown = terminal.wait_for(f"of {MANY} rows, ")
        shown += terminal.wait_for("rows/s, ")
        terminal.wait_for("tokens/s ")
        code, rest = terminal.close()
    assert code == 0
    assert f"{MANY} rows, {NEW_TOKENS * MANY:,} tokens, " in rest
    assert (tmp_path / "out").read_text() == whole


@posix
def test_rows_on_a_terminal_have_no_progress_between_them(
    letters: Path, few: Path, nanogpt: Run
) -> None:
    from terminals import Terminal

    words = ("sample", letters, "--no-compile", "--prompts", few, "-m", 4)
    with Terminal(*words, COLUMNS="100") as terminal:
        code, screen = terminal.close()
    assert code == 3
    assert [line for line in screen.split("\r\n") if line.startswith("{")] == (
        nanogpt(*words).out.splitlines()
    )
    assert "\x1b" not in screen
