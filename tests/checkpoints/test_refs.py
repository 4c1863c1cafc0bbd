"""The reference grammar, as far as this machine's disk goes; the hub's part is in test_hub.py."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nanogpt_cli.checkpoints.finding.refs import DEMO_PATH, Located, locate
from nanogpt_cli.errors import NanoGPTError, UsageError

HF_CONFIG = {"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 4, "n_positions": 8}
ZOO = Path(os.environ.get("NANOGPT_ZOO", Path(__file__).resolve().parents[3] / "shared" / "zoo"))
needs_demo = pytest.mark.skipif(not DEMO_PATH.is_file(), reason="the demo model is not built yet")
not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make(path: str, text: str = "x") -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def make_hf(folder: str, weights: str = "model.safetensors") -> Path:
    make(f"{folder}/config.json", json.dumps(HF_CONFIG))
    return make(f"{folder}/{weights}").parent


def wrong_usage(ref: str | None) -> UsageError:
    with pytest.raises(UsageError) as caught:
        locate(ref, offline=True, default_to_demo=False)
    assert caught.value.exit_code == 2
    return caught.value


def failure(ref: str) -> NanoGPTError:
    with pytest.raises(NanoGPTError) as caught:
        locate(ref, offline=True)
    assert caught.value.exit_code == 1
    return caught.value


@pytest.mark.parametrize("name", ["ckpt.pt", "weights", "model.safetensors", "a/b/c.anything"])
def test_a_file_is_taken_whatever_it_is_called(name: str) -> None:
    assert locate(str(make(name))) == Located(name, Path(name), "file")


def test_a_folder_with_ckpt_pt(tmp_path: Path) -> None:
    make("run/ckpt.pt")
    make("run/other.pt")
    make("run/config.json", json.dumps(HF_CONFIG))
    make("run/model.safetensors")
    assert locate("run") == Located("run", Path("run/ckpt.pt"), "file")
    assert locate("run/").path == Path("run/ckpt.pt")
    assert locate(str(tmp_path / "run")).path == tmp_path / "run" / "ckpt.pt"


@pytest.mark.parametrize("name", ["model.pt", "last.pth", "MODEL.PT"])
def test_a_folder_with_one_torch_file(name: str) -> None:
    make(f"run/{name}")
    make("run/config.json", json.dumps({"model": {"model_type": "gpt-nano"}}))
    make("run/notes.txt")
    assert locate("run").path == Path("run", name)


def test_a_folder_with_several_torch_files_lists_them() -> None:
    for step in range(7):
        make(f"run/model_{step}.pt")
    error = wrong_usage("run")
    assert error.message == (
        "'run' holds several checkpoints: 'model_0.pt', 'model_1.pt', 'model_2.pt', "
        "'model_3.pt', 'model_4.pt' and 2 more"
    )
    assert error.hint == "name one of them: run/model_0.pt"


@pytest.mark.parametrize(
    "weights",
    [
        "model.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
    ],
)
def test_a_hugging_face_folder(weights: str) -> None:
    make_hf("hf", weights)
    assert locate("hf") == Located("hf", Path("hf"), "folder")


def test_what_a_trainer_leaves_beside_the_weights_is_passed_over() -> None:
    make_hf("checkpoint-500")
    make("checkpoint-500/optimizer.pt")
    make("checkpoint-500/scheduler.pt")
    found = locate("checkpoint-500")
    assert (found.path, found.kind) == (Path("checkpoint-500"), "folder")
    assert found.notes == (
        "the Hugging Face model is used, not 'optimizer.pt', 'scheduler.pt' beside it",
    )


def test_a_folder_without_a_checkpoint_says_what_it_holds(tmp_path: Path) -> None:
    make("run/readme.md")
    make("run/meta.pkl.txt")
    error = failure("run")
    where = str(tmp_path / "run")
    assert error.message == (
        f"no checkpoint in folder {where!r}: it holds 'meta.pkl.txt', 'readme.md'"
    )
    assert error.hint == "a checkpoint is a .pt file, or config.json and model.safetensors"
    Path("none").mkdir()
    assert failure("none").message.endswith(": it is empty")


def test_bare_weights_in_a_folder_are_to_be_named() -> None:
    make("run/model.safetensors")
    assert failure("run").hint == "name the file: run/model.safetensors"


@pytest.mark.parametrize(
    "ref",
    [
        "ckpt.pt",
        "out/ckpt.pt",
        "owner/name.safetensors",
        "owner/name.PTH",
        "owner/name@5.pt",
        "a/b/c",
        "a/b@c/d",
        "./name",
        "owner/.name",
        ".owner/name",
        "../name",
        "~/name",
        "owner/",
        "/name",
        "owner/name@",
        "owner name/x",
        "name@main",
        "gpt3",
        "C:\\models\\gpt2",
    ],
)
def test_what_does_not_exist_is_a_missing_path(ref: str, tmp_path: Path) -> None:
    error = wrong_usage(ref)
    assert error.message == f"no such file or folder: {os.path.normpath(tmp_path / ref)!r}"
    assert error.hint


def test_a_missing_path_has_nothing_appended() -> None:
    make("out/ckpt.pt")
    assert wrong_usage("out/ckpt").message.endswith("/out/ckpt'")
    assert wrong_usage("a\0b").message.startswith("no such file or folder: ")
    assert wrong_usage("x" * 5000).message.endswith("x'")
    assert wrong_usage("out/ckpt.pt/more").message.endswith("/out/ckpt.pt/more'")


@pytest.mark.parametrize("ref", ["owner/name", "a-b/c.d_e", "owner/name@v1.0", "0/1@abc"])
def test_a_hub_id_is_looked_up_on_the_hub(ref: str) -> None:
    assert failure(ref).message.startswith(f"'{ref}' is not in the hub's cache")


@pytest.mark.parametrize("name", ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2"])
def test_a_stock_name_is_a_model_of_the_hub(name: str) -> None:
    owner = "distilbert" if name == "distilgpt2" else "openai-community"
    for ref in (name, f"{owner}/{name}"):
        assert failure(ref).message.startswith(f"'{owner}/{name}' is not in the hub's cache")


def test_a_first_part_that_is_a_folder_here_is_no_owner() -> None:
    Path("owner").mkdir()
    assert wrong_usage("owner/name").message.endswith("/owner/name'")
    make("plain")
    assert failure("plain/name").message.startswith("'plain/name' is not in the hub's cache")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gpt2-xxl", "gpt2-xl"),
        ("gpt2_medium", "gpt2-medium"),
        ("GPT2-Large", "gpt2-large"),
        ("distill-gpt2", "distilgpt2"),
        ("dmeo", "demo"),
        ("out/ckp.pt", "out/ckpt.pt"),
        ("run1", "run2"),
    ],
)
def test_a_near_name_is_suggested(typed: str, meant: str) -> None:
    make("out/ckpt.pt")
    make("run2/ckpt.pt")
    assert wrong_usage(typed).hint == f"did you mean {meant}?"


def test_a_stock_name_with_a_revision_needs_the_whole_id() -> None:
    hint = wrong_usage("gpt2-xl@main").hint
    assert hint == "a revision needs the whole id: openai-community/gpt2-xl@main"


@pytest.mark.parametrize("ref", ["gpt2", "distilgpt2", "openai-community/gpt2"])
def test_a_local_path_wins_over_a_model_and_is_announced(ref: str) -> None:
    make(f"{ref}/ckpt.pt")
    found = locate(ref)
    assert found.path == Path(ref, "ckpt.pt")
    assert found.notes == (f"{ref!r} is a local path and is used, not the model of that name",)


def test_a_local_folder_of_a_stock_name_without_a_checkpoint_points_to_the_model() -> None:
    make("gpt2/readme.md")
    assert failure("gpt2").hint == "for the model of that name give openai-community/gpt2"


def test_a_path_that_can_only_be_local_is_not_announced() -> None:
    make("out/run/ckpt.pt")
    assert locate("out/run").notes == ()
    make_hf("./gpt2")
    assert locate("./gpt2").notes == ()


def test_an_empty_reference() -> None:
    assert wrong_usage("").message == "the checkpoint's name is empty"
    assert wrong_usage("  ").message == "the checkpoint's name is empty"


@needs_demo
def test_the_demo() -> None:
    assert locate("demo") == Located("demo", DEMO_PATH, "demo")
    assert locate(None) == Located(
        None,
        DEMO_PATH,
        "demo",
        notes=("no checkpoint was named and there is no out/ckpt.pt: using demo",),
    )


def test_a_local_demo_wins() -> None:
    make("demo")
    assert locate("demo").notes == (
        "'demo' is a local path and is used, not the model inside the package",
    )


def test_without_a_reference_the_last_run_is_taken() -> None:
    make("out/ckpt.pt")
    note = "no checkpoint was named: using out/ckpt.pt"
    assert locate(None) == Located(None, Path("out/ckpt.pt"), "file", notes=(note,))


def test_without_a_reference_where_one_is_needed() -> None:
    make("out/ckpt.pt")
    assert wrong_usage(None).message == "no checkpoint was given"


def test_pipes_sockets_and_devices_are_refused_without_being_opened(tmp_path: Path) -> None:
    os.mkfifo("pipe.pt")
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.pt")
        assert wrong_usage("socket.pt").message == "'socket.pt' is a socket, not a checkpoint"
    assert wrong_usage("pipe.pt").message == "'pipe.pt' is a pipe, not a checkpoint"
    assert wrong_usage("/dev/zero").message == "'/dev/zero' is a device, not a checkpoint"
    run = tmp_path / "run"
    run.mkdir()
    os.mkfifo(run / "ckpt.pt")
    assert wrong_usage("run").message == "'run/ckpt.pt' is a pipe, not a checkpoint"
    Path("other/ckpt.pt").mkdir(parents=True)
    assert wrong_usage("other").message == "'other/ckpt.pt' is a folder, not a checkpoint"


def test_broken_links_name_their_target() -> None:
    Path("link.pt").symlink_to("gone.pt")
    error = wrong_usage("link.pt")
    assert error.message == "'link.pt' is a broken link: it points to 'gone.pt'"
    Path("loop.pt").symlink_to("loop.pt")
    assert failure("loop.pt").message.startswith("cannot read 'loop.pt': ")


def test_links_are_followed() -> None:
    make("run/ckpt.pt")
    Path("latest").symlink_to("run")
    Path("link").symlink_to("run/ckpt.pt")
    assert locate("latest").path == Path("latest/ckpt.pt")
    assert locate("link") == Located("link", Path("link"), "file")


@not_root
def test_what_may_not_be_read_is_said() -> None:
    make("secret.pt").chmod(0)
    assert failure("secret.pt").message == "cannot read 'secret.pt': no permission"
    make("closed/ckpt.pt")
    Path("closed").chmod(0)
    assert failure("closed").message.startswith("cannot read folder 'closed': ")
    Path("closed").chmod(0o700)


@pytest.mark.real
@pytest.mark.skipif(not ZOO.is_dir(), reason="the folder of real files is absent")
@pytest.mark.parametrize(
    ("name", "kind", "file"),
    [
        ("nanogpt-char", "file", "ckpt.pt"),
        ("minGPT-adder", "file", "model.pt"),
        ("makemore-names", "file", "model.pt"),
        ("hf-tiny-21", "folder", "."),
        ("hf-legacy-bin", "folder", "."),
    ],
)
def test_real_folders(name: str, kind: str, file: str) -> None:
    found = locate(str(ZOO / name))
    assert (found.kind, found.path) == (kind, ZOO / name / file)


def test_looking_at_the_disk_imports_nothing_heavy() -> None:
    make_hf("hf")
    code = (
        "import sys\n"
        "from nanogpt_cli.checkpoints.finding.refs import locate\n"
        "assert locate('hf').kind == 'folder'\n"
        "heavy = {'torch', 'numpy', 'transformers', 'tiktoken', 'safetensors', 'huggingface_hub'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
