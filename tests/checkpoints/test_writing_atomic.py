"""Output that is there whole or not at all, whatever goes wrong, and what is never replaced."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from nanogpt_cli.checkpoints.plans import BytesPlan, CopyPlan, Sink
from nanogpt_cli.checkpoints.writing.atomic import clear_litter, write_file, write_folder
from nanogpt_cli.checkpoints.writing.targets import check_target
from nanogpt_cli.errors import CheckpointError, NanoGPTError, UsageError

TOKEN = "0123456789abcdef"


class Failing:
    """A plan that breaks off."""

    total_bytes = 10

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def write_to(self, sink: Sink) -> None:
        sink.write(b"half")
        raise self._error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    target = tmp_path / "x.pt"
    write_file(target, BytesPlan(b"hello"), progress=lambda done, total: seen.append((done, total)))
    assert target.read_bytes() == b"hello"
    assert names(tmp_path) == ["x.pt"]
    assert seen == [(5, 5)]
    assert target.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "x.pt"
    target.write_bytes(b"old")

    def check(path: Path) -> None:
        assert path.read_bytes() == b"new"
        assert target.read_bytes() == b"old"

    write_file(target, BytesPlan(b"new"), check=check)
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize(
    "error", [CheckpointError("no"), KeyboardInterrupt(), ZeroDivisionError()], ids=repr
)
def test_a_failure_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "x"
    with pytest.raises(type(error)):
        write_file(target, Failing(error))
    with pytest.raises(type(error)):
        write_folder(target, {"good": BytesPlan(b"1"), "bad": Failing(error)})
    assert names(tmp_path) == []


def test_what_a_check_refuses_is_not_kept(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        assert path.exists()
        raise NanoGPTError("no", exit_code=3)

    target = tmp_path / "x"
    for write in (
        partial(write_file, target, BytesPlan(b"1"), check=refuse),
        partial(write_folder, target, {"a": BytesPlan(b"1")}, check=refuse),
    ):
        with pytest.raises(NanoGPTError):
            write()
        assert names(tmp_path) == []


def test_a_folder_appears_whole_and_replaces_a_whole_one(tmp_path: Path) -> None:
    target = tmp_path / "model"
    write_folder(target, {"a": BytesPlan(b"1"), "b": BytesPlan(b"2")})
    assert names(target) == ["a", "b"]
    write_folder(target, {"c": BytesPlan(b"3")})
    assert names(target) == ["c"]
    assert names(tmp_path) == ["model"]


def test_contents_reach_the_disk_before_their_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, model = tmp_path / "x", tmp_path / "model"
    flushed: list[tuple[int, bool]] = []
    flush = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.append((os.fstat(descriptor).st_ino, target.exists() or model.exists()))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_file(target, BytesPlan(b"1"))
    inodes = {path: path.stat().st_ino for path in (target, tmp_path)}
    assert flushed == [(inodes[target], False), (inodes[tmp_path], True)]
    target.unlink()
    flushed.clear()
    write_folder(model, {"a": BytesPlan(b"1")})
    a, folder = (model / "a").stat().st_ino, model.stat().st_ino
    assert flushed == [(a, False), (folder, False), (inodes[tmp_path], True)]


def test_a_copy_is_the_same_bytes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_001))
    write_file(tmp_path / "copy", CopyPlan(source))
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / f".x.pt.nanogpt-{TOKEN}.tmp").write_bytes(b"half")
    (tmp_path / f".model.nanogpt-{TOKEN}.tmp").mkdir()
    (tmp_path / f".model.nanogpt-{TOKEN}.tmp" / "a").write_bytes(b"half")
    strangers = [".x.pt.tmp", f".x.nanogpt-{TOKEN[:-1]}.tmp", f"x.nanogpt-{TOKEN}.tmp", ".tmp"]
    for name in strangers:
        (tmp_path / name).write_bytes(b"mine")
    write_file(tmp_path / "y", BytesPlan(b"1"))
    assert names(tmp_path) == sorted([*strangers, "y"])


def test_what_a_living_run_writes_is_left_alone(tmp_path: Path) -> None:
    def clear(path: Path) -> None:
        clear_litter(tmp_path)
        assert path.exists()

    write_file(tmp_path / "x", BytesPlan(b"1"), check=clear)
    write_folder(tmp_path / "model", {"a": BytesPlan(b"1")}, check=clear)
    assert names(tmp_path) == ["model", "x"]


def test_a_link_named_like_ours_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    link = tmp_path / f".x.nanogpt-{TOKEN}.tmp"
    link.symlink_to(precious)
    clear_litter(tmp_path)
    assert precious.read_bytes() == b"mine"


def test_a_folder_moved_aside_comes_back_if_nothing_took_its_place(tmp_path: Path) -> None:
    aside = tmp_path / f".model.nanogpt-{TOKEN}.old"
    aside.mkdir()
    (aside / "a").write_bytes(b"old")
    clear_litter(tmp_path)
    assert names(tmp_path) == ["model"]
    assert (tmp_path / "model" / "a").read_bytes() == b"old"


def test_a_folder_moved_aside_goes_once_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f".model.nanogpt-{TOKEN}.old").mkdir()
    (tmp_path / "model").mkdir()
    clear_litter(tmp_path)
    assert names(tmp_path) == ["model"]


def test_a_folder_comes_back_where_its_successor_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    write_folder(target, {"a": BytesPlan(b"1")})
    rename = os.rename

    def failing(source: Path, to: Path) -> None:
        if to == target and source.name.endswith(".tmp"):
            raise OSError(5, "Input/output error")
        rename(source, to)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(NanoGPTError, match="input/output error"):
        write_folder(target, {"b": BytesPlan(b"2")})
    assert names(tmp_path) == ["model"]
    assert names(target) == ["a"]


def test_a_long_name_is_no_trouble(tmp_path: Path) -> None:
    target = tmp_path / ("\u00e9" * 120)
    write_file(target, BytesPlan(b"1"))
    assert target.read_bytes() == b"1"


@pytest.fixture
def small_files() -> Iterator[None]:
    """Let no file grow beyond 100 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_files")
def test_no_room_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "x.pt"
    plan = BytesPlan(b"x" * 200_000)
    for write in (
        partial(write_file, target, plan),
        partial(write_folder, target, {"small": BytesPlan(b"1"), "large": plan}),
    ):
        with pytest.raises(NanoGPTError) as caught:
            write()
        assert caught.value.message.startswith(f"cannot write '{target}' (200,00")
        assert caught.value.message.endswith("bytes): file too large")
        assert caught.value.hint is not None
        assert "make room" in caught.value.hint
        assert names(tmp_path) == []


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that this process may not write to, be it the administrator's."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    shutil.rmtree(folder)


def test_a_read_only_folder_is_one_clear_error(read_only: Path) -> None:
    target = read_only / "x.pt"
    for write in (
        partial(write_file, target, BytesPlan(b"1")),
        partial(write_folder, target, {"a": BytesPlan(b"1")}),
    ):
        with pytest.raises(NanoGPTError) as caught:
            write()
        assert caught.value.message == f"cannot write '{target}': permission denied"
        assert caught.value.hint == "give --output in a folder that can be written to"
    assert names(read_only) == []


# --- what may be written over


def refusal(target: Path, *inputs: Path, as_folder: bool = False, force: bool = True) -> str:
    with pytest.raises(UsageError) as caught:
        check_target(target, inputs, as_folder=as_folder, force=force)
    assert caught.value.exit_code == 2
    return caught.value.message.replace(str(target), "T").replace(str(target.parent), "P")


def test_what_exists_is_kept_without_force(tmp_path: Path) -> None:
    target = tmp_path / "x"
    check_target(target, [])
    target.write_bytes(b"1")
    assert refusal(target, force=False) == "'T' exists already"
    check_target(target, [], force=True)


def hard_link(target: Path, source: Path) -> None:
    os.link(source, target)


def symbolic_link(target: Path, source: Path) -> None:
    target.symlink_to(source)


def link_to_a_link(target: Path, source: Path) -> None:
    middle = source.with_name("middle")
    middle.symlink_to(source.name)
    target.symlink_to(middle)


@pytest.mark.parametrize("link", [hard_link, symbolic_link, link_to_a_link])
def test_the_input_is_kept_with_force_too(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"1")
    target = tmp_path / "target"
    link(target, source)
    assert refusal(target, source) == "the output 'T' is the input, which would be lost"
    assert refusal(source, target) == "the output 'T' is the input, which would be lost"
    unclean = tmp_path / "sub" / ".." / "source"
    (tmp_path / "sub").mkdir()
    assert refusal(unclean, source).endswith("is the input, which would be lost")


def test_a_folder_with_the_input_in_it_is_kept(tmp_path: Path) -> None:
    source = tmp_path / "model" / "config.json"
    source.parent.mkdir()
    source.write_text("{}")
    message = refusal(source.parent, source, as_folder=True)
    assert message == "the output 'T' holds the input, which would be lost"


def test_a_file_never_replaces_a_folder_nor_a_folder_a_file(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.write_bytes(b"1")
    assert refusal(folder) == "the output 'T' is a folder, and a file is to be written"
    assert (
        refusal(file, as_folder=True) == "the output 'T' is a file, and a folder is to be written"
    )


def test_a_folder_of_other_things_is_never_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    check_target(folder, [], as_folder=True, force=True)
    (folder / "thesis.txt").write_text("mine")
    message = "the folder 'T' holds more than a model, and is not replaced"
    assert refusal(folder, as_folder=True) == message
    (folder / "config.json").write_text("{}")
    check_target(folder, [], as_folder=True, force=True)
    (folder / "more").mkdir()
    assert refusal(folder, as_folder=True) == message


def test_devices_and_pipes_are_never_replaced(tmp_path: Path) -> None:
    assert refusal(Path("/dev/null")) == "the output 'T' is no regular file"
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == "the output 'T' is no regular file"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path / "no" / "x.pt")
    assert message == "cannot write 'T': there is no folder 'P'"
    (tmp_path / "file").write_bytes(b"1")
    assert refusal(tmp_path / "file" / "x.pt") == message


def test_a_broken_link_counts_as_something_there(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.symlink_to(tmp_path / "nowhere")
    assert refusal(target, force=False) == "'T' exists already"
    write_file(target, BytesPlan(b"1"))
    assert not target.is_symlink()
