"""Reading the files that tables are kept in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.tokenizers.files import (
    MOST_BYTES,
    is_file,
    is_folder,
    read_bytes,
    read_head,
    read_json,
)

UNREADABLE = Path("/proc/self/mem")
"""A regular file whose first bytes cannot be read, even by root."""


@pytest.mark.parametrize("name", ["gone", "a\0b", "x" * 5000, "gone/gone"])
def test_what_cannot_be_asked_is_not_there(tmp_path: Path, name: str) -> None:
    assert not is_file(tmp_path / name)
    assert not is_folder(tmp_path / name)


def test_links_count_as_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    assert is_file(tmp_path / "link")
    assert not is_file(tmp_path / "loop")
    assert read_bytes(tmp_path / "link") == b"data"


def test_too_large(tmp_path: Path) -> None:
    path = tmp_path / "meta.pkl"
    path.touch()
    os.truncate(path, MOST_BYTES + 1)
    with pytest.raises(TokenizerError) as caught:
        read_bytes(path)
    assert caught.value.message == (
        f"{path} has 268435457 bytes: a token table has at most 268435456 bytes"
    )


@pytest.mark.skipif(not UNREADABLE.exists(), reason="Linux only")
@pytest.mark.parametrize("read", [read_bytes, read_head])
def test_unreadable(read: object) -> None:
    assert callable(read)
    with pytest.raises(TokenizerError, match=r"^cannot read /proc/self/mem: "):
        read(UNREADABLE)


def test_json_may_begin_with_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf{}")
    assert read_json(path) == {}


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b"1" * 5000])
def test_no_json(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(TokenizerError, match=r"a\.json is no JSON: "):
        read_json(path)
