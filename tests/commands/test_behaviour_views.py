"""`nanogpt inspect --prompt` as people and scripts use it.

CASES: which file on stderr (16), markup (25), ids beyond the vocabulary (56), untrained models
told (71), one row a token with visible labels (126), one-token texts (129).
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Outcome, Run
from model_files import ALPHABET, build, save_meta, save_nanogpt
from safetensors import safe_open
from safetensors.numpy import load_file

from nanogpt_cli.inspection.behaviour import VIEWS

OURS = ("next", "surprisal", "lens", "activations")
TEXT = "TO BE, OR NOT"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a small model over capital letters and its table."""
    save_nanogpt(tmp_path / "ckpt.pt", build())
    save_meta(tmp_path)
    return tmp_path


def look(nanogpt: Run, folder: Path, *args: object) -> Outcome:
    return nanogpt("inspect", folder, *args)


def only(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    (row,) = outcome.rows
    return row


def test_the_views_have_names_and_order() -> None:
    assert [view.name for view in VIEWS] == [
        "next",
        "surprisal",
        "lens",
        "attention",
        "contributions",
        "activations",
        "ablation",
    ]


@pytest.mark.parametrize("view", OURS)
def test_json_names_its_schema_and_holds_numbers(nanogpt: Run, folder: Path, view: str) -> None:
    report = only(look(nanogpt, folder, "-p", TEXT, "--view", view, "--json"))
    assert report["schema"] == f"nanogpt.inspect.{view}/1"
    assert report["prompt"] == TEXT
    assert report["checkpoint"] == f"{folder / 'ckpt.pt'}, iter_num 250, best_val_loss 2.5000"
    assert "bulk" not in report
    assert "rerun" not in report


@pytest.mark.parametrize("view", OURS)
def test_a_table_is_drawn_and_stderr_names_the_file(nanogpt: Run, folder: Path, view: str) -> None:
    outcome = look(nanogpt, folder, "-p", TEXT, "--view", view)
    assert outcome.code == 0
    assert str(folder / "ckpt.pt") in outcome.out
    assert outcome.err == (
        f"note: inspecting {folder / 'ckpt.pt'}, iter_num 250, best_val_loss 2.5000\n"
    )


def test_weights_that_are_rounded_are_told(nanogpt: Run, folder: Path) -> None:
    told = "note: the weights are rounded to bfloat16, the arithmetic is float32\n"
    assert told in look(nanogpt, folder, "-p", TEXT, "--dtype", "bfloat16").err
    assert "are rounded" not in look(nanogpt, folder, "-p", TEXT).err


def test_a_terminal_shows_the_checkpoint_once(
    nanogpt: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    outcome = look(nanogpt, folder, "-p", TEXT)
    assert outcome.err == ""
    assert "best_val_loss 2.5000" in outcome.out
    assert "inspecting" in look(nanogpt, folder, "-p", TEXT, "--json").err


def test_next_is_the_view_when_none_is_named(nanogpt: Run, folder: Path) -> None:
    bare = only(look(nanogpt, folder, "-p", TEXT, "--json"))
    assert bare == only(look(nanogpt, folder, "-p", TEXT, "--json", "--view", "next"))
    assert [token["rank"] for token in bare["tokens"]] == list(range(1, 11))
    first = bare["tokens"][0]
    assert list(first) == [
        *("id", "text", "bytes", "label", "logit", "logprob", "probability", "cumulative", "rank")
    ]
    assert first["text"] == ALPHABET[first["id"]]
    assert first["bytes"] == [ord(first["text"])]


def test_next_takes_the_rows_and_a_token_to_follow(nanogpt: Run, folder: Path) -> None:
    whole = only(look(nanogpt, folder, "-p", TEXT, "--top", 65, "--json"))
    worst = whole["tokens"][-1]
    outcome = look(nanogpt, folder, "-p", TEXT, "--top", 2, "--track", worst["text"])
    rows = [line.split() for line in outcome.out.splitlines() if line[:1] == " "]
    assert [row[0] for row in rows[-3:]] == ["1", "2", "65"]
    report = only(look(nanogpt, folder, "-p", TEXT, "--track", worst["text"], "--json"))
    assert report["tracked"] == worst


def test_brackets_and_controls_are_shown_as_they_are(nanogpt: Run, tmp_path: Path) -> None:
    save_nanogpt(tmp_path / "ckpt.pt", build(vocab_size=16))
    save_meta(tmp_path, "\n\x1b\t []/\\abcdefgh")
    outcome = nanogpt("inspect", tmp_path, "-p", "[a]\x1b[/b] [d]\\\n", "--view", "surprisal")
    rows = [line.split() for line in outcome.out.splitlines() if line[:1] == " "]
    assert [row[1] for row in rows] == [
        *("[", "a", "]", "\\x1b", "[", "/", "b", "]", "␣", "[", "d", "]", "\\\\", "\\n")
    ]
    assert "\x1b" not in outcome.out
    for view in ("next", "lens", "activations"):
        drawn = nanogpt("inspect", tmp_path, "-p", "[a]\x1b[/b]", "--view", view)
        assert drawn.code == 0
        assert "\x1b" not in drawn.out


def test_sums_over_a_text(nanogpt: Run, folder: Path) -> None:
    outcome = look(nanogpt, folder, "-p", TEXT * 5, "--view", "surprisal", "--stride", 5)
    report = only(
        look(nanogpt, folder, "-p", TEXT * 5, "--view", "surprisal", "--stride", 5, "--json")
    )
    assert report["protocol"] == "sliding, stride 5"
    assert (report["prompt_tokens"], report["scored_tokens"]) == (65, 64)
    assert report["tokens"][0]["bits"] is None
    assert f"{report['loss']:.5f}  nats a token" in outcome.out
    assert "sliding, stride 5: 11 windows of at most 16 tokens" in outcome.out
    assert f"{report['perplexity']:.4f}" in outcome.out
    assert "the 20 most surprising of 65 tokens" in outcome.out


def test_windows_side_by_side_say_what_they_leave_out(nanogpt: Run, folder: Path) -> None:
    outcome = look(nanogpt, folder, "-p", TEXT * 5, "--view", "surprisal", "--stride", 16)
    assert "disjoint windows: 4 windows of at most 16 tokens" in outcome.out
    outcome = look(nanogpt, folder, "-p", "A" * 60, "--view", "surprisal", "--stride", 16)
    assert "of 60 tokens: not the first, nor the 11 after the last whole window" in outcome.out


def test_a_long_prompt_is_cut_with_a_note_but_for_surprisal(nanogpt: Run, folder: Path) -> None:
    told = "note: the prompt has 26 tokens and the model sees the last 16 of them\n"
    for view in ("next", "lens", "activations"):
        outcome = look(nanogpt, folder, "-p", TEXT * 2, "--view", view, "--json")
        assert told in outcome.err
        assert only(outcome)["dropped_tokens"] == 10
    outcome = look(nanogpt, folder, "-p", TEXT * 2, "--view", "surprisal", "--json")
    assert told not in outcome.err
    assert only(outcome)["scored_tokens"] == 25


def test_a_prompt_may_be_a_file_or_empty(nanogpt: Run, folder: Path) -> None:
    (folder / "text.txt").write_text(TEXT)
    from_file = look(nanogpt, folder, "-p", f"FILE:{folder / 'text.txt'}", "--json")
    assert only(from_file) == only(look(nanogpt, folder, "-p", TEXT, "--json"))
    empty = only(look(nanogpt, folder, "-p", "", "--view", "lens", "--json"))
    assert [token["label"] for token in empty["tokens"]] == ["\\n"]
    assert look(nanogpt, folder, "-p", f"FILE:{folder / 'none.txt'}").code == 2


def test_standard_input_is_a_prompt(
    nanogpt: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "text.txt").write_text(TEXT)
    with (folder / "text.txt").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        piped = only(look(nanogpt, folder, "-p", "-", "--json"))
    assert piped["prompt"] == TEXT


def test_one_token_has_no_surprisal(nanogpt: Run, folder: Path) -> None:
    for prompt in ("A", ""):
        outcome = look(nanogpt, folder, "-p", prompt, "--view", "surprisal")
        assert outcome.code == 2
        assert outcome.out == ""
        assert "error: the text is one token" in outcome.err


def write_tokens(path: Path, ids: list[int]) -> Path:
    path.write_bytes(struct.pack(f"<{len(ids)}H", *ids))
    return path


def test_a_token_file_is_a_text(nanogpt: Run, folder: Path) -> None:
    ids = [ALPHABET.index(char) for char in TEXT * 3]
    tokens = write_tokens(folder / "val.bin", ids)
    of_file = only(look(nanogpt, folder, "-p", f"FILE:{tokens}", "--view", "surprisal", "--json"))
    of_text = only(look(nanogpt, folder, "-p", TEXT * 3, "--view", "surprisal", "--json"))
    assert of_file == {**of_text, "prompt": ""}
    assert [token["id"] for token in of_file["tokens"]] == ids


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b"\1\0\x41\0", 1, "token 1 of {path} is id 65, and the model's 65 ids end at 64"),
        (b"\1\0\2", 1, "the token file {path} has 3 bytes: uint16 tokens take two each"),
        (b"", 1, "the token file {path} has 0 bytes: uint16 tokens take two each"),
        (None, 2, "no token file at {path}"),
    ],
)
def test_a_token_file_that_is_none(
    nanogpt: Run, folder: Path, data: bytes | None, code: int, message: str
) -> None:
    path = folder / "val.bin"
    if data is not None:
        path.write_bytes(data)
    outcome = look(nanogpt, folder, "-p", f"FILE:{path}", "--view", "surprisal")
    assert (outcome.code, outcome.out) == (code, "")
    assert f"error: {message.format(path=repr(str(path)))}\n" in outcome.err


def test_an_id_beyond_the_model_is_told(nanogpt: Run, tmp_path: Path) -> None:
    save_nanogpt(tmp_path / "ckpt.pt", build())
    outcome = nanogpt("inspect", tmp_path, "--tokenizer", "ids", "-p", "3 70")
    assert outcome.code == 1
    assert "id 70" in outcome.err
    assert "65 ids end at 64" in outcome.err


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (("--view", "lens"), "--view means nothing without a text to look at", "--prompt TEXT"),
        (("--track", "A"), "--track means nothing without a text to look at", "--prompt TEXT"),
        (("--save", "x.npz"), "--save means nothing without a text to look at", "--prompt TEXT"),
        (("--force",), "--force means nothing without a text to look at", "--prompt TEXT"),
        (("-p", "A", "--stride", 1), "--stride means nothing to the view 'next'", "surprisal"),
        (
            ("-p", "A", "--view", "surprisal", "--track", "A"),
            "--track means nothing to the view 'surprisal'",
            "add --view next or lens",
        ),
        (("-p", "A", "--view", "x"), "no view is named 'x'", "next, surprisal, lens, attention"),
        (("-p", "A", "--force"), "--force means nothing without --save or --html", "leave it out"),
        (("-p", "A", "--stats"), "--stats and --prompt are two views: give one", "run it twice"),
        (("-p", "A", "--track", "AB"), "'AB' is 2 tokens: 'A', 'B'", "give one token"),
        (("-p", "A", "--top", 0), "--top 0: a table has at least 1 row", "--top 10"),
        (("-p", "A", "--threads", 0), "--threads 0: it must be 1 to 1024", "physical cores"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_meant(
    nanogpt: Run, folder: Path, args: tuple[object, ...], message: str, hint: str
) -> None:
    outcome = look(nanogpt, folder, *args)
    assert (outcome.code, outcome.out) == (2, "")
    error, told = outcome.err.splitlines()[-2:]
    assert error == f"error: {message}"
    assert told.startswith("hint: ")
    assert hint in told


def test_n_head_is_never_guessed(nanogpt: Run, tmp_path: Path) -> None:
    torch.save(build().state_dict(), tmp_path / "bare.pt")
    save_meta(tmp_path)
    outcome = nanogpt("inspect", tmp_path / "bare.pt", "-p", TEXT)
    assert outcome.code == 2
    assert "--n-head" in outcome.err
    told = only(nanogpt("inspect", tmp_path / "bare.pt", "-p", TEXT, "--n-head", 3, "--json"))
    save_nanogpt(tmp_path / "ckpt.pt", build())
    whole = only(nanogpt("inspect", tmp_path / "ckpt.pt", "-p", TEXT, "--json"))
    assert told["tokens"] == whole["tokens"]


def test_a_16_bit_dtype_rounds_the_weights(nanogpt: Run, folder: Path) -> None:
    exact = only(look(nanogpt, folder, "-p", TEXT, "--json"))["tokens"][0]
    assert (
        look(nanogpt, folder, "-p", TEXT, "--json", "--dtype", "float32").rows[0]["tokens"][0]
        == exact
    )
    rounded = only(look(nanogpt, folder, "-p", TEXT, "--json", "--dtype", "bfloat16"))
    assert rounded["tokens"][0]["logit"] != exact["logit"]
    assert rounded["tokens"][0]["logit"] == pytest.approx(exact["logit"], abs=0.2)


def test_an_untrained_model_is_told(nanogpt: Run, tmp_path: Path) -> None:
    save_nanogpt(tmp_path / "ckpt.pt", build(), best_val_loss=4.17)
    save_meta(tmp_path)
    outcome = nanogpt("inspect", tmp_path, "-p", TEXT)
    assert "note: the model is untrained: its best_val_loss 4.1700" in outcome.err


def test_logits_that_are_not_finite(nanogpt: Run, tmp_path: Path) -> None:
    model = build()
    with torch.no_grad():
        model.blocks[0].attn.c_proj.weight[0, 0] = float("nan")
    save_nanogpt(tmp_path / "ckpt.pt", model)
    save_meta(tmp_path)
    for view in OURS:
        outcome = nanogpt("inspect", tmp_path, "-p", TEXT, "--view", view, "--json")
        assert (outcome.code, outcome.out) == (1, "")
        assert (
            "error: the model's logits are not finite: the first bad tensor is the weight "
            "'transformer.h.0.attn.c_proj.weight'\n" in outcome.err
        )


@pytest.mark.parametrize("view", OURS)
def test_arrays_are_saved_both_ways(nanogpt: Run, folder: Path, view: str) -> None:
    npz, safetensors = folder / "out.npz", folder / "out.safetensors"
    shown = look(nanogpt, folder, "-p", TEXT, "--view", view, "--json", "--save", npz)
    assert only(shown) == only(look(nanogpt, folder, "-p", TEXT, "--view", view, "--json"))
    assert f"note: wrote {npz} (" in shown.err
    assert look(nanogpt, folder, "-p", TEXT, "--view", view, "--save", safetensors).code == 0
    with np.load(npz, allow_pickle=False) as loaded:
        arrays = dict(loaded)
    assert arrays
    others = load_file(safetensors)
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert array.dtype == others[name].dtype
        np.testing.assert_array_equal(array, others[name])
    with safe_open(safetensors, "np") as opened:
        assert opened.metadata() == {"schema": f"nanogpt.inspect.{view}/1"}


def test_a_saved_lens_is_the_one_that_is_shown(nanogpt: Run, folder: Path) -> None:
    args = ("-p", TEXT, "--view", "lens", "--track", "A", "--json", "--save", folder / "out.npz")
    report = only(look(nanogpt, folder, *args))
    with np.load(folder / "out.npz") as arrays:
        assert arrays["tracked_ranks"].tolist() == [r["tracked_ranks"] for r in report["rows"]]
        assert arrays["top_ids"].tolist() == [row["top_ids"] for row in report["rows"]]
        assert arrays["last_logits"].shape == (3, 65)


def test_a_file_is_replaced_only_by_force(nanogpt: Run, folder: Path) -> None:
    taken = folder / "out.npz"
    taken.write_text("mine")
    outcome = look(nanogpt, folder, "-p", TEXT, "--save", taken)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"error: {str(taken)!r} exists already\n" in outcome.err
    assert "hint: give --force to replace it, or another --save\n" in outcome.err
    assert taken.read_text() == "mine"
    assert look(nanogpt, folder, "-p", TEXT, "--save", taken, "--force").code == 0
    with np.load(taken) as arrays:
        assert arrays["logits"].shape == (65,)


def test_arrays_go_to_a_kind_of_file_that_is_known(nanogpt: Run, folder: Path) -> None:
    outcome = look(nanogpt, folder, "-p", TEXT, "--save", folder / "out.csv")
    assert outcome.code == 2
    assert "the name must end in .npz or .safetensors" in outcome.err
    assert f"give --save {str(folder / 'out.npz')!r}" in outcome.err
    assert not (folder / "out.csv").exists()


def test_a_failure_leaves_no_file(nanogpt: Run, folder: Path) -> None:
    save = folder / "out.npz"
    assert look(nanogpt, folder, "-p", TEXT, "--track", "AB", "--save", save).code == 2
    assert sorted(path.name for path in folder.iterdir()) == ["ckpt.pt", "meta.pkl"]


def test_flags_without_a_prompt_are_told_before_a_file_is_opened(nanogpt: Run) -> None:
    outcome = nanogpt("inspect", "no-such-file.pt", "--stride", 3)
    assert outcome.code == 2
    assert json.dumps("--stride")[1:-1] in outcome.err
    assert "no-such-file" not in outcome.err


@pytest.mark.real
def test_both_losses_of_a_real_file(nanogpt: Run, zoo: Path) -> None:
    folder = zoo / "nanogpt-char"
    prompt = f"FILE:{folder / 'val.bin'}"
    look = ("inspect", folder / "ckpt.pt", "-p", prompt, "--view", "surprisal", "--stride")
    sliding = nanogpt(*look, 1)
    assert "sliding, stride 1: 829 windows of at most 64 tokens" in sliding.out
    assert "2.28523  nats a token" in sliding.out
    disjoint = nanogpt(*look, 64)
    assert "disjoint windows: 13 windows of at most 64 tokens" in disjoint.out
    assert only(nanogpt(*look, 64, "--json"))["loss"] == pytest.approx(2.22025, abs=6e-6)


@pytest.mark.real
def test_a_real_folder_of_transformers(nanogpt: Run, zoo: Path) -> None:
    args = ("inspect", zoo / "hf-tiny-21", "--tokenizer", "ids", "-p", "1 5 7 2 11", "--json")
    report = only(nanogpt(*args, "--top", 21))
    assert report["tokens"][0]["id"] == 2
    logits = {token["id"]: token["logit"] for token in report["tokens"]}
    expected = [0.036003, 0.024518, 0.040265, -0.039836]
    assert [logits[token] for token in range(4)] == pytest.approx(expected, abs=2e-6)
    first = report["tokens"][0]
    assert first["logit"] - first["logprob"] == pytest.approx(3.037626, abs=2e-6)
