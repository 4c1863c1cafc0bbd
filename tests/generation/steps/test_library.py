"""The compiled library: kept, found again, and never trusted further than its name."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import CACHE
from step_models import build, library

from nanogpt_cli.generation.steps import library as libraries
from nanogpt_cli.generation.steps.choose import StepChoice, make_step
from nanogpt_cli.generation.steps.compiled import CompiledStep
from nanogpt_cli.generation.steps.library import load_library

KEPT = Path(CACHE.name, "nanogpt")

Compiler = Callable[[str], None]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """Put a shell script in the place of every compiler."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def write(script: str) -> None:
        path = folder / "g++"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")

    return write


@pytest.fixture
def copies(compiler: Compiler, tmp_path: Path) -> Path:
    """A compiler that takes no time: it copies what was built before, and counts its calls."""
    library()
    (built,) = KEPT.glob("step-*.so")
    calls = tmp_path / "calls"
    compiler(f'echo x >> {calls}\nwhile [ "$1" != -o ]; do shift; done\ncp {built} "$2"')
    return calls


def test_a_built_library_is_kept_and_found_without_a_compiler(
    copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache" / "nanogpt"
    assert load_library(folder, build=False) == (None, None)
    built, note = load_library(folder, build=True)
    assert built is not None
    assert note is not None
    assert note.startswith("compiled the decode step for this CPU in ")
    assert note.endswith(f"; it is kept in {str(folder)!r}")
    monkeypatch.setenv("PATH", "")
    kept, note = load_library(folder, build=False)
    assert (kept is not None, note) == (True, None)
    assert copies.read_text() == "x\n"
    assert [path.suffix for path in folder.iterdir()] == [".so"]
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:100] + b"x" * 50])
def test_a_damaged_library_is_never_loaded(
    damage: Callable[[bytes], bytes], copies: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    load_library(folder, build=True)
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert load_library(folder, build=False) == (None, None)
    built, _ = load_library(folder, build=True)
    assert built is not None
    assert copies.read_text() == "x\nx\n"


def test_a_library_of_another_version_is_left_alone(copies: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    load_library(folder, build=True)
    (path,) = folder.iterdir()
    _, key, digest = path.stem.split("-")
    other = path.rename(folder / f"step-{key[::-1]}-{digest}.so")
    assert load_library(folder, build=False) == (None, None)
    load_library(folder, build=True)
    assert other.exists()
    assert copies.read_text() == "x\nx\n"


@pytest.mark.parametrize("change", ["flags", "torch", "machine", "cpu", "source"])
@pytest.mark.usefixtures("copies")
def test_a_library_is_taken_only_where_all_that_decided_its_code_is_the_same(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, sources = tmp_path / "cache", tmp_path / "native"
    load_library(folder, build=True)
    shutil.copytree(libraries.SOURCES, sources)
    monkeypatch.setattr(libraries, "SOURCES", sources)
    kept, _ = load_library(folder, build=False)
    assert kept is not None
    if change == "flags":
        monkeypatch.setattr(libraries, "FLAGS", (*libraries.FLAGS, "-g"))
    elif change == "torch":
        monkeypatch.setattr(torch, "__version__", "1.0")
    elif change == "machine":
        monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    elif change == "cpu":
        monkeypatch.setattr(Path, "read_text", lambda *_args, **_kwargs: "flags : fpu")
    else:
        (sources / "lanes.h").write_bytes((sources / "lanes.h").read_bytes() + b"\n")
    assert load_library(folder, build=False) == (None, None)


def test_a_kept_library_that_cannot_be_loaded_is_built_again(copies: Path, tmp_path: Path) -> None:
    folder, junk = tmp_path / "cache", b"junk"
    load_library(folder, build=True)
    (path,) = folder.iterdir()
    _, key, _ = path.stem.split("-")
    path.unlink()
    (folder / f"step-{key}-{hashlib.sha256(junk).hexdigest()[:24]}.so").write_bytes(junk)
    assert load_library(folder, build=False) == (None, None)
    assert load_library(folder, build=True)[0] is not None
    assert copies.read_text() == "x\nx\n"


@pytest.mark.usefixtures("copies")
def test_a_full_disk_leaves_no_part_of_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", refuse)
    built, note = load_library(tmp_path / "cache", build=True)
    assert built is not None
    assert "each run compiles it again: no space left on device in " in (note or "")
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.usefixtures("copies")
def test_a_folder_that_takes_nothing_costs_a_note(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    built, note = load_library(tmp_path / "file" / "cache", build=True)
    assert built is not None
    assert note is not None
    assert note.endswith(
        "; it is not kept, so each run compiles it again: not a directory in "
        f"{str(tmp_path / 'file' / 'cache')!r}"
    )


@pytest.mark.parametrize("mode", [0o720, 0o702, None])
def test_a_folder_that_others_can_write_to_is_not_trusted(
    mode: int | None, copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its group, anybody, or another user whose folder it is."""
    folder, user = tmp_path / "cache", os.getuid()
    load_library(folder, build=True)
    if mode is None:
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
    else:
        folder.chmod(mode)
    assert load_library(folder, build=False) == (None, None)
    built, note = load_library(folder, build=True)
    assert built is not None
    assert note is not None
    assert note.endswith(f"others can write to {str(folder)!r}")
    assert copies.read_text() == "x\nx\n"


@pytest.mark.usefixtures("copies")
def test_no_folder_keeps_nothing() -> None:
    built, note = load_library(None, build=True)
    assert built is not None
    assert note is not None
    assert note.startswith("compiled the decode step for this CPU in ")
    assert note.endswith("; it is not kept")


@pytest.mark.usefixtures("copies")
def test_two_at_once_leave_one_whole_library(tmp_path: Path) -> None:
    folder, found = tmp_path / "cache", []
    threads = [
        threading.Thread(target=lambda: found.append(load_library(folder, build=True)[0]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in found
    assert len(found) == 4
    assert len(list(folder.iterdir())) == 1


def test_no_compiler_is_one_note_and_torch_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    model = build()
    step, notes = make_step(model, model.lm_head.weight.dtype, StepChoice(compile=True), 1)
    assert step.name == "eager"
    assert notes == (
        "the step could not be compiled, so it runs uncompiled: no C++ compiler was found "
        "(g++, clang++, c++)",
    )


def test_a_compiler_that_fails_is_quoted(compiler: Compiler, tmp_path: Path) -> None:
    compiler("echo 'fatal: no sense in it' >&2; exit 1")
    built, note = load_library(tmp_path / "cache", build=True)
    assert built is None
    assert note is not None
    assert note.startswith("the step could not be compiled, so it runs uncompiled: ")
    assert note.endswith("g++ failed: fatal: no sense in it")
    assert not (tmp_path / "cache").exists()


def test_a_compiler_that_never_ends_is_ended(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "BUILD_SECONDS", 0)
    compiler("exec sleep 600")
    built, note = load_library(tmp_path / "cache", build=True)
    assert built is None
    assert "g++ did not run: " in (note or "")


def test_flags_are_tried_from_the_best_to_what_any_compiler_knows(
    copies: Path, compiler: Compiler, tmp_path: Path
) -> None:
    script, calls = (tmp_path / "bin" / "g++").read_text(), tmp_path / "flags"
    refuse = f'echo " $* " >> {calls}\ncase $* in *-march=native* | *-fopenmp*) exit 1 ;; esac\n'
    compiler(refuse + script)
    built, note = load_library(None, build=True)
    assert built is not None, note
    first, *_, last = calls.read_text().splitlines()
    assert (" -march=native " in first, " -fopenmp " in first) == (True, True)
    assert (" -mcpu=native " in last, " -fopenmp " in last) == (True, False)
    assert copies.read_text() == "x\n"


def test_a_compiler_whose_work_cannot_be_loaded_is_no_crash(
    compiler: Compiler, tmp_path: Path
) -> None:
    compiler('while [ "$1" != -o ]; do shift; done\necho junk > "$2"')
    built, note = load_library(tmp_path / "cache", build=True)
    assert built is None
    assert note is not None
    assert "runs uncompiled" in note
    assert not (tmp_path / "cache").exists()


def test_auto_takes_a_kept_step_and_builds_for_long_runs_alone(
    copies: Path, tmp_path: Path
) -> None:
    model, dtype = build(), build().lm_head.weight.dtype
    choice = StepChoice(folder=tmp_path / "cache")
    assert make_step(model, dtype, choice, 10)[0].name == "eager"
    assert not copies.exists()
    assert make_step(model, dtype, choice, 1e9)[0].name == "compiled"
    assert make_step(model, dtype, choice, 10)[0].name == "compiled"
    never = StepChoice(compile=False, folder=tmp_path / "cache")
    assert make_step(model, dtype, never, 1e9)[0].name == "eager"
    assert copies.read_text() == "x\n"


def test_the_threads_are_the_users_or_torchs(copies: Path, tmp_path: Path) -> None:
    model, dtype = build(), build().lm_head.weight.dtype
    for threads, used in ((None, torch.get_num_threads()), (1, 1), (3, 3)):
        choice = StepChoice(compile=True, threads=threads, folder=tmp_path / "cache")
        step, _ = make_step(model, dtype, choice, 10)
        assert isinstance(step, CompiledStep)
        assert step.threads == used
    assert copies.read_text() == "x\n"


def test_the_folder_is_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nanogpt_cli.commands.caches import cache_folder

    assert cache_folder() == KEPT
    monkeypatch.setenv("NANOGPT_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("NANOGPT_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "nanogpt"
