"""`nanogpt params`, from the command line down."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from nanogpt_cli.accounting import Workload, account, find_known_config, name_hardware
from nanogpt_cli.cli import main
from nanogpt_cli.commands.params import ParamsReport, render
from nanogpt_cli.commands.params.models import parse_count
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.errors import UsageError
from nanogpt_cli.model import GPT

ZOO = Path(os.environ.get("NANOGPT_ZOO", Path(__file__).parents[3] / "shared" / "zoo"))

TINY = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 16, "vocab_size": 11}
TINY_FLAGS = [f"--{name.replace('_', '-')}={size}" for name, size in TINY.items()]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["params", *args])
    out, err = capsys.readouterr()
    return code, out, err


def report(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    code, out, err = run(capsys, *args, "--json", "-q")
    assert (code, err) == (0, "")
    loaded: dict[str, Any] = json.loads(out)
    return loaded


def model(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    (only,) = report(capsys, *args)["models"]
    assert isinstance(only, dict)
    return only


def test_one_of_a_thing_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--n-layer=1", "--n-head=1", "--n-embd=8", "--block-size=1", "--vocab-size=9")
    _, shown, _ = run(capsys, *flags)
    assert "1 layer, 1 head, 8 wide" in shown
    assert "KV cache, 1 token " in shown
    for plural in ("1 layers", "1 heads", "1 tokens", "1 blocks"):
        assert f" {plural}" not in shown


def lines_of(out: str) -> list[list[str]]:
    """Return the cells of each line; cells are two blanks or more apart."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in out.split("\n")]


def save(path: Path, tiny: GPT, **more: Any) -> Path:
    torch.save({"model": tiny.state_dict(), "model_args": {**TINY, "bias": True}, **more}, path)
    return path


# --- names


@pytest.mark.parametrize(
    ("name", "counts", "labels"),
    [
        ("gpt2", (124_439_808, 123_653_376, 85_056_000, 163_037_184), ("124M", "117M")),
        ("gpt2-medium", (354_823_168, 353_774_592, 302_311_424, 406_286_336), ("355M", "345M")),
        ("gpt2-large", (774_030_080, 772_719_360, 708_390_400, 838_359_040), ("774M", "762M")),
        (
            "openai-community/gpt2-xl",
            (1_557_611_200, 1_555_972_800, 1_475_561_600, 1_638_022_400),
            ("1558M", "1542M"),
        ),
    ],
)
def test_every_rule_and_both_labels(
    capsys: pytest.CaptureFixture[str], name: str, counts: tuple[int, ...], labels: tuple[str, str]
) -> None:
    code, out, err = run(capsys, name)
    assert (code, err) == (0, "")
    cells = lines_of(out)
    rules = ("total", "nanogpt", "non-embedding", "state-dict")
    found = {row[2]: int(row[1].replace(",", "")) for row in cells if row[2:] and row[2] in rules}
    assert found == dict(zip(rules, counts, strict=True))
    short = name.removeprefix("openai-community/")
    assert f"{short}: {labels[0]}, first {labels[1]}" in out
    assert f"nanoGPT prints {counts[1] / 1e6:.2f}M" in out
    entry = model(capsys, name)
    assert entry["parameters"] == dict(
        zip(("total", "nanogpt", "non_embedding", "state_dict"), counts, strict=True)
    )
    assert (entry["published_as"], tuple(entry["published_labels"])) == (short, labels)


def test_an_unknown_name_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "gpt3")
    assert (code, out) == (2, "")
    assert err == (
        "error: unknown model 'gpt3': known are gpt2, gpt2-medium, gpt2-large, gpt2-xl, "
        "distilgpt2, demo\n"
        "hint: or give a path, a hub id owner/name, or sizes such as --n-layer 12 --n-embd 768\n"
    )


@pytest.mark.parametrize("name", ["GPT2-XL", "gpt2_xl", "gpt2xl"])
def test_a_misspelt_name(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = run(capsys, name)
    assert (code, out) == (2, "")
    assert err.endswith("distilgpt2, demo\nhint: did you mean gpt2-xl?\n")


def test_no_model_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: no model was given\nhint: give a checkpoint, one of gpt2, ")


def test_nothing_is_loaded_fetched_or_written(tmp_path: Path) -> None:
    program = """
import socket, sys
def refuse(*args, **kwargs):
    raise AssertionError("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
from nanogpt_cli.cli import main
codes = [main(["params", name, "-q", "--rule=total"]) for name in sys.argv[1:]]
heavy = {"torch", "numpy", "transformers", "tiktoken", "huggingface_hub", "safetensors"}
print(codes, sorted(heavy & set(sys.modules)))
"""
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "HF_HOME": str(tmp_path)}
    env = {**os.environ, **home, "PYTHONDONTWRITEBYTECODE": "1"}
    names = ["gpt2-xl", "openai-community/gpt2", "distilbert/distilgpt2"]
    done = subprocess.run(
        [sys.executable, "-c", program, *names],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
    )
    assert done.stderr == ""
    assert done.stdout == "1557611200\n124439808\n81912576\n[0, 0, 0] []\n"
    assert list(tmp_path.iterdir()) == []


# --- one count


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        ("total", "124439808"),
        ("nanogpt", "123653376"),
        ("non-embedding", "85056000"),
        ("state-dict", "163037184"),
    ],
)
def test_one_bare_integer(capsys: pytest.CaptureFixture[str], rule: str, count: str) -> None:
    assert run(capsys, "gpt2", "--rule", rule, "-q") == (0, f"{count}\n", "")


def test_one_integer_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "gpt2", "distilgpt2", "--rule", "nanogpt")
    assert (code, out) == (0, "123653376\n81126144\n")
    assert err == "note: counted: all but wpe (nanoGPT's get_num_params)\n"


def test_an_unknown_rule(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "gpt2", "--rule", "mine")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")


def test_the_rule_is_named_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    whole = report(capsys, "gpt2", "--rule", "non-embedding")
    assert whole["rule"] == "non_embedding"
    assert whole["models"][0]["parameters"][whole["rule"]] == 85_056_000
    assert report(capsys, "gpt2")["rule"] is None


# --- JSON


def test_json_holds_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    whole = report(capsys, "gpt2", "--batch-size", "8")
    assert list(whole) == ["schema", "models", "rule"]
    assert whole["schema"] == "nanogpt.params/1"
    (entry,) = whole["models"]
    assert entry["name"] == "gpt2"
    assert entry["config"] == {
        "n_layer": 12,
        "n_head": 12,
        "n_embd": 768,
        "block_size": 1024,
        "vocab_size": 50257,
        "bias": True,
        "tied_head": True,
        "activation": "gelu_tanh",
    }
    rows = entry["breakdown"]["rows"]
    assert sum(row["parameters"] for row in rows) == entry["parameters"]["total"]
    assert rows[-1]["name"] == "lm_head"
    assert (rows[-1]["parameters"], rows[-1]["tied_parameters"]) == (0, 38_597_376)
    assert entry["decay"] == {
        "decayed_parameters": 124_318_464,
        "decayed_tensors": 50,
        "non_decayed_parameters": 121_344,
        "non_decayed_tensors": 98,
    }
    assert entry["memory"]["weights_and_adam_bytes"] == 1_493_277_696
    assert entry["memory"]["masks_bytes"] == 50_331_648
    assert entry["kv_cache"]["per_token_bytes"]["float32"] == 73_728
    assert entry["kv_cache"]["batch_bytes"]["bfloat16"] == 8 * 37_748_736
    assert entry["flops"]["formula"]["flops_per_token"] == 855_166_464
    assert entry["padding_rows"] == 0
    assert [entry[name] for name in ("stored", "step", "training")] == [None, None, None]


# --- the table


def test_the_table_of_one_model(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "gpt2")
    assert (code, err) == (0, "")
    cells = lines_of(out)
    assert cells[0] == ["gpt2"]
    assert cells[1] == [
        "12 layers, 12 heads, 768 wide, block 1,024, vocab 50,257, biases, tied head"
    ]
    for row in (
        ["lm_head", "0", "0", "0.00 %", "tied to wte (38,597,376)"],
        ["h: 12 blocks", "7,087,872", "85,054,464", "68.35 %", "the h rows together"],
        ["total", "124,439,808", "100.00 %"],
        ["decayed", "124,318,464", "50", "two axes or more"],
        ["not decayed", "121,344", "98", "biases, norms"],
        ["weights", "497,759,232", "248,879,616", "124,439,808"],
        ["Adam moments", "995,518,464"],
        ["weights + Adam (checkpoint)", "1,493,277,696"],
        ["+ gradients (training)", "1,991,036,928"],
        ["causal masks if stored", "50,331,648"],
        ["KV cache, a token", "73,728", "36,864"],
        ["KV cache, 1,024 tokens", "75,497,472", "37,748,736"],
        ["forward", "291,648,307,200", "100.00 %"],
        ["forward + backward", "874,944,921,600", "times 3"],
        ["6N + 12·L·H·Q·T", "875,690,459,136", "N without wpe; 1.0009 x itemised"],
        ["a token", "855,166,464"],
        ["untrained loss", "10.8249", "ln of the vocabulary, nats a token"],
    ):
        assert row in cells
    table = out.split("where they are")[1].split("h: 12 blocks")[0]
    inner = [row for row in lines_of(table) if len(row) >= 4]
    assert sum(int(row[2].replace(",", "")) for row in inner) == 124_439_808


def test_several_models_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "gpt2", "gpt2-xl", "distilgpt2")
    assert (code, err) == (0, "")
    cells = lines_of(out)
    assert cells[0] == ["gpt2", "gpt2-xl", "distilgpt2"]
    for row in (
        ["layers", "12", "48", "6"],
        ["nanogpt: without wpe", "123,653,376", "1,555,972,800", "81,126,144"],
        ["published as", "124M, 117M", "1558M, 1542M", "82M"],
        ["lm_head", "0", "0", "0"],
        ["untrained loss", "10.8249", "10.8249", "10.8249"],
    ):
        assert row in cells
    assert not any(row[:1] == ["MFU"] for row in cells)


def test_several_models_with_a_workload(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--gpu=A100", "--gpus=8", "--mfu=0.3", "--tokens=300B", "--step-time=9"]
    code, out, _ = run(capsys, "gpt2", "gpt2-xl", *flags, "--sequences=480")
    cells = lines_of(out)
    assert code == 0
    assert ["MFU", "1.87 %", "22.49 %"] in cells
    assert ["days", "3.462", "43.336"] in cells


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_of_any_width_shows_every_number(width: int) -> None:
    config = find_known_config("gpt2-xl")
    assert config is not None
    work = Workload(4, 2.5, 100, 10**12, None, name_hardware("h100", 8))
    page = render(ParamsReport((account(config, "gpt2-xl", work),)))
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=True, color_system=None).print(page)
    text = stream.getvalue()
    assert max(len(line) for line in text.split("\n")) <= width
    assert "…" not in text
    for number in ("1,557,611,200", "18,691,334,400", "10,520,110,694,400", "tied to wte"):
        assert number in text


def test_names_are_shown_harmless() -> None:
    page = render(ParamsReport((account(GPTConfig(), "a[bold]b[/x]\x1b[31m"),) * 2))
    stream = io.StringIO()
    Console(file=stream, width=120).print(page)
    assert stream.getvalue().split("\n")[0].split() == [r"a[bold]b[/x]\x1b[31m"] * 2


# --- sizes by flags


def test_flags_beside_a_name_override_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "gpt2", "--vocab-size", "50304")
    assert code == 0
    cells = lines_of(out)
    assert cells[0] == ["gpt2 (by flags: vocab_size)"]
    assert ["all, a tied head once", "124,475,904", "total", "as Hugging Face counts"] in cells
    assert ["padding rows", "47", "of wte: GPT-2's vocabulary is 50,257"] in cells
    entry = model(capsys, "gpt2", "--vocab-size", "50304", "--no-bias")
    assert entry["parameters"]["total"] == 124_373_760
    assert entry["parameters"]["nanogpt"] == 123_587_328
    assert entry["padding_rows"] == 47
    assert entry["changed"] == ["vocab_size", "bias"]
    assert entry["published_as"] is None
    assert model(capsys, "gpt2", "--bias", "--n-layer=12")["changed"] == []


def test_padding_is_told_beside_a_bare_count(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, "gpt2", "--vocab_size=50304", "--rule=nanogpt")
    assert out == "123689472\n"
    assert "note: gpt2: 47 rows of wte are padding\n" in err


def test_the_notebooks_model(capsys: pytest.CaptureFixture[str]) -> None:
    entry = model(capsys, "gpt2", "--no-bias")
    assert entry["parameters"]["total"] == 124_337_664
    assert entry["flops"]["forward_flops"] == 291_648_307_200
    assert entry["flops"]["forward_backward_flops"] == 874_944_921_600


def test_flags_alone_are_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--n-layer=24", "--n-embd=1024", "--vocab-size=20573", "--block-size=1024"]
    code, out, err = run(capsys, *flags, "--rule=total")
    assert (code, out) == (0, "324426752\n")
    assert err.split("\n")[:2] == [
        "note: n_head 12 does not divide n_embd 1024, so n_head is taken as 16; "
        "no figure here depends on it",
        "note: nanoGPT's defaults for what was not given: bias True",
    ]
    assert model(capsys, *flags)["name"] == "custom"


def test_flags_alone_take_nanogpts_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--n-layer", "6", "--rule", "total")
    assert (code, out) == (0, "81948672\n")
    assert err.startswith(
        "note: nanoGPT's defaults for what was not given: n_head 12, n_embd 768, "
        "block_size 1024, vocab_size 50304, bias True\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--n-layer=0"], "n_layer is 0: it must be an integer of at least 1"),
        (["--vocab-size=-5"], "vocab_size is -5: it must be an integer of at least 1"),
        (["--n-head=7"], "n_embd 768 is not divisible by n_head 7"),
        (["--n-embd=3000000000"], "n_embd is 3000000000: sizes up to 2,147,483,647 are counted"),
        (["--batch-size=0"], "the batch size is 0: it must be 1 to 2,147,483,647"),
        (["--gpus=0"], "the number of GPUs is 0: it must be 1 to 2,147,483,647"),
        (["--step-time=0"], "the duration of a step in seconds is 0.0: it must be a positive"),
        (["--step-time=nan"], "the duration of a step in seconds is nan: it must be a positive"),
        (["--sequences=0"], "the number of sequences in a step is 0: it must be 1 to"),
        (["--peak-tflops=-1"], "the GPU's peak in FLOPs a second is -1000000000000.0: it must"),
        (["--mfu=30"], "the MFU is 30.0: it is a fraction and at most 1"),
        (["--tokens=300X"], "'300X' is no count of tokens"),
        (["--tokens=0"], "'0' is no count of tokens"),
    ],
)
@pytest.mark.parametrize("name", [["gpt2"], []])
def test_values_that_cannot_be_meant(
    capsys: pytest.CaptureFixture[str], name: list[str], flags: list[str], message: str
) -> None:
    code, out, err = run(capsys, *name, *flags)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")


# --- time


def test_utilisation_of_the_notebooks_step(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--gpu", "nvidia a100-sxm4-80gb", "--step-time", "0.755", "--sequences", "100"]
    code, out, err = run(capsys, "gpt2", "--no-bias", *flags)
    assert (code, err) == (0, "")
    cells = lines_of(out)
    assert ["time", "0.755 s", "100 sequences on 1 x A100"] in cells
    assert ["MFU", "37.15 %", "6N + 12·L·H·Q·T, peak 312 TFLOPS"] in cells
    assert ["MFU, itemised", "37.14 %", "forward + backward above"] in cells
    step = model(capsys, "gpt2", "--no-bias", *flags)["step"]
    assert step["hardware"] == {"gpu": "A100", "gpus": 1, "peak_flops_per_second": 312e12}
    assert round(step["mfu_itemised"], 4) == 0.3714


def test_an_unknown_gpu_stays_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--gpu", "TPU v9", "--step-time", "0.755", "--sequences", "100"]
    code, out, err = run(capsys, "gpt2", *flags)
    assert code == 0
    assert err == (
        "note: unknown GPU 'TPU v9', so there is no MFU: known are A100, H100, H200, B200, "
        "RTX 4090, RTX 3090, L4; --peak-tflops gives the peak of another\n"
    )
    assert ["MFU", "unknown", "6N + 12·L·H·Q·T, peak unknown"] in lines_of(out)
    step = model(capsys, "gpt2", *flags)["step"]
    assert (step["mfu"], step["mfu_itemised"]) == (None, None)
    assert step["hardware"]["gpu"] == "TPU v9"
    told = model(capsys, "gpt2", *flags, "--peak-tflops", "312")["step"]
    assert told["mfu"] == pytest.approx(0.37174, abs=1e-5)


def test_more_than_the_peak_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--gpu=h100", "--step-time=0.001", "--sequences=100", "--rule=total", "-q"]
    code, out, err = run(capsys, "gpt2", *flags)
    assert (code, out) == (0, "124439808\n")
    assert err == (
        "warning: gpt2: an MFU of 8854.3 % is above 100 %: look at --step-time, --sequences and "
        "--gpus again\n"
    )


def test_days_of_the_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--tokens=300B", "--gpus=8", "--mfu=0.3", "--gpu=A100"]
    code, out, err = run(capsys, "gpt2", "--no-bias", *flags)
    assert (code, err) == (0, "")
    assert ["days", "3.459", "8 x A100 at 30 %, peak 312 TFLOPS"] in lines_of(out)
    training = model(capsys, "gpt2", "--no-bias", *flags)["training"]
    assert training["training_flops"] == 6 * 124_337_664 * 300_000_000_000
    assert round(training["days"], 3) == 3.459


def test_days_without_anything_to_go_by(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "gpt2", "--tokens=300B")
    assert code == 0
    assert err == "note: the days need --gpu and --mfu, or --step-time\n"
    assert ["days", "unknown", "needs a known GPU and --mfu, or --step-time"] in lines_of(out)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--gpu=A100"], "the GPU has no effect yet: --step-time gives MFU, --tokens gives days"),
        (["--gpus=8"], "the GPU has no effect yet: --step-time gives MFU, --tokens gives days"),
        (["--sequences=8"], "--sequences has no effect without --step-time"),
        (["--mfu=0.3"], "--mfu has no effect without --tokens"),
        (["--step-time=1", "--sequences=8"], "the MFU needs --gpu"),
        (
            ["--step-time=1", "--gpu=L4", "--batch-size=4"],
            "--sequences was not given: a step is taken as 4",
        ),
    ],
)
def test_what_has_no_effect_is_said(
    capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    code, _, err = run(capsys, "gpt2", *flags)
    assert (code, err) == (0, f"note: {message}\n")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("300B", 300_000_000_000),
        ("300b", 300_000_000_000),
        ("1.5K", 1500),
        ("2,000", 2000),
        ("10_000M", 10_000_000_000),
        ("1e9", 10**9),
        ("2.5e3", 2500),
        ("1T", 10**12),
        (" 7 ", 7),
    ],
)
def test_counts_with_units(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text",
    ["", "B", "1.5", "0.0001K", "-3", "0", "1e", "1e999", "nan", "inf", "1..5", "3G", "9" * 41],
)
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(UsageError, match="is no count of tokens"):
        parse_count(text)


# --- files


def test_a_checkpoint_counts_a_tied_head_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tiny = GPT(GPTConfig(**TINY))  # type: ignore[arg-type]
    path = save(tmp_path / "ckpt.pt", tiny)
    assert {"lm_head.weight", "transformer.wte.weight"} <= tiny.state_dict().keys()
    entry, expected = model(capsys, str(path)), model(capsys, *TINY_FLAGS)
    assert entry["name"] == str(path)
    for part in ("parameters", "breakdown", "decay", "memory", "kv_cache", "flops", "config"):
        assert entry[part] == expected[part], part
    assert entry["stored"] == {
        "weights_bytes": {"float32": 4 * expected["parameters"]["total"]},
        "masks_bytes": 0,
        "optimizer_bytes": 0,
    }


def test_an_untied_head_is_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = save(tmp_path / "ckpt.pt", GPT(GPTConfig(**TINY, tied_head=False)))  # type: ignore[arg-type]
    entry, tied = model(capsys, str(path)), model(capsys, *TINY_FLAGS)
    assert entry["parameters"]["total"] == tied["parameters"]["total"] + 11 * 8
    assert entry["parameters"]["total"] == tied["parameters"]["state_dict"]
    assert entry["parameters"]["state_dict"] == tied["parameters"]["state_dict"]
    assert entry["breakdown"]["rows"][-1]["parameters"] == 11 * 8
    _, _, err = run(capsys, str(path))
    assert "head is not tied" in err


def test_masks_and_moments_in_a_file_are_no_parameters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tiny = GPT(GPTConfig(**TINY, attention="manual"))  # type: ignore[arg-type]
    optimizer = tiny.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")
    _, loss = tiny(torch.zeros(1, 4, dtype=torch.long), torch.ones(1, 4, dtype=torch.long))
    assert loss is not None
    loss.backward()
    optimizer.step()
    path = save(tmp_path / "ckpt.pt", tiny, optimizer=optimizer.state_dict())
    entry, expected = model(capsys, str(path)), model(capsys, *TINY_FLAGS)
    assert entry["parameters"] == expected["parameters"]
    assert entry["stored"]["masks_bytes"] == expected["memory"]["masks_bytes"] == 2 * 16 * 16 * 4
    steps = 4 * len(list(tiny.parameters()))
    moments = expected["memory"]["adam_moments_bytes"]
    assert entry["stored"]["optimizer_bytes"] == moments + steps
    _, out, _ = run(capsys, str(path))
    assert ["masks in the file", "2.0 kB", "2,048 bytes"] in lines_of(out)
    assert "if stored" not in out


def test_flags_beside_a_file_override_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = save(tmp_path / "ckpt.pt", GPT(GPTConfig(**TINY)))  # type: ignore[arg-type]
    entry = model(capsys, str(path), "--block-size=8")
    wanted = model(capsys, *TINY_FLAGS, "--block-size=8")
    assert entry["parameters"] == wanted["parameters"]
    assert (entry["changed"], entry["stored"]) == (["block_size"], None)


def test_a_local_path_wins_over_a_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    save(tmp_path / "gpt2" / "ckpt.pt", GPT(GPTConfig(**TINY)))  # type: ignore[arg-type]
    code, out, err = run(capsys, "gpt2", "--rule=total")
    expected = model(capsys, *TINY_FLAGS)["parameters"]["total"]
    assert (code, out) == (0, f"{expected}\n")
    assert "note: 'gpt2' is a local path and is used, not the model of that name\n" in err


def test_a_missing_path(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, str(tmp_path / "no.pt"))
    assert (code, out) == (2, "")
    assert str(tmp_path / "no.pt") in err


def test_a_file_that_is_no_checkpoint(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt").write_text("<html>not found</html>")
    code, out, err = run(capsys, str(tmp_path))
    assert (code, out) == (1, "")
    assert err.startswith("error: ")


def test_a_checkpoint_is_read_without_torch(tmp_path: Path) -> None:
    path = save(tmp_path / "ckpt.pt", GPT(GPTConfig(**TINY)))  # type: ignore[arg-type]
    program = (
        "import sys; from nanogpt_cli.cli import main; main(['params', sys.argv[1], '-q']);"
        "print(sorted({'torch', 'numpy', 'transformers', 'tiktoken'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout.endswith("\n[]\n")


@pytest.mark.real
@pytest.mark.skipif(not ZOO.is_dir(), reason="no folder of real files")
@pytest.mark.parametrize(
    ("folder", "total", "nanogpt"),
    [("nanogpt-char", 205_248, 201_152), ("minGPT-adder", 86_160, 85_872)],
)
def test_real_files(
    capsys: pytest.CaptureFixture[str], folder: str, total: int, nanogpt: int
) -> None:
    counts = model(capsys, str(ZOO / folder))["parameters"]
    assert (counts["total"], counts["nanogpt"]) == (total, nanogpt)


@pytest.mark.real
@pytest.mark.skipif(not ZOO.is_dir(), reason="no folder of real files")
def test_heads_that_no_file_tells_are_not_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    adder = str(ZOO / "minGPT-adder")
    assert model(capsys, adder)["config"]["n_head"] is None
    assert model(capsys, adder, "--n-head=3")["config"]["n_head"] == 3
    _, out, _ = run(capsys, adder)
    assert "3 layers, heads unknown, 48 wide" in out
