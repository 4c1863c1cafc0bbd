"""`nanogpt crop`, from the command line down."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import Run
from crop_files import load, save_training
from model_files import ALPHABET, build, save_meta, save_nanogpt
from rich.console import Console

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.checkpoints.finding.refs import Located
from nanogpt_cli.commands.crop import render
from nanogpt_cli.surgery import CropReport, crop
from nanogpt_cli.surgery.outputs import default_output

WPE = "transformer.wpe.weight"


@pytest.fixture
def ckpt(tmp_path: Path) -> Path:
    return save_training(tmp_path / "ckpt.pt")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_report_is_a_receipt(nanogpt: Run, ckpt: Path) -> None:
    outcome = nanogpt("crop", ckpt, "--block-size", 8)
    assert (outcome.code, outcome.err) == (0, "")
    target = ckpt.with_name("ckpt-8.pt")
    assert load(target)["model_args"]["block_size"] == 8
    lines = [line.split() for line in outcome.out.splitlines()]
    assert outcome.out.startswith(f"wrote {target}, block_size 16 to 8\n")
    assert ["position", "table", "1,536", "768", "768"] in lines
    assert ["optimizer,", "position", "table", "3,072", "1,536", "1,536"] in lines
    sizes = [path.stat().st_size for path in (ckpt, target)]
    total = [f"{size:,}" for size in (*sizes, sizes[0] - sizes[1])]
    assert ["in", "all", *total] in lines
    assert outcome.out.endswith("verified: logits over 8 positions are the same to the last bit\n")


def test_json_has_raw_numbers(nanogpt: Run, ckpt: Path) -> None:
    outcome = nanogpt("crop", ckpt, "--block-size", 8, "--json", "--dtype", "bfloat16")
    (row,) = outcome.rows
    assert next(iter(row)) == "schema"
    assert row["schema"] == "nanogpt.crop/1"
    assert (row["block_size_before"], row["block_size_after"]) == (16, 8)
    assert row["before_bytes"] == ckpt.stat().st_size
    assert row["after_bytes"] == ckpt.with_name("ckpt-8.pt").stat().st_size
    for when in ("before_bytes", "after_bytes"):
        assert sum(part[when] for part in row["parts"]) == row[when]
    assert {"name": WPE, "before": [16, 24], "after": [8, 24]} in row["cuts"]
    assert row["cast"]["dtype"] == "bfloat16"
    assert 0 < row["verification"]["largest_difference"] < 1
    assert 0 < row["verification"]["top_1_agreement"] <= 1


def test_underscores_are_taken_too(nanogpt: Run, ckpt: Path) -> None:
    assert nanogpt("crop", ckpt, "--block_size=8", "--weights_only", "-q").code == 0
    assert "optimizer" not in load(ckpt.with_name("ckpt-8.pt"))


@pytest.mark.parametrize(
    ("block_size", "message", "hint"),
    [
        (
            "32",
            "cannot grow block_size from 16 to 32: learned positions end at 16",
            "give --block-size 16 or less",
        ),
        ("0", "block_size is 0: a model has at least 1 position", "give --block-size 1 or more"),
        ("-1", "block_size is -1: a model has at least 1 position", "give --block-size 1 or more"),
    ],
)
def test_impossible_sizes_are_wrong_usage(
    nanogpt: Run, ckpt: Path, block_size: str, message: str, hint: str
) -> None:
    outcome = nanogpt("crop", ckpt, "--block-size", block_size)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"error: {message}\nhint: {hint}\n"
    assert names(ckpt.parent) == ["ckpt.pt"]


@pytest.mark.parametrize("args", [["--block-size", "8.5"], ["--block-size", "many"], []])
def test_no_whole_number_is_wrong_usage(nanogpt: Run, ckpt: Path, args: list[str]) -> None:
    assert nanogpt("crop", ckpt, *args).code == 2
    assert names(ckpt.parent) == ["ckpt.pt"]


def test_no_checkpoint_is_wrong_usage(nanogpt: Run) -> None:
    assert nanogpt("crop", "--block-size", 8).code == 2


def test_the_same_size_is_a_copy_and_said_so(nanogpt: Run, ckpt: Path) -> None:
    outcome = nanogpt("crop", ckpt, "--block-size", 16)
    assert outcome.code == 0
    assert outcome.err == "note: block_size is 16 already: there is nothing to do but copy\n"
    assert outcome.out.startswith(f"wrote {ckpt.with_name('ckpt-16.pt')}, a copy\n")
    assert ckpt.with_name("ckpt-16.pt").read_bytes() == ckpt.read_bytes()


def test_an_output_that_exists_is_kept_unless_forced(nanogpt: Run, ckpt: Path) -> None:
    target = ckpt.with_name("ckpt-8.pt")
    target.write_bytes(b"precious")
    outcome = nanogpt("crop", ckpt, "--block-size", 8)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: '{target}' exists already\n")
    assert nanogpt("crop", ckpt, "--block-size", 8, "--dry-run").code == 2
    assert target.read_bytes() == b"precious"
    assert nanogpt("crop", ckpt, "--block-size", 8, "--force").code == 0
    assert load(target)["model_args"]["block_size"] == 8


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("link", [None, os.link, os.symlink])
def test_an_output_that_is_the_input_is_refused(
    nanogpt: Run, ckpt: Path, link: object, force: list[str]
) -> None:
    target = ckpt
    if link is not None:
        target = ckpt.with_name("other.pt")
        link(ckpt, target)  # type: ignore[operator]
    before = ckpt.read_bytes()
    outcome = nanogpt("crop", ckpt, "--block-size", 8, "-o", target, *force)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: the output '{target}' is the input")
    assert ckpt.read_bytes() == before


def test_a_dry_run_shows_the_receipt_alone(nanogpt: Run, ckpt: Path) -> None:
    outcome = nanogpt("crop", ckpt, "--block-size", 8, "--dry-run", "--dtype", "float16")
    assert outcome.code == 0
    assert outcome.out.startswith(f"would write {ckpt.with_name('ckpt-8.pt')}, block_size 16 to 8")
    assert "cast to float16\n" in outcome.out
    assert outcome.out.endswith("verified: no, nothing was written\n")
    assert names(ckpt.parent) == ["ckpt.pt"]


def test_a_folder_with_a_checkpoint_gets_its_crop_inside(nanogpt: Run, ckpt: Path) -> None:
    assert nanogpt("crop", ckpt.parent, "--block-size", 8).code == 0
    assert names(ckpt.parent) == ["ckpt-8.pt", "ckpt.pt"]


def located(kind: str, given: str, path: str) -> Located:
    return Located(given, Path(path), kind)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (located("file", "out/ckpt.pt", "out/ckpt.pt"), "out/ckpt-256.pt"),
        (located("file", "out", "out/ckpt.pt"), "out/ckpt-256.pt"),
        (located("file", "m", "m"), "m-256"),
        (located("file", "a/model.v2.safetensors", "a/model.v2.safetensors"), None),
        (located("hub", "gpt2", "/cache/abc"), "gpt2-256"),
        (located("hub", "me/small@v1", "/cache/abc"), "small-256"),
        (located("demo", "demo", "/package/demo/ckpt.pt"), "demo-256.pt"),
    ],
)
def test_where_a_crop_goes(ckpt: Path, found: Located, expected: str | None) -> None:
    checkpoint = replace(open_checkpoint(str(ckpt)), located=found)
    expected = expected or "a/model.v2-256.safetensors"
    assert default_output(checkpoint, 256) == Path(expected)


def test_a_folder_goes_beside_itself_by_whatever_name(
    tmp_path: Path, ckpt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs" / "model"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    for given in (".", "../model", str(folder), f"{folder}/"):
        found = Located(given, Path(given), "folder")
        checkpoint = replace(open_checkpoint(str(ckpt)), located=found)
        assert default_output(checkpoint, 8) == tmp_path / "runs" / "model-8"


def test_the_demo_goes_to_the_working_directory(
    nanogpt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert nanogpt("crop", "demo", "--block-size", 32).code == 0
    assert "demo-32.pt" in names(tmp_path)
    sampled = nanogpt("sample", "demo-32.pt", "-m", 8, "--prompt", "To be")
    assert sampled.code == 0


def test_the_tokenizer_goes_along_to_another_folder(
    nanogpt: Run, ckpt: Path, tmp_path: Path
) -> None:
    save_meta(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    outcome = nanogpt("crop", ckpt, "--block-size", 8, "-o", other / "small.pt")
    assert outcome.err == "note: 'meta.pkl' was taken along\n"
    assert (other / "meta.pkl").read_bytes() == (tmp_path / "meta.pkl").read_bytes()
    again = nanogpt("crop", ckpt, "--block-size", 7, "-o", other / "smaller.pt")
    assert again.err == ""
    (other / "meta.pkl").write_bytes(b"another")
    last = nanogpt("crop", ckpt, "--block-size", 6, "-o", other / "smallest.pt")
    assert last.err == (f"note: '{other / 'meta.pkl'}' is another model's and was left as it is\n")
    assert (other / "meta.pkl").read_bytes() == b"another"


def test_no_tokenizer_is_a_note(nanogpt: Run, ckpt: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    outcome = nanogpt("crop", ckpt, "--block-size", 8, "-o", other / "small.pt")
    assert outcome.code == 0
    assert outcome.err.startswith("note: no tokenizer was taken along: no tokenizer found")


@pytest.mark.parametrize("attention", ["sdpa", "manual"])
def test_a_prompt_longer_than_the_new_context_samples(
    nanogpt: Run, tmp_path: Path, attention: str
) -> None:
    save_meta(tmp_path)
    path = save_nanogpt(tmp_path / "ckpt.pt", build(attention=attention))
    assert nanogpt("crop", path, "--block-size", 8).code == 0
    prompt = ALPHABET[1:60]
    long = nanogpt("sample", tmp_path / "ckpt-8.pt", "-p", prompt, "-m", 5, "-t", 0, "--no-echo")
    short = nanogpt(
        "sample", tmp_path / "ckpt-8.pt", "-p", prompt[-8:], "-m", 5, "-t", 0, "--no-echo"
    )
    assert (long.code, len(long.out.rstrip("\n"))) == (0, 5)
    assert long.out == short.out


def test_a_weight_too_large_for_the_dtype_is_exit_1(nanogpt: Run, tmp_path: Path) -> None:
    model = build()
    with torch.no_grad():
        model.transformer.ln_f.weight[0] = 1e6
    path = save_nanogpt(tmp_path / "ckpt.pt", model)
    outcome = nanogpt("crop", path, "--block-size", 8, "--dtype", "float16")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        "error: 'transformer.ln_f.weight' holds 1e+06: float16 ends at 65504\n"
        "hint: cast to bfloat16 or float32\n"
    )
    assert names(tmp_path) == ["ckpt.pt"]


def test_names_from_files_are_no_markup(tmp_path: Path) -> None:
    path = save_nanogpt(tmp_path / "[bold]x[" / "bold]:smile:.pt", build())
    drawn = draw(crop(open_checkpoint(str(path)), 8))
    assert "[bold]x[/bold]:smile:-8.pt, block_size 16 to 8" in drawn


def draw(report: CropReport) -> str:
    console = Console(width=300, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(render(report))
    return capture.get()


def test_a_config_file_sets_options(nanogpt: Run, ckpt: Path, tmp_path: Path) -> None:
    options = tmp_path / "crop.toml"
    options.write_text("block_size = 8\nweights_only = true\n")
    outcome = nanogpt("crop", ckpt, "--config", options, "--json", "-q")
    assert json.loads(outcome.out)["dropped"] == ["optimizer"]
