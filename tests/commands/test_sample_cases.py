"""`nanogpt sample` where users of other programs were let down."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Run
from model_files import ALPHABET, build, envelope, save_meta, save_nanogpt
from typer.main import get_command

from nanogpt_cli.cli import build_app
from nanogpt_cli.model import GPT
from nanogpt_cli.sampling import PIPELINE

CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    save_meta(tmp_path)
    return save_nanogpt(tmp_path / "ckpt.pt", build())


def always(model: GPT, token: int) -> GPT:
    """Have a model find one token the likeliest by far, whatever came before."""
    with torch.no_grad():
        model.get_parameter("transformer.ln_f.bias")[0] = 50.0
        model.lm_head.weight[token, 0] = 50.0
    return model


def test_weights_of_hugging_face_under_nanogpts_name(nanogpt: Run, tmp_path: Path) -> None:
    """A pytorch_model.bin that was renamed to ckpt.pt: Conv1D matrices, no config."""
    model = build(activation="gelu_tanh")
    state = {
        name: weight.t().contiguous() if name.endswith(CONV1D) else weight
        for name, weight in model.state_dict().items()
    }
    save_meta(tmp_path)
    torch.save(state, tmp_path / "ckpt.pt")
    command = ["sample", tmp_path / "ckpt.pt", "-p", "AB", "-t", 0, "-m", 20]
    refused = nanogpt(*command)
    assert (refused.code, refused.out) == (2, "")
    assert "--n-head" in refused.err
    assert "Traceback" not in refused.err
    result = nanogpt(*command, "--n-head", 3)
    start = torch.tensor([[ALPHABET.index(char) for char in "AB"]])
    ids = model.generate(start, 20, temperature=0)[0].tolist()
    assert (result.code, result.out) == (0, "".join(ALPHABET[i] for i in ids) + "\n")
    assert result.err.count("with the tanh GELU") == 1


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module._orig_mod.", "_orig_mod._orig_mod."])
def test_what_a_wrapper_put_before_the_names_changes_no_text(
    nanogpt: Run, letters: Path, tmp_path: Path, prefix: str
) -> None:
    model = build()
    wrapped = {prefix + name: weight for name, weight in model.state_dict().items()}
    path = save_nanogpt(tmp_path / "wrapped.pt", model, model=wrapped)
    command = ["-t", 1, "-m", 30]
    assert nanogpt("sample", path, *command).out == nanogpt("sample", letters, *command).out


def test_a_tied_head_that_is_not_in_the_file_changes_no_text(
    nanogpt: Run, letters: Path, tmp_path: Path
) -> None:
    content = envelope(build())
    del content["model"]["lm_head.weight"]
    torch.save(content, tmp_path / "tied.pt")
    result = nanogpt("sample", tmp_path / "tied.pt", "-t", 1, "-m", 30)
    assert result.out == nanogpt("sample", letters, "-t", 1, "-m", 30).out
    assert [line.split()[0] for line in result.err.splitlines()] == ["note:", "30"]
    assert "sampling" in result.err.splitlines()[0]


def spoil(name: str, path: Path) -> None:
    """Write a checkpoint with one thing wrong with it."""
    content = envelope(build())
    weights = content["model"]
    if name == "tensorflow":
        path.write_bytes(b"\x13\x37 a shard of something else" * 40)
        return
    if name == "missing":
        del weights["transformer.h.1.attn.c_attn.weight"], weights["transformer.ln_f.weight"]
    if name == "sizes":
        content["model_args"]["vocab_size"] = 80
    if name == "prefix":
        content["model"] = {f"trainer.{key}": value for key, value in weights.items()}
    torch.save(content, path)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("tensorflow", ["not a PyTorch checkpoint", "nanogpt convert gpt2 -o gpt2.pt"]),
        ("missing", ["2 missing weights", "'transformer.h.1.attn.c_attn.weight'"]),
        ("sizes", ["'transformer.wte.weight'", "[65, 24]", "[80, 24]", "1 tensor"]),
        ("prefix", ["'trainer.'"]),
    ],
)
def test_a_file_that_does_not_fit_is_never_half_loaded(
    nanogpt: Run, tmp_path: Path, name: str, shown: list[str]
) -> None:
    save_meta(tmp_path)
    spoil(name, tmp_path / "ckpt.pt")
    result = nanogpt("sample", tmp_path / "ckpt.pt")
    assert (result.code, result.out) == (1, "")
    assert "Traceback" not in result.err
    for part in shown:
        assert part in result.err


def test_a_path_that_is_not_there_is_shown_whole(
    nanogpt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = nanogpt("sample", "./out/mine")
    assert (result.code, result.out) == (2, "")
    assert repr(str(tmp_path / "out" / "mine")) in result.err


def test_a_run_on_the_cpu_never_asks_for_cuda(
    nanogpt: Run, letters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("CUDA was asked")

    names = ["is_available", "device_count", "is_bf16_supported", "get_device_capability"]
    for name in [*names, "current_device", "synchronize", "get_device_name", "mem_get_info"]:
        monkeypatch.setattr(torch.cuda, name, refuse)
    for rng in ("per-sample", "nanogpt"):
        result = nanogpt("sample", letters, "--device", "cpu", "-m", 30, "--rng", rng)
        assert (result.code, len(result.out)) == (0, 32)


def test_without_a_flag_a_machine_without_gpus_uses_its_cpu(
    nanogpt: Run, letters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    (row,) = nanogpt("sample", letters, "-m", 2, "--json").rows
    assert (row["device"], row["dtype"]) == ("cpu", "float32")


@pytest.mark.parametrize("kind", ["CUDA", "Metal"])
def test_a_gpu_that_is_left_idle_is_told(
    nanogpt: Run, letters: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    there = Path.exists
    monkeypatch.setattr(torch.version, "cuda", "13.0" if kind == "CUDA" else None)
    monkeypatch.setattr(Path, "exists", lambda self: str(self) == "/dev/nvidia0" or there(self))
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: kind == "Metal")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: kind == "Metal")
    note = f"note: this machine has a {kind} device, and --device cpu leaves it idle\n"
    assert nanogpt("sample", letters, "-m", 2, "--device", "cpu").err.count(note) == 1


@pytest.mark.parametrize(("token", "stop"), [(628, "\n\n"), (198, "\n\n"), (628, "\n")])
def test_an_empty_line_stops_it_however_the_model_spells_one(
    nanogpt: Run, tmp_path: Path, token: int, stop: str
) -> None:
    """As one token, as two, as a part of one; streamed or not."""
    model = always(build(vocab_size=50257, n_embd=6, n_layer=1), token)
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    command = ["sample", path, "-p", "a\n\nb", "-t", 0, "-m", 6]
    assert nanogpt(*command, "--json").rows[0]["ids"] == [token] * 6
    stopped = nanogpt(*command, "--stop", stop, "--json").rows[0]
    assert (stopped["text"], stopped["ids"], stopped["finish_reason"]) == ("", [], "stop")
    for streaming in ("--stream", "--no-stream"):
        assert nanogpt(*command, "--stop", stop, streaming).out == "a\n\nb\n"


def test_a_step_that_cannot_be_compiled_is_one_note_and_the_same_text(
    nanogpt: Run, letters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No compiler, and nothing kept from before."""
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("NANOGPT_CACHE", str(tmp_path / "cache"))
    command = ["sample", letters, "-t", 0, "-m", 40, "--json"]
    plain = nanogpt(*command, "--no-compile")
    for flags, notes in (([], 0), (["--compile"], 1)):
        result = nanogpt(*command, *flags)
        assert (result.code, result.rows[0]["ids"]) == (0, plain.rows[0]["ids"])
        assert result.err.count("note: the step could not be compiled, so it runs") == notes
        assert len(result.err.splitlines()) == len(plain.err.splitlines()) + notes


def test_an_id_that_a_faulty_device_draws_is_told(
    nanogpt: Run, letters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = torch.tensor([[-(2**63)]])
    monkeypatch.setattr(torch, "multinomial", lambda *_args, **_options: broken)
    result = nanogpt("sample", letters, "--rng", "nanogpt")
    assert (result.code, result.out.strip()) == (1, "")
    assert "error: drew id -9223372036854775808 at step 0 on cpu: ids end at 64\n" in result.err


def test_nothing_is_said_once_a_layer(nanogpt: Run, tmp_path: Path) -> None:
    """A file of the slow attention, with a mask in each of its layers."""
    save_meta(tmp_path)
    model = build(n_layer=12, attention="manual")
    assert sum(name.endswith(".attn.bias") for name in model.state_dict()) == 12
    result = nanogpt("sample", save_nanogpt(tmp_path / "ckpt.pt", model), "-m", 20)
    assert (result.code, len(result.out)) == (0, 22)
    assert len(result.err.splitlines()) == 2


@pytest.mark.parametrize("attention", ["sdpa", "manual"])
def test_a_prompt_beyond_the_context_is_cut_to_it(
    nanogpt: Run, tmp_path: Path, attention: str
) -> None:
    save_meta(tmp_path)
    path = save_nanogpt(tmp_path / "ckpt.pt", build(attention=attention))
    prompt = ALPHABET[1:] * 4
    command = ["sample", path, "-t", 0, "-m", 20, "--no-echo"]
    result = nanogpt(*command, "-p", prompt)
    assert result.out == nanogpt(*command, "-p", prompt[-16:]).out
    note = "note: the prompt has 256 tokens and the model sees the last 16 of them\n"
    assert result.err.count(note) == 1


def test_a_trailing_space_goes_to_the_model_as_it_is(nanogpt: Run, tmp_path: Path) -> None:
    path = save_nanogpt(tmp_path / "ckpt.pt", build(vocab_size=50257, n_embd=6, n_layer=1))
    results = [
        nanogpt("sample", path, "-p", prompt, "-m", 3, "--json")
        for prompt in ("Hello ", "Hello\n", "Hello")
    ]
    notes = [result.err.count("the prompt ends in a space") for result in results]
    assert notes == [1, 0, 0]
    assert [result.rows[0]["prompt"] for result in results] == ["Hello ", "Hello\n", "Hello"]
    assert [result.rows[0]["prompt_tokens"] for result in results] == [2, 2, 1]


def test_a_token_that_was_added_is_printed_and_never_masked(nanogpt: Run, tmp_path: Path) -> None:
    """It stands beyond the vocabulary that its table began with, and the rows count it."""
    table = {"a": 0, "b": 1, "\u0120": 2, "<|endoftext|>": 3}
    (tmp_path / "vocab.json").write_text(json.dumps(table))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|user|>": 4}))
    path = save_nanogpt(tmp_path / "ckpt.pt", always(build(vocab_size=5), 4))
    result = nanogpt("sample", path, "-p", "a<|user|>b", "-t", 0, "-m", 3)
    assert (result.code, result.out) == (0, "a<|user|>b" + "<|user|>" * 3 + "\n")
    assert "padding" not in result.err


def test_help_gives_each_option_its_kind_its_default_and_its_meaning(
    nanogpt: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    lines = nanogpt("sample", "--help").out.splitlines()
    group: Any = get_command(build_app())
    for param in group.commands["sample"].params:
        if param.hidden or param.param_type_name == "argument":
            continue
        names = re.compile(rf"[^\w-]*\s(\S+,)?{param.opts[0]}[,\s]")
        (line,) = [line for line in lines if names.match(line)]
        assert param.help.rstrip(".") in line
        if isinstance(param.default, int | float) and not isinstance(param.default, bool):
            assert (param.metavar or f"<{type(param.default).__name__}>") in line
            assert f"[default: {param.default}]" in line
    (temperature,) = [line for line in lines if "--temperature" in line and "<float>" in line]
    for meaning in ("1 is the model's own odds", "0 is greedy", "below 1 is safer"):
        assert meaning in temperature
    assert [filter.help for filter in PIPELINE] == sorted(
        (filter.help for filter in PIPELINE), key=" ".join(lines).index
    )


def test_a_loss_that_was_never_measured_is_not_told(nanogpt: Run, tmp_path: Path) -> None:
    save_meta(tmp_path)
    path = save_nanogpt(tmp_path / "ckpt.pt", build(), iter_num=0, best_val_loss=1e9)
    err = nanogpt("sample", path, "-p", "A", "-m", "1").err
    assert err.splitlines()[0] == f"note: sampling {path}, iter_num 0"
