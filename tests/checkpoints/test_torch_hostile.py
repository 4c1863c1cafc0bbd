"""Archives and tensors that lie: each is one error, and nothing is allocated for a claim."""

from __future__ import annotations

import io
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pickle_recipes import LIVE, call, entry, group, named, text, whole
from torch_files import (
    archive_of,
    assert_same,
    changed,
    infos,
    number,
    numbers,
    rezip,
    save,
    storage,
    tensor,
    unzip,
    write,
)

from nanogpt_cli.checkpoints.impostors import explain
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.checkpoints.torch_files import zips
from nanogpt_cli.checkpoints.torch_files.legacy_format import TorchLegacy
from nanogpt_cli.checkpoints.torch_files.zip_format import TorchZip
from nanogpt_cli.errors import CheckpointError, NanoGPTError

HUGE = 1 << 62


def refuse(folder: Path, data: bytes) -> str:
    """Return the message that describing a zip file ends in."""
    path = write(folder, data)
    with pytest.raises(CheckpointError) as caught:
        TorchZip().describe(path)
    assert caught.value.message.startswith(f"cannot read {str(path)!r}: ")
    return caught.value.message


@pytest.mark.parametrize("key", ["model", "optimizer", "config"])
@pytest.mark.parametrize("name", LIVE)
def test_no_recipe_runs_wherever_it_stands(tmp_path: Path, name: str, key: str) -> None:
    sentinel = tmp_path / "it-ran"
    value = entry(key, LIVE[name](f"echo > {sentinel}"))
    assert TorchZip().sniff(write(tmp_path, archive_of(value)))
    assert "the file would call" in refuse(tmp_path, archive_of(value))
    assert not sentinel.exists()


def test_a_hostile_persistent_id_is_refused(tmp_path: Path) -> None:
    sentinel = tmp_path / "it-ran"
    for hidden in (
        storage(key=LIVE["os.system"](f"echo > {sentinel}")),
        storage(kind=LIVE["eval"](f"echo > {sentinel}")),
        tensor(None, number(0), numbers(1), numbers(1), LIVE["os.system"](f"echo > {sentinel}")),
    ):
        assert "the file would call" in refuse(tmp_path, archive_of(hidden))
    assert not sentinel.exists()


WRONG_TENSORS: dict[str, tuple[bytes, str]] = {
    "too long": (tensor(None, number(0), numbers(3, 2)), "needs 24 bytes of a storage of 16"),
    "too far": (tensor(None, number(1)), "needs 20 bytes of a storage of 16"),
    "too wide": (tensor(None, number(0), numbers(2, 2), numbers(3, 1)), "needs 20 bytes"),
    "empty too far": (tensor(None, number(5), numbers(0), numbers(1)), "needs 20 bytes"),
    "negative offset": (tensor(None, number(-1)), "without its storage or its offset"),
    "negative size": (tensor(None, number(0), numbers(-2, -2)), "that is no count"),
    "negative stride": (tensor(None, number(3), numbers(2, 2), numbers(-2, -1)), "is no count"),
    "huge size": (tensor(None, number(0), numbers(HUGE, 1)), "that is no count"),
    "huge product": (tensor(None, number(0), numbers(2**61, 2**61)), "bytes of a storage of 16"),
    "huge repeats": (
        tensor(None, number(0), numbers(2**40), numbers(0)),
        "that repeats 16 bytes into",
    ),
    "many axes": (tensor(None, number(0), numbers(*[1] * 65), numbers(*[1] * 65)), "too long"),
    "axes that differ": (
        tensor(None, number(0), numbers(4), numbers(2, 1)),
        "do not fit its shape",
    ),
    "bool offset": (tensor(None, b"\x88"), "without its storage or its offset"),
    "bool size": (tensor(None, number(0), group(b"\x88", b"\x88")), "that is no count"),
    "float size": (tensor(None, number(0), group(b"F2.0\n", b"F2.0\n")), "that is no count"),
    "text size": (tensor(None, number(0), text("22")), "whose shape is a str"),
    "nested size": (tensor(None, number(0), group(numbers(2), b"K\x02")), "that is no count"),
    "no storage": (tensor(b"N"), "without its storage or its offset"),
    "a flag that is no bool": (
        tensor(None, number(0), numbers(2, 2), numbers(2, 1), b"K\x01"),
        "whose gradient flag is no bool",
    ),
    "parts missing": (call("torch._utils", "_rebuild_tensor_v2", b"N"), "a tensor of 1 parts"),
    "no parts": (call("torch._utils", "_rebuild_tensor"), "a tensor of 0 parts"),
    "no type": (call("torch._utils", "_rebuild_tensor_v3", *[b"N"] * 7), "without its type"),
    "a parameter of nothing": (
        call("torch._utils", "_rebuild_parameter", b"N", b"\x88", b"}"),
        "a parameter without its tensor",
    ),
    "rebuilt by nothing": (
        call("torch._tensor", "_rebuild_from_type_v2", b"N", b"N", b")", b"}"),
        "a tensor without its rebuilding function",
    ),
    "parts of version 3": (
        call("torch._utils", "_rebuild_tensor_v3", b"N"),
        "a tensor of 1 parts",
    ),
    "rebuilt by another": (
        call("torch._tensor", "_rebuild_from_type_v2", named("os", "system"), b"N", b")", b"}"),
        "rebuilt by 'os.system', which is not on the list",
    ),
    "an absent record": (tensor(storage(key=text("1"))), "a storage '1' that the archive lacks"),
    "another's record": (tensor(storage(key=text("../data.pkl"))), "that the archive lacks"),
    "a number for a key": (tensor(storage(key=b"K\x00")), "without a key or a length"),
    "an endless key": (tensor(storage(key=text("0" * 999))), "without a key or a length"),
    "a longer storage": (tensor(storage(numel=number(5))), "of 20 bytes whose record has 16"),
    "a shorter storage": (tensor(storage(numel=number(3))), "of 12 bytes whose record has 16"),
    "a negative storage": (tensor(storage(numel=number(-4))), "without a key or a length"),
    "a huge storage": (tensor(storage(numel=number(HUGE))), "without a key or a length"),
    "a bool storage": (tensor(storage(numel=b"\x88")), "without a key or a length"),
    "a wider type": (
        tensor(storage(kind=named("torch", "DoubleStorage"))),
        "of 32 bytes whose record has 16",
    ),
    "no storage class": (
        tensor(storage(kind=named("os", "system"))),
        "a storage of an unknown class, 'os.system'",
    ),
    "no class at all": (tensor(storage(kind=b"N")), "a storage of an unknown class, NoneType"),
    "another word": (tensor(storage(word=text("module"))), "that is no torch storage"),
    "no tuple": (text("storage") + b"Q", "that is no torch storage"),
    "a short tuple": (group(text("storage")) + b"Q", "that is no torch storage"),
    "a quantized storage": (
        tensor(storage(kind=named("torch", "QInt8Storage"))),
        "a tensor of type 'qint8'",
    ),
    "a size of torch's": (call("torch", "Size", text("x")), "whose shape is a str"),
    "a device of torch's": (call("torch", "device", b"N"), "a device without a name"),
    "a layout of torch's": (
        call("torch.serialization", "_get_layout", b"N"),
        "a layout without a name",
    ),
}


@pytest.mark.parametrize("name", WRONG_TENSORS)
def test_tensors_that_lie(tmp_path: Path, name: str) -> None:
    value, found = WRONG_TENSORS[name]
    assert found in refuse(tmp_path, archive_of(value))


def test_the_helper_makes_a_tensor_that_torch_reads(tmp_path: Path) -> None:
    data = archive_of(tensor())
    theirs = torch.load(io.BytesIO(data), weights_only=True)
    assert assert_same(TorchZip().describe(write(tmp_path, data)), theirs) == 1


def test_tensors_of_torch_before_0_4(tmp_path: Path) -> None:
    value = call("torch._utils", "_rebuild_tensor", storage(), number(1), numbers(3), numbers(1))
    data = archive_of(value)
    theirs = torch.load(io.BytesIO(data), weights_only=True)
    assert assert_same(TorchZip().describe(write(tmp_path, data)), theirs) == 1


def patched(data: bytes, signature: bytes, offset: int, value: bytes, which: int = 0) -> bytes:
    """Return `data` with bytes written over it at an offset from a header."""
    at = -1
    for _ in range(which + 1):
        at = data.index(signature, at + 1)
    at += offset
    return data[:at] + value + data[at + len(value) :]


LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


def plain() -> bytes:
    """Return a small archive of members data.pkl, data/0, version."""
    return archive_of(tensor())


def deflated() -> bytes:
    """Return the same, compressed."""
    return rezip(unzip(plain()), compressed=True)


def u16(value: int) -> bytes:
    """Return a number as two bytes."""
    return struct.pack("<H", value)


def u32(value: int) -> bytes:
    """Return a number as four bytes."""
    return struct.pack("<I", value)


def renamed(name: str) -> bytes:
    """Return an archive with one more member of this name."""
    return rezip({**unzip(plain()), name: b"x"})


def twice() -> bytes:
    """Return an archive that holds a record twice."""
    buffer = io.BytesIO(plain())
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr(zipfile.ZipInfo("archive/data/0"), bytes(16))
    return buffer.getvalue()


def many_parts() -> bytes:
    """Return an archive that claims to be the second of two."""
    return patched(plain(), END, 4, u16(1))


WRONG_ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "two records of a name": (twice, "the archive holds 'archive/data/0' twice"),
    "two pickles": (
        lambda: rezip({**unzip(plain()), "other/data.pkl": whole(b"N")}),
        "the archive holds 2 files 'data.pkl', not one",
    ),
    "a folder above": (lambda: renamed("../x"), "a member of the archive has the name '../x'"),
    "an absolute name": (lambda: renamed("/etc/x"), "has the name '/etc/x'"),
    "a name with a dot": (lambda: renamed("archive/./x"), "has the name 'archive/./x'"),
    "a backslash": (lambda: renamed("archive\\x"), "has the name 'archive\\\\x'"),
    "a double slash": (lambda: renamed("archive//x"), "has the name 'archive//x'"),
    "a name that is no UTF-8": (
        lambda: patched(patched(plain(), LOCAL, 30, b"\xff", 2), CENTRAL, 46, b"\xff", 2),
        "a member of the archive has no UTF-8 name",
    ),
    "encrypted": (
        lambda: patched(plain(), CENTRAL, 8, u16(1)),
        "'archive/data.pkl' in the archive is encrypted",
    ),
    "encrypted within": (
        lambda: patched(plain(), LOCAL, 6, u16(1)),
        "'archive/data.pkl' has a header that contradicts the directory",
    ),
    "another method": (
        lambda: patched(patched(plain(), LOCAL, 8, u16(12)), CENTRAL, 10, u16(12)),
        "'archive/data.pkl' is compressed by method 12, not deflate",
    ),
    "two methods": (
        lambda: patched(plain(), LOCAL, 8, u16(8)),
        "'archive/data.pkl' has a header that contradicts the directory",
    ),
    "no local header": (
        lambda: patched(plain(), LOCAL, 0, b"PKxx", 1),
        "'archive/data/0' has a header that contradicts the directory",
    ),
    "two names": (
        lambda: patched(plain(), LOCAL, 30, b"B", 1),
        "'archive/data/0' has another name in its own header",
    ),
    "stored in fewer bytes": (
        lambda: patched(plain(), CENTRAL, 24, u32(1 << 30), 1),
        f"'archive/data/0' is stored in 16 of {1 << 30} bytes",
    ),
    "one record over another": (
        lambda: patched(plain(), CENTRAL, 20, u32(60) * 2, 1),
        "'archive/version' lies across another part of the archive",
    ),
    "a record over the directory": (
        lambda: patched(plain(), CENTRAL, 20, u32(9999) * 2, 2),
        "'archive/version' lies across another part of the archive",
    ),
    "a record outside": (
        lambda: patched(plain(), CENTRAL, 42, u32(1 << 30), 1),
        "'archive/data/0' lies across another part of the archive",
    ),
    "one place for two records": (
        lambda: patched(plain(), CENTRAL, 42, u32(0), 1),
        "lies across another part of the archive",
    ),
    "the wide offset of nothing": (
        lambda: patched(plain(), CENTRAL, 42, u32(0xFFFFFFFF), 1),
        "'archive/data/0' lies across another part of the archive",
    ),
    "several parts": (many_parts, "the archive is one of several parts"),
    "fewer members than claimed": (
        lambda: patched(plain(), END, 8, u16(9) * 2),
        "the archive's directory lists 3 of 9 members",
    ),
    "a broken directory": (
        lambda: patched(plain(), CENTRAL, 0, b"PKxx", 1),
        "the archive's directory is damaged",
    ),
    "a directory that runs on": (
        lambda: patched(plain(), CENTRAL, 28, u16(9999), 2),
        "the archive's directory is damaged",
    ),
    "bytes before the archive": (
        lambda: LOCAL + bytes(30) + plain(),
        "the archive's directory does not end at byte",
    ),
    "bytes after the archive": (lambda: plain() + bytes(9), "the file is cut"),
    "a directory elsewhere": (
        lambda: patched(plain(), END, 16, u32(5)),
        "the archive's directory does not end at byte",
    ),
    "a pickle that does not unpack": (
        lambda: patched(deflated(), LOCAL, 46, b"\xff\xff\xff\xff"),
        "'archive/data.pkl' does not unpack",
    ),
    "a pickle that unpacks to more": (
        lambda: patched(deflated(), CENTRAL, 24, u32(5)),
        "'archive/data.pkl' does not unpack to its 5 bytes",
    ),
    "a pickle that unpacks to less": (
        lambda: patched(deflated(), CENTRAL, 24, u32(5000)),
        "'archive/data.pkl' does not unpack to its 5,000 bytes",
    ),
    "a pickle larger than any": (
        lambda: patched(deflated(), CENTRAL, 24, u32(0x7FFFFFFF)),
        "claims to unpack to 2,147,483,",
    ),
    "a large byte order": (
        lambda: rezip({**unzip(plain()), "archive/byteorder": b"little" * 99}),
        "'archive/byteorder' has 594 bytes, more than 64",
    ),
    "a second stream": (
        lambda: rezip({**unzip(plain()), "archive/data.pkl": whole(b"N") + whole(b"N")}),
        "4 bytes follow the end of the pickle",
    ),
    "an empty pickle": (
        lambda: rezip({**unzip(plain()), "archive/data.pkl": b""}),
        "the stream ends without its stop mark",
    ),
}


@pytest.mark.parametrize("name", WRONG_ARCHIVES)
def test_archives_that_lie(tmp_path: Path, name: str) -> None:
    make, found = WRONG_ARCHIVES[name]
    assert found in refuse(tmp_path, make())


def test_the_64_bit_directory_is_checked(tmp_path: Path) -> None:
    data = save(torch.ones(2))
    wide = b"PK\x06\x06"
    assert wide in data
    for offset, value in ((0, b"PKxx"), (4, bytes(8)), (16, u32(1)), (48, bytes(8)), (40, u32(7))):
        refuse(tmp_path, patched(data, wide, offset, value))
    locator = b"PK\x06\x07"
    for value in (bytes(8), struct.pack("<Q", 1 << 40), struct.pack("<Q", (1 << 64) - 1)):
        refuse(tmp_path, patched(data, locator, 8, value))


def test_a_bomb_costs_no_memory(tmp_path: Path) -> None:
    zeros = 80 << 20
    data = rezip({"archive/data.pkl": bytes(zeros)}, compressed=True)
    assert len(data) < 100_000
    tracemalloc.start()
    try:
        message = refuse(tmp_path, data)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert f"claims to unpack to {zeros:,}" in message


def test_a_pickle_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    stored = rezip({"archive/data.pkl": bytes((64 << 20) + 1)})
    assert "'archive/data.pkl' has 67,108,865 bytes, more than 67,108,864" in refuse(
        tmp_path, stored
    )


def test_a_directory_of_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zips, "MAX_MEMBERS", 2)
    assert "the archive claims 3 members, more than 2" in refuse(tmp_path, plain())


def small() -> dict[str, object]:
    """Return a checkpoint small enough to break in many ways."""
    base = torch.arange(12, dtype=torch.float32)
    return {
        "model": {"a.weight": base.reshape(3, 4), "b.weight": base[2:6], "c": base.bool()},
        "config": {"n_layer": 1, "name": "x"},
    }


FILES = {
    "zip": save(small()),
    "zip, compressed": changed(save(small()), lambda _: None, compressed=True),
    "legacy": save(small(), legacy=True),
}


def read_quietly(path: Path) -> int:
    """Describe and read all; anything but a result or a NanoGPTError fails the test."""
    explain(path)
    count = 0
    for format_ in (TorchZip(), TorchLegacy()):
        if format_.sniff(path):
            try:
                contents = format_.describe(path)
                reader = TensorReader()
                for info in infos(contents.root):
                    reader.read(info).sum()
                    count += 1
                repr(contents)
            except NanoGPTError:
                pass
    return count


@pytest.mark.parametrize("kind", FILES)
def test_a_file_cut_anywhere_is_an_error(tmp_path: Path, kind: str) -> None:
    data = FILES[kind]
    assert read_quietly(write(tmp_path, data)) == 3
    for length in {
        *range(0, len(data), max(1, len(data) // 150)),
        *range(len(data) - 30, len(data)),
    }:
        assert read_quietly(write(tmp_path, data[:length])) == 0


def test_a_cut_zip_says_so(tmp_path: Path) -> None:
    data = FILES["zip"]
    message = refuse(tmp_path, data[: len(data) // 2])
    assert f"the file is cut: {len(data) // 2:,} bytes" in message


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(sorted(FILES)),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_mutated_files_read_or_are_refused(
    tmp_path: Path, kind: str, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(FILES[kind])
    for place, value in changes:
        data[place % len(data)] = value
    read_quietly(write(tmp_path, bytes(data)))


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutated_pickles_in_a_zip_read_or_are_refused(
    tmp_path: Path, changes: list[tuple[int, int]]
) -> None:
    members = unzip(FILES["zip"])
    stream = bytearray(members["archive/data.pkl"])
    for place, value in changes:
        stream[place % len(stream)] = value
    read_quietly(write(tmp_path, rezip({**members, "archive/data.pkl": bytes(stream)})))
