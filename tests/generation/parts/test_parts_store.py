"""Places by path and URI, local and on an fsspec file system that is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ray_extra import needs_ray

from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.generation.parts.store import UNFINISHED, Store, is_uri

pytestmark = needs_ray


@pytest.fixture(autouse=True)
def _elsewhere() -> None:
    """Let fsspec know a file system that pyarrow does not, and where a rename is one."""
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    class Elsewhere(LocalFileSystem):  # type: ignore[misc]
        protocol = "elsewhere"

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(super()._strip_protocol(path.removeprefix("elsewhere://")))

    fsspec.register_implementation("elsewhere", Elsewhere, clobber=True)


@pytest.fixture(params=["path", "file://", "memory://", "elsewhere://"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder's place."""
    if request.param == "path":
        return str(tmp_path / "new" / "folder")
    if request.param == "memory://":
        return f"memory://{tmp_path.name}/folder"
    return f"{request.param}{tmp_path}/folder"


def test_a_folder_is_made_filled_listed_and_emptied(place: str) -> None:
    store = Store(place)
    assert store.list() == []
    store.make()
    store.write("b", b"old")
    store.write("b", b"new and longer")
    store.write("a", b"")
    inner = Store(f"{place}/folder")
    inner.make()
    inner.write("c", b"")
    assert store.list() == ["a", "b"]
    assert (store.read("a"), store.read("b")) == (b"", b"new and longer")
    store.remove("a")
    assert Store(place).list() == ["b"]


def test_a_range_of_a_file(place: str) -> None:
    store = Store(place)
    store.make()
    store.write("file", b"0123456789")
    file = Store(f"{place}/file")
    assert file.read_range(2, 3) == b"234"
    assert file.read_range(8, 5) == b"89"
    with file.open() as stream:
        assert stream.readline() == b"0123456789"
    with pytest.raises(UsageError, match="is a file, and --engine ray writes a folder"):
        file.list()
    with pytest.raises(UsageError, match="is a folder"):
        store.open()
    with pytest.raises(UsageError, match="no file of prompts at"):
        Store(f"{place}/other").open()
    with pytest.raises(NanoGPTError, match="cannot read"):
        store.read("other")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(NanoGPTError, match="permission denied"):
        Store(str(tmp_path)).write("file", b"data")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "name").mkdir()
    with pytest.raises(NanoGPTError, match="is a directory"):
        Store(str(tmp_path)).write("name", b"data")
    assert [entry.name for entry in tmp_path.iterdir()] == ["name"]


@pytest.mark.parametrize("scheme", ["", "file://", "elsewhere://"])
def test_a_file_is_replaced_whole_and_never_written_over(scheme: str, tmp_path: Path) -> None:
    store = Store(f"{scheme}{tmp_path}")
    store.write("part", b"old")
    (tmp_path / "before").hardlink_to(tmp_path / "part")
    store.write("part", b"new and longer")
    assert (tmp_path / "before").read_bytes() == b"old"
    assert store.list() == ["before", "part"]


def test_a_uri_of_no_kind() -> None:
    with pytest.raises(UsageError, match="cannot reach 'nonsense://x/y'"):
        Store("nonsense://x/y")


def test_what_is_a_uri() -> None:
    assert [is_uri(place) for place in ("s3://a/b", "a/b", "/a", "C:\\a", "hf://x")] == [
        True,
        False,
        False,
        False,
        True,
    ]


def test_names_of_what_is_being_written() -> None:
    name = ".part-000000000000.jsonl.0123456789abcdef.nanogpt"
    assert UNFINISHED.fullmatch(name)
    assert not UNFINISHED.fullmatch("part-000000000000.jsonl")
