"""--config: TOML, and nanoGPT's config/*.py read as text."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from hypothesis import given
from hypothesis import strategies as st

from nanogpt_cli.config_files import SAMPLING_KEYS, TRAINING_KEYS, Key, Settings, load
from nanogpt_cli.config_files.assignments import Assignments
from nanogpt_cli.errors import NanoGPTError, UsageError

KEYS = {
    "prompt": Key("prompt", str),
    "start": Key("prompt", str),
    "num_samples": Key("num_samples", int),
    "max_new_tokens": Key("max_new_tokens", int),
    "temperature": Key("temperature", float),
    "top_k": Key("top_k", int),
    "out_dir": Key("out_dir", str),
    "device": Key("device", str),
    "json": Key("as_json", bool),
    "compile": Key("compile", bool),
    "stop": Key("stop", str, many=True),
    "n_head": Key("n_head", int),
}


def read(tmp_path: Path, name: str, text: str | bytes) -> Settings:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path, KEYS)


def refused(tmp_path: Path, name: str, text: str | bytes) -> tuple[str, str | None]:
    """Return message and hint, with the folder cut out."""
    with pytest.raises(UsageError) as caught:
        read(tmp_path, name, text)
    assert caught.value.exit_code == 2
    return caught.value.message.replace(f"{tmp_path}/", ""), caught.value.hint


# --- TOML


def test_toml_keys_may_be_written_either_way(tmp_path: Path) -> None:
    text = 'top-k = 5\nmax_new_tokens = 1_000\ntemperature = 1\njson = true\nstop = ["a"]\n'
    assert read(tmp_path, "o.toml", text) == Settings(
        {"top_k": 5, "max_new_tokens": 1000, "temperature": 1, "as_json": True, "stop": ["a"]}
    )


@pytest.mark.parametrize("text", [b"", b"# nothing\n", b"\xef\xbb\xbf# a BOM\r\n"])
def test_an_empty_file_sets_nothing(tmp_path: Path, text: bytes) -> None:
    assert read(tmp_path, "o.toml", text) == Settings({})


def test_any_other_name_is_toml_too(tmp_path: Path) -> None:
    assert read(tmp_path, "options", b"\xef\xbb\xbftop_k = 5\r\n") == Settings({"top_k": 5})


def test_an_unknown_toml_key_lists_the_known_ones(tmp_path: Path) -> None:
    known = (
        "compile, device, json, max_new_tokens, n_head, num_samples, out_dir, prompt, start, stop, "
        "temperature, top_k"
    )
    assert refused(tmp_path, "o.toml", "tempreature = 1\n") == (
        "config 'o.toml': unknown key 'tempreature'",
        f"did you mean temperature? known keys: {known}",
    )
    assert refused(tmp_path, "o.toml", "[sample]\ntop_k = 1\n[x]\n") == (
        "config 'o.toml': unknown keys 'sample', 'x'",
        f"known keys: {known}",
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('top_k = "5"', "top_k is '5', text: it must be an integer"),
        ("top_k = 5.0", "top_k is 5.0, a float: it must be an integer"),
        ("top_k = true", "top_k is True, true or false: it must be an integer"),
        ("prompt = 123", "prompt is 123, an integer: it must be text"),
        ("json = 1", "json is 1, an integer: it must be true or false"),
        ('temperature = "warm"', "temperature is 'warm', text: it must be a number"),
        ("temperature = false", "temperature is False, true or false: it must be a number"),
        ("device = [1]", "device is a list: it must be text"),
        ("device = {a = 1}", "device is a table: it must be text"),
        ("device = 1979-05-27", "device is a date or time: it must be text"),
        ('stop = "x"', "stop is 'x', text: it must be a list, each item text"),
        ("stop = [1]", "stop is 1, an integer: it must be text"),
        ('prompt = "a\\u0000"', "prompt holds a zero byte"),
        ('stop = ["a", "\\u0000"]', "stop holds a zero byte"),
        ("top_k = 0x1" + "0" * 1024, "top_k is an integer of 4097 bits, more than 4096"),
        ("temperature = 0x1" + "0" * 256, "temperature is an integer of 1025 bits, more than 1023"),
        ("prompt = 0x1" + "0" * 9999, "prompt is an integer of 39997 bits, more than 4096"),
        ('top-k = 1\ntop_k = 2', "'top_k' is set twice, under two spellings"),
        ('start = "a"\nprompt = "b"', "'prompt' is set twice, under two spellings"),
    ],
)  # fmt: skip
def test_a_wrong_toml_value_is_told(tmp_path: Path, line: str, told: str) -> None:
    assert refused(tmp_path, "o.toml", line)[0] == f"config 'o.toml': {told}"


def test_an_integer_that_python_will_not_convert_is_told(tmp_path: Path) -> None:
    message, _ = refused(tmp_path, "o.toml", "top_k = " + "9" * 5000)
    assert message.startswith("config 'o.toml' is not TOML: exceeds the limit (4300 digits)")


def test_broken_toml_is_told_with_its_place(tmp_path: Path) -> None:
    told = refused(tmp_path, "o.toml", "top_k = 1\ntop_k 5\n")[0]
    assert told.startswith("config 'o.toml' is not TOML: ")
    assert "line 2" in told
    assert refused(tmp_path, "o.toml", "top_k = 1\ntop_k = 2\n")[0].startswith(
        "config 'o.toml' is not TOML: "
    )
    assert refused(tmp_path, "o.toml", "a = " + "[" * 100_000)[0].startswith(
        "config 'o.toml' is not TOML: "
    )


# --- what is no option file at all


def test_files_that_are_no_option_files(tmp_path: Path) -> None:
    assert refused(tmp_path, "o.toml", b"\x80\x02}q\x00.")[0] == "config 'o.toml' is not UTF-8 text"
    assert refused(tmp_path, "ckpt.pt", b"PK" + bytes(1 << 20)) == (
        "config 'ckpt.pt' is larger than 1 MiB: option files are short text",
        "a checkpoint is named without --config",
    )
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "absent.toml", KEYS)
    assert caught.value.message == f"no config file at {str(tmp_path / 'absent.toml')!r}"
    with pytest.raises(UsageError, match="is a folder"):
        load(tmp_path, KEYS)
    (tmp_path / "file").touch()
    with pytest.raises(NanoGPTError, match="cannot read config") as failed:
        load(tmp_path / "file" / "o.toml", KEYS)
    assert failed.value.exit_code == 1


def test_a_missing_file_is_told_with_the_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        load(Path("absent.py"), KEYS)
    assert caught.value.message == f"no config file at {str(tmp_path / 'absent.py')!r}"


# --- nanoGPT's config/*.py

TRAIN = """
# finetune
import time

out_dir = 'out-shakespeare'
eval_interval = 5
wandb_run_name = 'ft-' + str(time.time())
dataset = 'shakespeare'
init_from = 'gpt2-xl'
batch_size = 1
gradient_accumulation_steps = 5 * 8
max_iters = 20
n_head = 6
device = 'cpu' # run on cpu only
compile = False # do not torch compile the model
"""


def test_a_training_config_gives_what_sampling_needs(tmp_path: Path) -> None:
    assert read(tmp_path, "train.py", TRAIN) == Settings(
        {"out_dir": "out-shakespeare", "device": "cpu", "compile": False}, skipped=8
    )


def test_a_training_config_says_what_model_it_trains(nanogpt: Run, tmp_path: Path) -> None:
    """To the one command that is about a model's sizes; to others n_head is a key of training."""
    file = tmp_path / "train_shakespeare_char.py"
    file.write_text(
        "batch_size = 64\nblock_size = 256\nn_layer = 6\nn_head = 6\nn_embd = 384\n"
        "dropout = 0.2\nbias = False\n"
    )
    command = ("params", "--vocab-size", 65, "--rule", "nanogpt")
    expected = nanogpt(
        *command, "--n-layer=6", "--n-head=6", "--n-embd=384", "--block-size=256", "--no-bias"
    ).out
    got = nanogpt(*command, "--config", file)
    assert (got.out, got.code) == (expected, 0)
    assert "passed over 2 keys of nanoGPT's" in got.err


def test_nanogpt_s_keys_are_two_kinds() -> None:
    assert set() == SAMPLING_KEYS & TRAINING_KEYS
    assert {"start", "init_from", "out_dir", "compile"} <= SAMPLING_KEYS


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("top_k = 5 * 8 - 2 ** 3 // 2", {"top_k": 36}),
        ("temperature = 1 / 4 + -0.5 % 1", {"temperature": 0.75}),
        ("n = 3\ntop_k = num_samples = n * 2", {"top_k": 6, "num_samples": 6}),
        ("top_k = 1\ntop_k = 2", {"top_k": 2}),
        ("top_k = f()\ntop_k = 2", {"top_k": 2}),
        ("top_k: int = 4", {"top_k": 4}),
        ("top_k: int", {}),
        ("top_k = 4\ntop_k += 2", {"top_k": 6}),
        ("top_k, num_samples = 1, 2", {"top_k": 1, "num_samples": 2}),
        ("top_k, *rest = 1, 2", {"top_k": 1}),
        ("a = 1\nb = 2\na, b = b, a\ntop_k = a", {"top_k": 2}),
        ("[top_k, (num_samples, json)] = 1, (2, True)",
         {"top_k": 1, "num_samples": 2, "as_json": True}),
        ("top_k = None", {"top_k": 0}),
        ("temperature = 1", {"temperature": 1}),
        ("temperature = 1e-1", {"temperature": 0.1}),
        ("json = not False", {"as_json": True}),
        ("start = 'a' + \"b\" 'c'", {"prompt": "abc"}),
        ("start = '''a\nb'''", {"prompt": "a\nb"}),
        ("start = '\\n'", {"prompt": "\n"}),
        ("start = 'FILE:p.txt'", {"prompt": "FILE:p.txt"}),
        ("prompt = 'a'\nstart = 'b'", {"prompt": "b"}),
        ("start = 'a'\nprompt = 'b'\nstart = 'c'", {"prompt": "c"}),
        ("start = '\\d'", {"prompt": "\\d"}),
        ("stop = ['a', 'b']", {"stop": ["a", "b"]}),
        ("stop = ('a',)", {"stop": ["a"]}),
        ("top_k = 5;num_samples = 2", {"top_k": 5, "num_samples": 2}),
        ("_x = 1\nbase = 2\ntop_k = base", {"top_k": 2}),
        ("'''docstring'''\nprint('hi')\npass\ntop_k = 1", {"top_k": 1}),
        ("import os, time as t\nfrom math import pi\ntop_k = 1", {"top_k": 1}),
        ("def f():\n    top_k = 3\n    return top_k\nclass C:\n    top_k = 4\ntop_k = 1",
         {"top_k": 1}),
        ("if True:\n    other = 1\ntry:\n    import x\nexcept E as e:\n    pass\ntop_k = 1",
         {"top_k": 1}),
        ("for i in range(3):\n    with open('x') as f:\n        pass\ntop_k = 1", {"top_k": 1}),
        ("x = [z for z in y]\ntop_k = 1", {"top_k": 1}),
        ("name = f'{1}'\nd = {'a': 1}\nd['top_k'] = 3\nd.top_k = 4", {}),
    ],
)  # fmt: skip
def test_plain_values_are_read(tmp_path: Path, text: str, values: dict[str, Any]) -> None:
    for variant in (text, text.replace("\n", "\r\n"), "\ufeff" + text):
        if "'''" not in text or "\r" not in variant:
            assert read(tmp_path, "c.py", variant).values == values


def test_a_coding_line_is_heeded(tmp_path: Path) -> None:
    text = "# -*- coding: latin-1 -*-\nstart = 'é'\n".encode("latin-1")
    assert read(tmp_path, "c.py", text).values == {"prompt": "é"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\ntop_k = f()", 2),
        ("import random\nstart = random.choice('ab')", 2),
        ("out_dir = f'out-{1}'", 1),
        ("x = y = unknown\ntop_k = x", 2),
        ("x = 1\nx = f()\ntop_k = x", 3),
        ("if True:\n    top_k = 3", 1),
        ("top_k = 1\nif x:\n    top_k = 3", 2),
        ("try:\n    import torch\nexcept ImportError:\n    device = 'cpu'", 1),
        ("device = 'cuda' if x else 'cpu'", 1),
        ("for top_k in range(3): pass", 1),
        ("with f() as top_k: pass", 1),
        ("import numpy as device", 1),
        ("from x import device", 1),
        ("def compile(): pass", 1),
        ("class device: pass", 1),
        ("top_k, rest = f()", 1),
        ("*top_k, rest = 1, 2", 1),
        ("(top_k := 3)", 1),
        ("x = (top_k := 3)", 1),
        ("x = y = [f(top_k := 3)]", 1),
        ("top_k += 1", 1),
        ("top_k = 3\ndel top_k", 2),
        ("match x:\n    case top_k: pass", 1),
        ("try: pass\nexcept E as device: pass", 1),
        ("def f():\n    global top_k\n    top_k = 3", 1),
        ("top_k = 1 / 0", 1),
        ("top_k = 10 ** 10 ** 10", 1),
        ("top_k = 1 << 3", 1),
        ("import top_k.inner", 1),
        ("import other.inner as top_k", 1),
        ("temperature = (-8) ** 0.5", 1),
        ("temperature = 1e308 ** 2", 1),
        ("temperature = 10 ** 400 * 1.0", 1),
        ("start = 'a' * 10", 1),
        ("start = '%099999999d' % 1", 1),
        ("start = b'bytes'", 1),
        ("temperature = 1j", 1),
        ("top_k = " + "+".join(["1"] * 5000), 1),
        ("x = 'a'\n" + "x = x + x\n" * 60 + "start = x", 62),
    ],
)  # fmt: skip
def test_a_known_key_with_more_than_a_plain_value_is_refused(
    tmp_path: Path, text: str, line: int
) -> None:
    message, hint = refused(tmp_path, "c.py", text)
    if message != "config 'c.py' is not Python that can be read":  # how deep it may nest varies
        assert message.startswith(f"config 'c.py' line {line}: ")
        assert message.endswith(" is set by more than a plain value")
        assert hint == "write the value out: the file is read, never executed"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("top_k = 'x'", "line 1: top_k is 'x', text: it must be an integer"),
        ("\ntop_k = 1.0", "line 2: top_k is 1.0, a float: it must be an integer"),
        ("device = None", "line 1: device is None, nothing: it must be text"),
        ("start = ['a', ['b']]", "line 1: start is a list: it must be text"),
        ("from base import *\ntop_k = 1", "line 1: 'import *' may set any key"),
    ],
)
def test_a_wrong_python_value_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    assert refused(tmp_path, "c.py", text)[0] == f"config 'c.py' {told}"


def test_a_slip_in_a_key_is_not_passed_over(tmp_path: Path) -> None:
    message, hint = refused(tmp_path, "c.py", "eval_iters = 3\ntempreature = 0.1\nzz = 1\n")
    assert message == "config 'c.py': unknown keys 'tempreature', 'zz'"
    assert hint is not None
    assert hint.startswith("did you mean temperature? known keys: compile, ")
    assert "n_head" not in hint


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("top_k = 1\ntop_k = = 2\n", "'c.py' line 2: "),
        ("top_k = (1,\n", "'c.py' line 1: "),
        ("  top_k = 1\n", "'c.py' line 1: "),
        ("print 'x'\n", "'c.py' line 1: "),
        (b"start = '\xff'\n", "'c.py'"),
        (b"top_k\x00 = 1\n", "'c.py'"),
        ("top_k = 1\n".encode("utf-16"), "'c.py'"),
        ("x = " + "(" * 5000 + ")" * 5000, "'c.py'"),
        ("x = " + "-" * 50_000 + "1", "'c.py'"),
    ],
)
def test_what_is_not_python_is_told(tmp_path: Path, text: str | bytes, place: str) -> None:
    assert refused(tmp_path, "c.py", text)[0].startswith(f"config {place}")


@pytest.mark.parametrize("depth", [600, 900, 990, 1200])
@pytest.mark.parametrize("text", ["print({})", "x[{}] = 3", "if {}: pass", "x = {}"])
def test_how_deep_it_nests_is_no_bug(tmp_path: Path, text: str, depth: int) -> None:
    with contextlib.suppress(UsageError):  # that it nests too deep; how deep it may, varies
        read(tmp_path, "c.py", text.format("+".join(["y"] * depth)))


def test_nothing_is_executed(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    text = f"open({str(trap)!r}, 'w')\nx = open({str(trap)!r}, 'w')\nimport this\ntop_k = 1\n"
    assert read(tmp_path, "c.py", text).values == {"top_k": 1}
    assert not trap.exists()


LITERALS = st.recursive(
    st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(LITERALS)
def test_literals_are_read_as_python_reads_them(value: Any) -> None:
    found = Assignments(Path("c.py"), f"x = {value!r}\n".encode("utf-8", "backslashreplace"))
    assert found.values["x"] == (value, 1)


@given(st.text("0123456789+-*/%() .e", max_size=12))
def test_arithmetic_is_python_s_or_none(text: str) -> None:
    try:
        expected = eval(text, {"__builtins__": {}}) if "**" not in text else None
    except Exception:
        return
    if not isinstance(expected, int | float) or isinstance(expected, bool):
        return
    found = Assignments(Path("c.py"), f"x = ({text})\n".encode()).values.get("x")
    if found is None:
        assert abs(expected) > 1e9 or math.isinf(expected)
    else:
        assert found[0] == expected or math.isnan(expected)


# --- through the command line


def test_the_note_names_how_many_keys_were_passed_over(nanogpt: Run, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("batch_size = 4\nlearning_rate = 1e-3\n")
    note = f"note: {path}: passed over 2 keys of nanoGPT's that have no meaning here\n"
    words = ("params", "gpt2", "--rule", "nanogpt", "--config", path)
    assert nanogpt(*words).err.count(note) == 1
    assert note not in nanogpt(*words, "-q").err


def test_an_error_in_a_file_is_an_error_of_usage(nanogpt: Run, tmp_path: Path) -> None:
    path = tmp_path / "o.toml"
    path.write_text("nonsense = 1\n")
    got = nanogpt("params", "gpt2", "--config", path)
    assert (got.code, got.out) == (2, "")
    assert got.err.startswith(f"error: config {str(path)!r}: unknown key 'nonsense'\nhint: ")
