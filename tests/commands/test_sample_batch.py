"""`nanogpt sample --prompts` as its users type it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Outcome, Run
from model_files import build, save_meta, save_nanogpt

PROMPTS = ["A", "HELLO THERE, THIS IS LONGER", "B", "HELLO", "SOME MORE", "A", "?"]
# fmt: off
KEYS = [
    "schema", "id", "row", "index", "prompt", "text", "ids", "finish_reason", "seed", "device",
    "dtype", "step", "batch_invariant", "prompt_tokens", "new_tokens",
    "settings", "logprobs", "error",
]
# fmt: on

Batch = Callable[..., Outcome]


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """A character-level checkpoint of 65 characters with its meta.pkl."""
    save_meta(tmp_path)
    return save_nanogpt(tmp_path / "ckpt.pt", build())


@pytest.fixture
def batch(nanogpt: Run, letters: Path) -> Batch:
    """Return a function that samples a file of prompts with a small model."""

    def run(prompts: object, *options: object) -> Outcome:
        words = ("sample", letters, "--prompts", prompts, "-m", 6, "--no-compile")
        return nanogpt(*words, *options)

    return run


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(PROMPTS) + "\n")
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """JSON Lines with ids, seeds, and rows that are wrong in every way."""
    lines = [
        {"prompt": "A", "id": "first"},
        {"prompt": "a lower case letter"},
        {"prompt": "B", "seed": 5, "topic": "x"},
        {"text": "C"},
        {"prompt": ""},
        {"prompt": ["A"], "id": 7},
        {"prompt": "LAST\nROW"},
    ]
    path = tmp_path / "prompts.jsonl"
    text = [json.dumps(line) for line in lines]
    path.write_text("\n".join([*text[:4], "", "not JSON", *text[4:]]) + "\n")
    return path


def stdin_of(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))


def test_rows_are_those_of_each_prompt_alone(
    nanogpt: Run, letters: Path, batch: Batch, plain: Path
) -> None:
    """Whatever the batch size, on stdout and in a file."""
    result = batch(plain, "-n", 2)
    assert result.code == 0
    assert [list(row) for row in result.rows] == [KEYS] * 14
    assert [(row["row"], row["index"]) for row in result.rows] == [
        (row, index) for row in range(7) for index in range(2)
    ]
    for number, prompt in enumerate(PROMPTS):
        words = ("sample", letters, "-p", prompt, "-m", 6, "-n", 2, "--json", "--no-compile")
        expected = [{**row, "row": number, "error": None} for row in nanogpt(*words).rows]
        assert result.rows[2 * number : 2 * number + 2] == expected
    assert batch(plain, "-n", 2, "--batch-size", 1).out == result.out
    assert batch(plain, "-n", 2, "--batch-size", 3, "--json").out == result.out
    path = plain.with_name("out.jsonl")
    written = batch(plain, "-n", 2, "-o", path)
    assert (written.code, written.out, path.read_text()) == (0, "", result.out)


def test_the_last_line_says_how_it_went(batch: Batch, plain: Path) -> None:
    last = batch(plain).err.splitlines()[-1]
    assert last.startswith("7 rows, 42 tokens, ")
    assert last.endswith(" tokens/s, cpu, float32, seed 1337, finished by length 7")
    assert batch(plain, "-q").err == ""


def test_prompts_from_standard_input(
    batch: Batch, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = batch(plain).out
    stdin_of(monkeypatch, plain.read_bytes())
    assert batch("-").out == expected
    monkeypatch.setattr(sys, "stdin", None)
    result = batch("-")
    assert result.code == 1
    assert result.err.splitlines()[-2] == "error: cannot read prompts: standard input is closed"


def test_wrong_rows_are_rows_and_the_others_go_on(batch: Batch, mixed: Path) -> None:
    result = batch(mixed)
    assert result.code == 3
    assert [row["row"] for row in result.rows] == list(range(8))
    assert [list(row) for row in result.rows] == [KEYS] * 8
    assert [row["id"] for row in result.rows] == ["first", *[None] * 5, 7, None]
    errors = {row["row"]: row["error"] for row in result.rows if row["error"]}
    assert list(errors) == [1, 3, 4, 6]
    assert all(list(error) == ["message", "hint"] for error in errors.values())
    assert all(result.rows[number]["text"] is None for number in errors)
    assert errors[3]["message"] == "the object has no 'prompt'"
    assert errors[4]["message"] == "the line is no JSON: expecting value at column 1"
    assert errors[6]["message"] == "'prompt' is a list: it must be text"
    assert [result.rows[number]["seed"] for number in (0, 2)] == [1337, 5]
    assert result.rows[7]["prompt"] == "LAST\nROW"
    assert all(len(result.rows[number]["text"]) == 6 for number in (0, 2, 5, 7))
    assert (
        "note: rows are read for 'prompt', 'id' and 'seed' alone, and not for 'topic', 'text'"
        in (result.err.splitlines())
    )
    assert result.err.splitlines()[-2:] == [
        "error: 4 of 8 rows have an error and no text, the first is row 1: " + errors[1]["message"],
        "hint: each of them says under 'error' what was wrong, and what to do",
    ]


def test_an_id_outside_the_vocabulary_is_an_error_of_its_row(batch: Batch, tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("5 7\n5 65\nfive\n")
    result = batch(path, "--tokenizer", "ids")
    assert result.code == 3
    good, outside, word = result.rows
    assert good["text"] == " ".join(str(token) for token in good["ids"])
    assert outside["error"]["message"].startswith("the prompt holds id 65 ")
    assert word["error"]["message"] == "word 1 of the prompt, 'five', is no token id"


def test_a_file_of_nothing_gives_nothing(batch: Batch, tmp_path: Path) -> None:
    path, out = tmp_path / "none", tmp_path / "out"
    path.write_text("\n\n")
    result = batch(path, "-o", out)
    assert (result.code, out.read_bytes()) == (0, b"")
    assert result.err.splitlines()[-1] == "0 rows, 0 tokens, cpu, float32, seed 1337"


@pytest.mark.parametrize("count", [2, 3])
def test_shards_interleaved_are_the_whole(batch: Batch, mixed: Path, count: int) -> None:
    whole = batch(mixed, "-n", 2).out.splitlines()
    shards = [batch(mixed, "-n", 2, "--shard", f"{i}/{count}") for i in range(count)]
    assert {shard.code for shard in shards} <= {0, 3}
    lines = [line for shard in shards for line in shard.out.splitlines()]
    assert sorted(lines, key=lambda line: json.loads(line)["row"]) == whole


def test_launchers_say_the_shard_and_the_flag_wins(
    batch: Batch, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = batch(plain, "--shard", "1/3").out
    monkeypatch.setenv("RANK", "1")
    assert len(batch(plain).rows) == 7
    monkeypatch.setenv("WORLD_SIZE", "3")
    result = batch(plain)
    assert result.out == second
    assert "RANK and WORLD_SIZE are set: making the rows of shard 1/3 alone" in result.err
    assert [row["row"] for row in batch(plain, "--shard", "0/2").rows] == [0, 2, 4, 6]
    monkeypatch.setenv("RANK", "3")
    result = batch(plain)
    assert (result.code, result.out) == (2, "")
    assert "RANK=3 and WORLD_SIZE=3 in the environment name no shard" in result.err


def test_log_probabilities_need_no_json_flag(batch: Batch, plain: Path) -> None:
    rows = batch(plain, "--logprobs", 2).rows
    assert all(len(row["logprobs"]) == 6 for row in rows)
    assert all(len(score["top"]) == 2 for row in rows for score in row["logprobs"])


def test_prompts_that_are_cut_are_counted(batch: Batch, plain: Path) -> None:
    note = "note: 1 prompt has more than 16 tokens, and the model sees the last 16 of them"
    assert note in batch(plain).err.splitlines()


def test_a_model_that_diverged_ends_the_run_and_leaves_the_rows(
    letters: Path, plain: Path, batch: Batch
) -> None:
    model = build()
    with torch.no_grad():
        model.transformer.wpe.weight[12:] = float("nan")
    save_nanogpt(letters, model)
    out = plain.with_name("out.jsonl")
    result = batch(plain, "-o", out, "--batch-size", 1)
    assert result.code == 1
    assert "logits are not finite" in result.err
    (row,) = (json.loads(line) for line in out.read_text().splitlines())
    assert (row["row"], row["prompt"], row["new_tokens"]) == (0, "A", 6)
    assert batch(plain, "-o", out, "--resume").code == 1
    assert len(out.read_text().splitlines()) == 1


WRONG: list[tuple[list[Any], str]] = [
    (["--prompt", "A"], "--prompt and --prompts are two ways to say what to continue"),
    (["--rng", "nanogpt"], "--rng nanogpt draws all samples from one stream"),
    (["-i"], "--interactive asks for one prompt after another"),
    (["--color", "prob"], "--color prob is for text, and --prompts writes rows"),
    (["--batch-size", 0], "--batch-size 0: it must be at least 1"),
    (["--resume"], "--resume goes on with a file"),
    (["--resume", "--force", "-o", "x"], "--resume keeps what is in the output"),
    (["--shard", "2/2"], "shard 2/2: shards are numbered from 0"),
    (["--shard", "half"], "--shard 'half': it must be two numbers, I/N"),
    (["-o", "nowhere/x"], "cannot write 'nowhere/x': there is no folder 'nowhere'"),
    (["-o", "."], "the output '.' is a folder, and a file is to be written"),
    (["-o", "/dev/null"], "the output '/dev/null' is no regular file"),
]


@pytest.mark.parametrize(("options", "found"), WRONG, ids=lambda value: str(value)[:30])
def test_options_that_make_no_sense_together(
    batch: Batch, plain: Path, options: list[Any], found: str
) -> None:
    result = batch(plain, *options)
    assert (result.code, result.out) == (2, "")
    assert f"error: {found}" in result.err


@pytest.mark.parametrize(
    "options", [["-o", "x"], ["--batch-size", 4], ["--resume"], ["--force"], ["--shard", "0/2"]]
)
def test_options_of_a_batch_alone(
    nanogpt: Run, letters: Path, tmp_path: Path, options: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = nanogpt("sample", letters, "-p", "A", *options)
    assert (result.code, result.out) == (2, "")
    assert "--prompts, which is not given" in result.err
    assert not Path("x").exists()


def test_prompts_that_are_not_there(batch: Batch, tmp_path: Path) -> None:
    missing = batch(tmp_path / "none")
    assert missing.code == 2
    assert f"error: no file of prompts at {str(tmp_path / 'none')!r}" in missing.err
    folder = batch(tmp_path)
    assert folder.code == 2
    assert f"error: {str(tmp_path)!r} is a folder" in folder.err


def test_prompts_that_could_be_either(batch: Batch, tmp_path: Path) -> None:
    path, out = tmp_path / "p", tmp_path / "out"
    path.write_text('{"text": "A"}\n')
    result = batch(path, "-o", out)
    assert result.code == 2
    assert f"the first line of {str(path)!r} is JSON without a 'prompt'" in result.err
    assert not out.exists()


def test_an_output_is_kept_unless_told_otherwise(batch: Batch, plain: Path) -> None:
    out = plain.with_name("out")
    out.write_text("precious")
    for options in ([], ["--resume"]):
        result = batch(plain, "-o", out, *options)
        assert (result.code, out.read_text()) == (2, "precious")
    assert "hint: --resume writes what it lacks, --force replaces it" in batch(plain, "-o", out).err
    assert batch(plain, "-o", out, "--force").code == 0
    assert out.read_text() == batch(plain).out
    out.write_text("")
    assert batch(plain, "-o", out).code == 0


@pytest.mark.parametrize("options", [["--force"], ["--resume"], []])
def test_an_output_that_is_an_input_is_refused(
    batch: Batch, letters: Path, plain: Path, options: list[str]
) -> None:
    link = plain.with_name("link")
    link.hardlink_to(plain)
    for path in (plain, link, letters):
        before = path.read_bytes()
        result = batch(plain, "-o", path, *options)
        assert (result.code, path.read_bytes()) == (2, before)
