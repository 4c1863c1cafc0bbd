"""A file of rows that is appended to."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.batch.row_file import RowFile


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Let the system refuse what a full disk would: part of a write, then all."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_every_row_is_there_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with RowFile(path, keep=False) as file:
        for number in range(3):
            file.append(f"row é {number}\n")
            assert path.read_text(encoding="utf-8") == "".join(
                f"row é {n}\n" for n in range(number + 1)
            )
    assert file.rows == 3


def test_rows_are_kept_or_go_with_the_first_new_one(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text("old\n")
    with RowFile(path, keep=True) as file:
        file.append("new\n")
    assert path.read_text() == "old\nnew\n"
    with RowFile(path, keep=False) as file:
        assert path.read_text() == "old\nnew\n"
        file.append("only\n")
        assert path.read_text() == "only\n"
    with RowFile(path, keep=False):
        pass
    assert path.read_text() == ""


def test_a_failure_before_the_first_row_leaves_what_was_there(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("old\n")
    for path in (old, new):
        with pytest.raises(ZeroDivisionError), RowFile(path, keep=False):
            raise ZeroDivisionError
    assert old.read_text() == "old\n"
    assert not new.exists()


def test_a_failure_after_it_leaves_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    file = RowFile(path, keep=False)
    file.append("row\n")
    with pytest.raises(ZeroDivisionError), file:
        raise ZeroDivisionError
    assert path.read_text() == "row\n"


@pytest.mark.parametrize("room", [100, 101, 150, 199])
def test_a_full_disk_leaves_whole_rows(tmp_path: Path, room: int) -> None:
    path = tmp_path / "rows"
    row = "x" * 99 + "\n"
    with RowFile(path, keep=False) as file, files_no_larger_than(room):
        file.append(row)
        for _ in range(2):
            with pytest.raises(NanoGPTError) as caught:
                file.append(row)
            assert caught.value.message == f"cannot write {str(path)!r}: file too large"
            assert caught.value.hint is not None
            assert "--resume" in caught.value.hint
            assert path.read_text() == row
    with RowFile(path, keep=True) as file:
        file.append(row)
    assert path.read_text() == 2 * row


def test_one_run_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with RowFile(path, keep=False) as file:
        file.append("row\n")
        for keep in (True, False):
            with pytest.raises(NanoGPTError) as caught:
                RowFile(path, keep=keep)
            assert caught.value.message == f"another run is writing {str(path)!r}"
            assert caught.value.exit_code == 1
    with RowFile(path, keep=True):
        pass
    assert path.read_text() == "row\n"


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(NanoGPTError) as caught:
        RowFile(tmp_path, keep=False)
    assert caught.value.message == f"cannot write {str(tmp_path)!r}: is a directory"


def test_lone_surrogates_are_written_as_replacement_characters(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with RowFile(path, keep=False) as file:
        file.append("a\udcffb\n")
    assert path.read_bytes() == "a\ufffdb\n".encode()
