"""What is told of a file that is refused: members, sizes, names, and nothing is run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch
from pickle_recipes import call, entry, group, named, text, whole
from torch_files import archive_of, save, tensor, write

from nanogpt_cli.checkpoints.survey import Survey, survey
from nanogpt_cli.errors import CheckpointError


def names(found: Survey) -> list[tuple[str, str]]:
    """Return (name, verdict) of every global."""
    return [(use.name, use.verdict) for use in found.globals]


def hostile() -> bytes:
    """Push a dict with weights, a hostile call, and names after it."""
    return (
        b"}"
        + group(text("model"), tensor())[:-1]
        + text("optimizer")
        + call("os", "system", text("true"))
        + text("config")
        + named("__main__", "GPTConfig")
        + b")\x81u"
    )


def test_a_refused_archive_lists_members_and_names(tmp_path: Path) -> None:
    path = write(tmp_path, archive_of(hostile()))
    found = survey(path)
    assert [name for name, _ in found.members] == [
        "archive/data.pkl",
        "archive/data/0",
        "archive/version",
    ]
    assert found.members[1:] == (("archive/data/0", 16), ("archive/version", 2))
    assert names(found) == [
        ("torch._utils._rebuild_tensor_v2", "known"),
        ("torch.FloatStorage", "known"),
        ("collections.OrderedDict", "known"),
        ("os.system", "refused"),
        ("__main__.GPTConfig", "inert"),
    ]


def test_a_refused_legacy_file(tmp_path: Path) -> None:
    data = save({"a": torch.ones(2), "b": Evil()}, legacy=True)
    assert names(survey(write(tmp_path, data))) == [
        ("torch._utils._rebuild_tensor_v2", "known"),
        ("torch.FloatStorage", "known"),
        ("collections.OrderedDict", "known"),
        ("posix.system", "refused"),
    ]


class Evil:
    """Pickled, it is a call of os.system."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_a_plain_pickle(tmp_path: Path) -> None:
    path = write(tmp_path, whole(entry("a", call("os", "system", text("true")))), "meta.pkl")
    found = survey(path)
    assert (found.members, names(found)) == ((), [("os.system", "refused")])
    assert found.globals[0].offset == 9


def test_an_honest_file(tmp_path: Path) -> None:
    found = survey(write(tmp_path, save({"a": torch.ones(2)})))
    assert {verdict for _, verdict in names(found)} == {"known"}
    assert ("archive/data/0", 8) in found.members


@pytest.mark.parametrize("data", [b"", b"x", b"PK\x03\x04", b"PK\x03\x04" + bytes(100)])
def test_broken_files_give_nothing(tmp_path: Path, data: bytes) -> None:
    assert survey(write(tmp_path, data)) == Survey()


def test_a_broken_pickle_gives_its_first_names(tmp_path: Path) -> None:
    data = pickle.dumps([print, len], 2)[:-4] + b"\xff"
    assert names(survey(write(tmp_path, data))) == [
        ("__builtin__.print", "inert"),
        ("__builtin__.len", "inert"),
    ]


def test_an_absent_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file"):
        survey(tmp_path / "absent.pt")
