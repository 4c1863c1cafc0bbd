"""`nanogpt sample` as its users type it."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Run
from model_files import ALPHABET, build, envelope, save_meta, save_nanogpt

from nanogpt_cli.model import GPT, GPTConfig

NANOGPT = [sys.executable, "-m", "nanogpt_cli"]


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """A character-level checkpoint of 65 characters with its meta.pkl."""
    save_meta(tmp_path)
    return save_nanogpt(tmp_path / "ckpt.pt", build())


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A checkpoint over GPT-2's vocabulary."""
    return save_nanogpt(tmp_path / "words.pt", build(vocab_size=50257, n_embd=6, n_layer=1))


def encode(text: str) -> list[int]:
    return [ALPHABET.index(char) for char in text]


def decode(ids: list[int]) -> str:
    return "".join(ALPHABET[i] for i in ids)


def biased_towards(path: Path, *ids: int, vocab_size: int = 50257) -> Path:
    """Write a model whose likeliest ids are these, each in its turn by position."""
    model = build(vocab_size=vocab_size, n_embd=6, n_layer=1, spread=0.0)
    with torch.no_grad():
        model.transformer.wte.weight.zero_()
        model.transformer.wpe.weight.zero_()
        for place, token in enumerate(ids):
            direction = torch.zeros(6)
            direction[place] = 5.0
            direction[5] = -5.0
            model.transformer.wpe.weight[place:] = direction
            model.transformer.wte.weight[token] = direction
    return save_nanogpt(path, model)


def test_greedy_text_is_the_models_argmax_whatever_the_seed_and_top_k(
    nanogpt: Run, letters: Path
) -> None:
    """Through block_size and beyond: each id conditioned on the last block_size ids."""
    idx = torch.tensor([encode("HELLO")])
    expected = decode(build().generate(idx, 60, temperature=0)[0].tolist())
    for extra in ([], ["--seed", 5], ["--top-k", 1], ["-n", 1, "--top-k", 0]):
        result = nanogpt("sample", letters, "-p", "HELLO", "-t", 0, "-m", 60, *extra)
        assert (result.code, result.out) == (0, expected + "\n")


def test_top_k_of_one_is_greedy_at_any_temperature(nanogpt: Run, letters: Path) -> None:
    greedy = nanogpt("sample", letters, "-p", "A", "-t", 0)
    assert nanogpt("sample", letters, "-p", "A", "-k", 1, "-t", 3).out == greedy.out


def test_a_seed_decides_the_text(nanogpt: Run, letters: Path) -> None:
    texts = [
        nanogpt("sample", letters, "-t", 1, "-m", 50, "--seed", seed).out for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_two_processes_give_the_same_bytes(letters: Path) -> None:
    command = [*NANOGPT, "sample", str(letters), "-t", "1", "-m", "40", "-n", "2"]
    first, second = (
        subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
        for _ in range(2)
    )
    assert first.stdout == second.stdout
    assert len(first.stdout) == 2 * (1 + 40 + 1) + 16


def test_samples_differ_and_each_is_a_function_of_its_number(nanogpt: Run, letters: Path) -> None:
    rows = nanogpt("sample", letters, "-n", 3, "-t", 1.5, "-m", 30, "--json").rows
    alone = nanogpt("sample", letters, "-t", 1.5, "-m", 30, "--json").rows
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert len({row["text"] for row in rows}) == 3
    assert rows[0] == alone[0]


def test_json_rows_hold_what_scripts_rest_on(nanogpt: Run, letters: Path) -> None:
    result = nanogpt("sample", letters, "-p", "A\n---------------\n", "-m", 7, "-n", 2, "--json")
    for row in result.rows:
        assert row["schema"] == "nanogpt.sample/1"
        assert row["prompt"] == "A\n---------------\n"
        assert row["text"] == decode(row["ids"])
        assert (row["prompt_tokens"], row["new_tokens"], len(row["ids"])) == (18, 7, 7)
        assert (row["finish_reason"], row["seed"], row["id"]) == ("length", 1337, None)
        assert (row["device"], row["dtype"]) == ("cpu", "float32")
        assert row["settings"]["top_k"] == 200
    digests = [row["settings"]["digest"] for row in result.rows]
    cooler = nanogpt("sample", letters, "-m", 7, "-t", 0.5, "--json").rows[0]
    again = nanogpt("sample", letters, "-m", 7, "-n", 1, "--json").rows[0]
    assert digests == [again["settings"]["digest"]] * 2
    assert cooler["settings"]["digest"] != digests[0]


def test_the_digest_changes_with_whatever_changes_a_text(
    nanogpt: Run, words: Path, tmp_path: Path
) -> None:
    def digest(path: Path, *options: Any) -> str:
        row = nanogpt("sample", path, "-p", "a<|endoftext|>", "-m", 1, "--json", *options).rows[0]
        return str(row["settings"]["digest"])

    moved = tmp_path / "elsewhere" / "w.pt"
    moved.parent.mkdir()
    moved.write_bytes(words.read_bytes())
    assert digest(words) == digest(words, "-n", 2) == digest(words, "-s", 5) == digest(moved)
    changes: list[list[Any]] = [["--no-special"], ["--dtype", "bfloat16"], ["--top-p", 0.5]]
    changes += [["--stop", "x"], ["--ignore-eos"], ["-m", 2], ["--rng", "nanogpt"]]
    changes += [["--window-stride", 2]]
    assert len({digest(words), *(digest(words, *change) for change in changes)}) == 9


def test_the_digest_changes_with_the_weights(nanogpt: Run, tmp_path: Path) -> None:
    save_meta(tmp_path)
    digests = set()
    for seed in (0, 1):
        path = save_nanogpt(tmp_path / f"{seed}.pt", build(seed))
        row = nanogpt("sample", path, "-m", 1, "--json").rows[0]
        digests.add(row["settings"]["digest"])
    assert len(digests) == 2


@pytest.mark.parametrize("options", [[], ["-n", 3], ["-n", 2, "--no-echo"], ["-p", "é", "-n", 2]])
def test_streamed_and_unstreamed_are_the_same_bytes(
    nanogpt: Run, words: Path, options: list[Any]
) -> None:
    """Random tokens of GPT-2's are often halves of characters."""
    command = ["sample", words, "-t", 5, "-k", 0, "-m", 60, *options]
    streamed, held = nanogpt(*command), nanogpt(*command, "--no-stream")
    assert streamed.code == 0
    assert streamed.out == held.out
    rows = nanogpt(*command, "--json").rows
    opening = "" if "--no-echo" in options else rows[0]["prompt"]
    separated = "\n---------------\n".join(opening + row["text"] for row in rows)
    assert streamed.out == separated + "\n"


def test_a_character_of_several_tokens_has_no_replacement_marks(
    nanogpt: Run, tmp_path: Path
) -> None:
    party = (8582, 236, 231)  # the three tokens of one emoji
    path = biased_towards(tmp_path / "ckpt.pt", *party)
    command = ["sample", path, "-p", "a", "-t", 0, "--no-echo", "-m"]
    assert nanogpt(*command, 3).out == "\U0001f389\n"
    assert nanogpt(*command, 2).out == "\ufffd\n"


def test_end_of_text_ends_a_sample_and_is_not_printed(nanogpt: Run, tmp_path: Path) -> None:
    path = biased_towards(tmp_path / "ckpt.pt", 31373, 995, 50256)
    command = ["sample", path, "-p", "a", "-t", 0, "-m", 20]
    row = nanogpt(*command, "--json").rows[0]
    assert (row["text"], row["ids"]) == ("hello world", [31373, 995])
    assert (row["finish_reason"], row["new_tokens"]) == ("eos", 2)
    assert nanogpt(*command).out == "ahello world\n"
    assert "finished by eos" in nanogpt(*command).err
    ignoring = nanogpt(*command, "--ignore-eos", "--json").rows[0]
    assert (len(ignoring["ids"]), ignoring["finish_reason"]) == (20, "length")
    assert ignoring["ids"][2] == 50256


def test_a_stop_text_ends_a_sample_in_its_new_text_alone(nanogpt: Run, letters: Path) -> None:
    command = ["sample", letters, "-p", "HELLO", "-t", 1, "-m", 80, "-n", 3]
    for row in nanogpt(*command, "--json").rows:
        for stop in (row["text"][20:23], row["text"][:1]):
            stopped = nanogpt(*command, "--stop", stop, "--json").rows[row["index"]]
            cut = row["text"].index(stop)
            assert (stopped["text"], stopped["ids"]) == (row["text"][:cut], row["ids"][:cut])
            assert stopped["finish_reason"] == "stop"
        later, sooner = row["text"][40:43], row["text"][20:23]
        either = nanogpt(*command, "--stop", later, "--stop", sooner, "--json").rows[row["index"]]
        assert either["text"] == row["text"][: min(map(row["text"].index, (later, sooner)))]
    free = nanogpt(*command)
    assert nanogpt(*command, "--stop", "HELLO").out == free.out
    noted = nanogpt(*command, "--stop", "é")
    assert (noted.out, "--stop 'é' has no effect" in noted.err) == (free.out, True)
    assert nanogpt(*command, "--stop", "").code == 2


@pytest.mark.parametrize(
    ("stop", "text", "ids"),
    [
        ("\n\n", "hello world", [31373, 995]),
        ("lo wo", "hel", [31373]),
        ("orl", "hello w", [31373, 995]),
        ("hello", "", []),
    ],
)
def test_a_stop_is_matched_on_text_across_and_inside_tokens(
    nanogpt: Run, tmp_path: Path, stop: str, text: str, ids: list[int]
) -> None:
    path = biased_towards(tmp_path / "ckpt.pt", 31373, 995, 628)
    command = ["sample", path, "-p", "a", "-t", 0, "-m", 9, "--stop", stop]
    row = nanogpt(*command, "--json").rows[0]
    assert (row["text"], row["ids"], row["finish_reason"]) == (text, ids, "stop")
    assert nanogpt(*command).out == f"a{text}\n"
    assert nanogpt(*command, "--rng", "nanogpt").out == f"a{text}\n"


def test_several_samples_are_separated_by_fifteen_hyphens(nanogpt: Run, letters: Path) -> None:
    result = nanogpt("sample", letters, "-p", "AB", "-m", 0, "-n", 3)
    assert result.out == "AB\n---------------\nAB\n---------------\nAB\n"
    assert nanogpt("sample", letters, "-p", "AB", "-m", 0, "--no-echo").out == "\n"


def test_the_default_prompt_is_a_newline(nanogpt: Run, letters: Path) -> None:
    assert nanogpt("sample", letters, "-m", 0, "--json").rows[0]["prompt"] == "\n"


@pytest.mark.parametrize(("prompt", "start"), [("", 0), ("\n", 0)])
def test_an_empty_prompt_starts_from_a_newline_that_is_not_printed(
    nanogpt: Run, letters: Path, prompt: str, start: int
) -> None:
    result = nanogpt("sample", letters, "-p", prompt, "-t", 0, "-m", 9)
    expected = decode(build().generate(torch.tensor([[start]]), 9, temperature=0)[0, 1:].tolist())
    assert result.out == prompt + expected + "\n"


@pytest.mark.parametrize(
    "prompt", ["123", "TRUE", "-X", "--TOP", "[/INST]", "[RED]X[/B]", ":SMILE:"]
)
def test_prompts_are_text_and_never_markup(nanogpt: Run, letters: Path, prompt: str) -> None:
    for command in (["--prompt", prompt], [f"--prompt={prompt}"], ["-p", "--", prompt]):
        assert nanogpt("sample", letters, "-m", 0, *command).out == f"{prompt}\n"


def test_text_with_brackets_is_written_as_it_is(nanogpt: Run, tmp_path: Path) -> None:
    alphabet = "\n[]/\\:bold"
    save_meta(tmp_path, alphabet)
    path = save_nanogpt(tmp_path / "ckpt.pt", build(vocab_size=10))
    command = ["sample", path, "-p", "[/bold]", "-t", 2, "-m", 300]
    row = nanogpt(*command, "--json").rows[0]
    assert row["text"].count("[") > 5
    assert nanogpt(*command).out == "[/bold]" + row["text"] + "\n"


def test_unknown_characters_are_listed_together(nanogpt: Run, letters: Path) -> None:
    result = nanogpt("sample", letters, "-p", "aAé日")
    assert (result.code, result.out) == (2, "")
    for shown in ("'a' U+0061", "'é' U+00E9", "'日' U+65E5", "65 tokens"):
        assert shown in result.err


def test_ids_beyond_the_model_are_named(nanogpt: Run, letters: Path) -> None:
    result = nanogpt("sample", letters, "--tokenizer", "ids", "-p", "3 70 5")
    assert (result.code, result.out) == (1, "")
    assert "the prompt holds id 70 (" in result.err
    assert "the model's 65 ids end at 64" in result.err


def test_ids_in_give_ids_out(nanogpt: Run, letters: Path) -> None:
    command = ["sample", letters, "--tokenizer", "ids", "-p", "3  5\n", "-t", 0, "-m", 4]
    row = nanogpt(*command, "--json").rows[0]
    ids = build().generate(torch.tensor([[3, 5]]), 4, temperature=0)[0].tolist()
    assert row["text"] == " ".join(map(str, ids[2:]))
    assert nanogpt(*command).out.split() == [str(token) for token in ids]


def test_a_table_that_is_not_the_models_is_refused_with_both_sizes(
    nanogpt: Run, tmp_path: Path, words: Path
) -> None:
    meta = save_meta(tmp_path)
    result = nanogpt("sample", words)
    assert (result.code, result.out) == (1, "")
    for shown in (str(meta), "65", "50257"):
        assert shown in result.err


def test_a_missing_table_says_where_it_was_looked_for(
    nanogpt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_nanogpt(tmp_path / "out" / "ckpt.pt", build())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    result = nanogpt("sample", path)
    assert (result.code, result.out) == (1, "")
    places = (path.parent, elsewhere / "data" / "letters", tmp_path / "data" / "letters")
    for shown in (*(str(place / "meta.pkl") for place in places), "--meta"):
        assert shown in result.err
    save_meta(tmp_path / "data" / "letters")
    assert nanogpt("sample", path, "-m", 3).code == 0


def test_padding_is_never_drawn(nanogpt: Run, tmp_path: Path) -> None:
    """Ten ids beyond the table, made the likeliest: masked, with one note."""
    model = build(vocab_size=75)
    with torch.no_grad():
        model.get_parameter("transformer.ln_f.bias")[0] = 50.0
        model.lm_head.weight[65:, 0] = 50.0
    save_meta(tmp_path)
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    for options in (["-t", 0], ["-t", 2, "-k", 0], ["-k", 5]):
        result = nanogpt("sample", path, "-m", 40, *options, "--json")
        assert all(token < 65 for token in result.rows[0]["ids"])
        assert result.err.count("ids 65 to 74 are padding and are never drawn") == 1


def test_top_k_beyond_the_vocabulary_is_no_filter(nanogpt: Run, letters: Path) -> None:
    off = nanogpt("sample", letters, "-t", 1, "-k", 0)
    for k in (65, 66, 200, 10**9):
        result = nanogpt("sample", letters, "-t", 1, "-k", k)
        assert (result.code, result.out) == (0, off.out)
        assert result.err.count("top-k") == (1 if k in (66, 10**9) else 0)


def test_settings_without_effect_are_noted(nanogpt: Run, letters: Path) -> None:
    assert "--seed 5 has no effect" in nanogpt("sample", letters, "-t", 0, "--seed", 5).err
    assert "no effect" not in nanogpt("sample", letters, "-t", 0).err


def test_dropout_is_off(nanogpt: Run, letters: Path, tmp_path: Path) -> None:
    dropped = save_nanogpt(tmp_path / "dropped.pt", build(dropout=0.5))
    assert nanogpt("sample", dropped, "-t", 1).out == nanogpt("sample", letters, "-t", 1).out


def test_stderr_names_the_file_and_its_training_and_stdout_does_not(
    nanogpt: Run, letters: Path
) -> None:
    result = nanogpt("sample", letters, "-m", 4)
    assert f"{letters}, iter_num 250, best_val_loss 2.5000" in result.err
    assert len(result.out) == 6
    closing = result.err.splitlines()[-1]
    for shown in ("4 tokens", "tokens/s", "first token after", "cpu", "float32", "seed 1337"):
        assert shown in closing
    assert closing.endswith("finished by length")
    quiet = nanogpt("sample", letters, "-m", 4, "-q")
    assert (quiet.out, quiet.err) == (result.out, "")


@pytest.mark.parametrize(
    ("loss", "flagged"), [(math.log(65), True), (4.0, True), (3.9, False), (40.0, False)]
)
def test_an_untrained_model_is_said_to_be(
    nanogpt: Run, tmp_path: Path, loss: float, flagged: bool
) -> None:
    save_meta(tmp_path)
    path = save_nanogpt(tmp_path / "ckpt.pt", build(), best_val_loss=loss)
    assert ("the model is untrained" in nanogpt("sample", path, "-m", 1).err) is flagged


def test_a_folder_means_its_ckpt_pt(nanogpt: Run, letters: Path) -> None:
    assert nanogpt("sample", letters.parent, "-m", 9).out == nanogpt("sample", letters, "-m", 9).out


def test_without_a_checkpoint_it_is_out_ckpt_pt_then_the_demo(
    nanogpt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    demo = nanogpt("sample", "-m", 5)
    assert demo.code == 0
    assert demo.err.splitlines()[:2] == [
        "note: no checkpoint was named and there is no out/ckpt.pt: using demo",
        "note: sampling demo, iter_num 14000, best_val_loss 3.3060",
    ]
    save_meta(tmp_path / "out")
    save_nanogpt(tmp_path / "out" / "ckpt.pt", build())
    own = nanogpt("sample", "-m", 5)
    assert "out/ckpt.pt" in own.err
    assert own.out != demo.out


def test_logprobs_are_of_the_models_raw_distribution(nanogpt: Run, letters: Path) -> None:
    command = ["sample", letters, "-p", "AB", "-t", 2, "-k", 3, "-m", 25, "-n", 2, "--json"]
    rows = nanogpt(*command, "--logprobs", 4).rows
    assert [row["ids"] for row in rows] == [row["ids"] for row in nanogpt(*command).rows]
    model = build()
    for row in rows:
        ids = encode("AB") + row["ids"]
        assert [token["id"] for token in row["logprobs"]] == row["ids"]
        for place, token in enumerate(row["logprobs"], start=2):
            logits = model(torch.tensor([ids[:place][-16:]]))[0][0, -1]
            expected = logits.log_softmax(-1)
            assert token["logprob"] == pytest.approx(expected[token["id"]].item(), abs=1e-4)
            assert token["logit"] == pytest.approx(logits[token["id"]].item(), abs=1e-4)
            best = logits.argsort(descending=True).tolist()
            assert token["rank"] == best.index(token["id"]) + 1 <= 3
            assert [other["id"] for other in token["top"]] == best[:4]
            assert [other["rank"] for other in token["top"]] == [1, 2, 3, 4]
            assert token["text"] == ALPHABET[token["id"]]
            assert bytes(token["bytes"]).decode() == token["text"]
    assert nanogpt(*command).rows[0]["logprobs"] is None


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["-t", -1], 2, "--temperature -1: it must be a number of at least 0"),
        (["-t", "nan"], 2, "--temperature nan: it must be a number of at least 0"),
        (["-k", -1], 2, "--top-k -1: it must be at least 0"),
        (["-m", -1], 2, "--max-new-tokens -1: it must be at least 0"),
        (["-n", 0], 2, "--num-samples 0: it must be 1 to 1,000,000,000"),
        (["-n", 10**30], 2, f"--num-samples {10**30}: it must be 1 to 1,000,000,000"),
        (["--top-p", 0], 2, "--top-p 0: it must be above 0 and at most 1"),
        (["--min-p", 2], 2, "--min-p 2: it must lie in 0 to 1"),
        (["--repetition-penalty", 0], 2, "--repetition-penalty 0: it must be above 0"),
        (["--rng", "nanogpt", "--top-p", 0.9], 2, "--rng nanogpt is sample.py's own loop"),
        (["--logprobs", 3], 2, "--logprobs are printed in JSON alone"),
        (["--logprobs", -1, "--json"], 2, "--logprobs -1: it must be at least 0"),
        (["--logprobs", 1, "--json", "--rng", "nanogpt"], 2, "--rng nanogpt is sample.py's own"),
        (["--threads", 0], 2, "--threads 0: it must be 1 to 1024"),
        (["--device", "gpu"], 2, "unknown device 'gpu'"),
        (["--device", "mps"], 2, "--device mps: no Metal device is available"),
        (["--n-head", 4], 2, "--n-head 4 contradicts the file, which says n_head 3"),
        (["--rng", "nanogpt", "--seed", 2**70], 2, "does not fit into torch's 64 bits"),
        (["--rng", "nanogpt", "-t", 1e-50], 1, "the odds at step 0 are no numbers"),
    ],
)
def test_what_cannot_be_is_one_error(
    nanogpt: Run, letters: Path, options: list[Any], code: int, message: str
) -> None:
    result = nanogpt("sample", letters, *options)
    assert (result.code, result.out) == (code, "")
    assert f"error: {message}" in result.err or message in result.err
    assert "Traceback" not in result.err


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("option", ["--meta", "--config"])
def test_a_file_without_permission_is_no_wrong_command_line(
    nanogpt: Run, letters: Path, tmp_path: Path, option: str
) -> None:
    (tmp_path / "locked").touch(mode=0)
    result = nanogpt("sample", letters, option, tmp_path / "locked")
    assert result.code == 1
    assert "error: cannot read" in result.err


def test_weights_that_are_nan_are_named(nanogpt: Run, tmp_path: Path) -> None:
    model = build()
    with torch.no_grad():
        model.blocks[1].mlp.c_fc.weight[3, 3] = torch.inf
    save_meta(tmp_path)
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    for rng in ("per-sample", "nanogpt"):
        result = nanogpt("sample", path, "--rng", rng)
        assert result.code == 1
        assert "not finite at step 0" in result.err
        assert "'transformer.h.1.mlp.c_fc.weight'" in result.err


def sample_py(path: Path, prompt: list[int], seed: int, samples: int, **options: Any) -> list[str]:
    """What nanoGPT's sample.py does: seed, build, load, then generate one after another."""
    torch.manual_seed(seed)
    checkpoint = torch.load(path, map_location="cpu")
    model = GPT(GPTConfig(**checkpoint["model_args"]))
    model.load_state_dict(checkpoint["model"])
    model.eval()
    x = torch.tensor([prompt])
    return [decode(model.generate(x, **options)[0].tolist()) for _ in range(samples)]


@pytest.mark.parametrize("top_k", [4, 200])
def test_rng_nanogpt_gives_sample_pys_texts(nanogpt: Run, tmp_path: Path, top_k: int) -> None:
    save_meta(tmp_path)
    path = save_nanogpt(tmp_path / "ckpt.pt", build(dropout=0.2))
    expected = sample_py(path, encode("AB"), 42, 3, max_new_tokens=30, temperature=0.9, top_k=top_k)
    options = ["-p", "AB", "-s", 42, "-n", 3, "-m", 30, "-t", 0.9, "-k", top_k]
    result = nanogpt("sample", path, "--rng", "nanogpt", *options)
    assert result.out == "\n---------------\n".join(expected) + "\n"


def test_rng_nanogpt_masks_nothing_and_says_what_it_cannot_decode(
    nanogpt: Run, tmp_path: Path
) -> None:
    model = build(vocab_size=75)
    with torch.no_grad():
        model.get_parameter("transformer.ln_f.bias")[0] = 50.0
        model.lm_head.weight[70, 0] = 50.0
    save_meta(tmp_path)
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    result = nanogpt("sample", path, "--rng", "nanogpt")
    assert result.code == 1
    assert "no token has id 70" in result.err


def test_rng_nanogpt_is_for_pt_files(nanogpt: Run, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    weights = {name: t.clone() for name, t in build().state_dict().items()}
    save_file(weights, tmp_path / "model.safetensors")
    save_meta(tmp_path)
    command = ["sample", tmp_path / "model.safetensors", "--n-head", 3]
    result = nanogpt(*command, "--rng", "nanogpt")
    assert (result.code, "--rng nanogpt needs a .pt checkpoint" in result.err) == (2, True)
    assert nanogpt(*command, "-m", 3).code == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_16_bit_dtype_on_the_cpu_rounds_the_weights(
    nanogpt: Run, tmp_path: Path, letters: Path, dtype: str
) -> None:
    model = build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(getattr(torch, dtype)))
    rounded = save_nanogpt(tmp_path / "rounded.pt", model)
    options = ["-t", 1, "-m", 60, "--json"]
    row = nanogpt("sample", letters, "--dtype", dtype, *options).rows[0]
    assert row["dtype"] == dtype
    assert row["ids"] == nanogpt("sample", rounded, *options).rows[0]["ids"]


class Hostile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target}",)


def test_a_hostile_meta_pkl_beside_a_good_checkpoint_runs_nothing(
    nanogpt: Run, tmp_path: Path, letters: Path
) -> None:
    sentinel = tmp_path / "ran"
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(Hostile(sentinel)))
    result = nanogpt("sample", letters)
    assert (result.code, result.out) == (1, "")
    assert "posix.system" in result.err
    assert not sentinel.exists()


def test_a_hostile_checkpoint_runs_nothing(nanogpt: Run, tmp_path: Path) -> None:
    sentinel = tmp_path / "ran"
    torch.save(envelope(build(), extra=Hostile(sentinel)), tmp_path / "ckpt.pt")
    result = nanogpt("sample", tmp_path / "ckpt.pt")
    assert result.code == 1
    assert "posix.system" in result.err
    assert not sentinel.exists()


def run_process(
    *args: object, stdin: int | None = subprocess.DEVNULL, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, **environment}
    command = [*NANOGPT, "sample", *(str(arg) for arg in args)]
    return subprocess.run(command, capture_output=True, env=environ, stdin=stdin, check=False)


def test_output_is_utf8_whatever_the_locale(words: Path) -> None:
    options = [words, "-p", "é日🎉", "-m", "5", "-t", "3"]
    usual = run_process(*options, LC_ALL="C.UTF-8")
    assert usual.returncode == 0
    assert usual.stdout.startswith("é日🎉".encode())
    assert run_process(*options, LC_ALL="C", PYTHONUTF8="0").stdout == usual.stdout
    ascii_only = run_process(*options, PYTHONIOENCODING="ascii")
    assert ascii_only.returncode == 0
    ascii_only.stdout.decode("ascii")


def test_bytes_in_an_argument_that_are_no_text_are_replaced(words: Path) -> None:
    command = [*NANOGPT, "sample", str(words), "-m", "0", "-p"]
    done = subprocess.run(
        [os.fsencode(part) for part in command] + [b"a\xff"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "a\ufffd\n".encode())
    assert b"U+FFFD" in done.stderr


def test_a_prompt_may_be_piped_in(letters: Path) -> None:
    command = [*NANOGPT, "sample", str(letters), "-m", "0"]
    done = subprocess.run(command, input=b"PIPED\n", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"PIPED\n\n")


def test_a_reader_that_leaves_early_ends_it_quietly(letters: Path) -> None:
    command = [*NANOGPT, "sample", str(letters), "-n", "50", "-m", "400"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(3)
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert "Broken" not in errors


def test_ctrl_c_keeps_the_text_so_far(letters: Path) -> None:
    command = [*NANOGPT, "sample", str(letters), "-p", "ABC", "-m", "1000000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        start = process.stdout.read(5)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert (start + rest).startswith(b"ABC")
    assert process.returncode == 130
    assert errors.decode().splitlines()[-1] == "interrupted"
    assert b"Traceback" not in errors


def test_nothing_is_fetched(
    nanogpt: Run, words: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """GPT-2's ranks are in the package: no network, no cache."""
    import socket

    def refuse(*_args: object) -> None:
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "nowhere"))
    assert nanogpt("sample", words, "-p", "hello world", "-m", 2).code == 0
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.real
def test_nanogpt_char_goes_on_as_it_did(nanogpt: Run, zoo: Path) -> None:
    folder = zoo / "nanogpt-char"
    result = nanogpt("sample", folder, "--prompt", "A", "--temperature", 0, "-m", 28)
    assert result.out == "AP an fut fures tor t tor tor\n"
    result = nanogpt("sample", folder, "--temperature", 0, "-m", 40)
    assert result.out.startswith("\nNode.js appplion ation ation ")


@pytest.mark.real
def test_the_adder_adds(nanogpt: Run, zoo: Path) -> None:
    options = ["--tokenizer", "ids", "--n-head", 3, "-t", 0, "-m", 3, "--json"]
    row = nanogpt("sample", zoo / "minGPT-adder", *options, "-p", "4 7 5 6").rows[0]
    assert row["text"] == "3 0 1"
    assert json.dumps(row["ids"]) == "[3, 0, 1]"
