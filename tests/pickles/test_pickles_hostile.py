"""Pickles that would run something: refused by name, and nothing runs."""

from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path

import pytest
from pickle_recipes import LIVE, REFUSED, binary, call, entry, group, named, text, whole

from nanogpt_cli import pickles
from nanogpt_cli.errors import CheckpointError


class Evil:
    """Pickled by the ordinary pickler, it runs a shell command when it is read."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


@pytest.fixture
def sentinel(tmp_path: Path) -> Path:
    """Return a file that exists once a hostile pickle was run."""
    return tmp_path / "it-ran"


def refuse(data: bytes) -> CheckpointError:
    """Return the error that reading `data` ends in."""
    with pytest.raises(CheckpointError) as caught:
        pickles.load(data, name="data.pkl")
    return caught.value


@pytest.mark.parametrize("name", LIVE)
def test_live_recipes_run_elsewhere(name: str, sentinel: Path) -> None:
    protocol = 4 if name == "a dotted name" else 2
    # Some fail once the command has run: what it returns is of no use to them.
    with contextlib.suppress(pickle.UnpicklingError, TypeError, RuntimeError):
        pickle.loads(whole(LIVE[name](f"echo > {sentinel}"), protocol))
    assert sentinel.exists()


@pytest.mark.parametrize("place", ["alone", "optimizer", "config", "deep"])
@pytest.mark.parametrize("name", LIVE)
def test_live_recipes_are_refused(name: str, place: str, sentinel: Path) -> None:
    value = LIVE[name](f"echo > {sentinel}")
    if place == "deep":
        value = entry("model", entry("a", b"]" + group(b"N", value) + b"a"))
    elif place != "alone":
        value = entry(place, value)
    error = refuse(whole(value))
    assert "the file would call" in error.message
    assert error.message.endswith(" of data.pkl): refused, nothing was run")
    assert not sentinel.exists()


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_refused(protocol: int, sentinel: Path) -> None:
    data = pickle.dumps({"config": [Evil(f"echo > {sentinel}")]}, protocol)
    assert "'posix.system'" in refuse(data).message
    assert not sentinel.exists()
    pickle.loads(data)
    assert sentinel.exists()


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_the_global_and_its_offset(name: str) -> None:
    data = whole(entry("a", REFUSED[name]))
    module, _, own_name = name.rpartition(".")
    spelled = data.find(f"{module}\n{own_name}\n".encode())
    # An extension code is its own opcode; of a name, the opcode that names it counts.
    place = len(whole(entry("a", b""))) - 2 if spelled < 0 else spelled - 1
    assert f"the file would call {name!r} (at byte {place} of data.pkl)" in refuse(data).message


def test_a_refusal_reads_as_one_line() -> None:
    error = refuse(whole(call("os", "system", text("echo"))))
    assert error.message == (
        "the file would call 'os.system' (at byte 2 of data.pkl): refused, nothing was run"
    )
    assert error.hint is not None
    assert "weights_only" not in error.hint
    assert error.exit_code == 1


def scalar(code: bytes, raw: bytes) -> bytes:
    """Push a numpy scalar of a type code and bytes."""
    dtype = call("numpy", "dtype", code, b"\x89", b"\x88")
    return call("numpy.core.multiarray", "scalar", dtype, raw)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (call("_codecs", "encode", text("x"), text("rot13")), "an encoding that is none of"),
        (call("_codecs", "decode", binary(b"x"), text("zip")), "'_codecs.decode'"),
        (call("builtins", "bytes", b"J\xff\xff\xff\x7f"), "arguments that do not fit (int)"),
        (call("builtins", "bytearray", b"J\xff\xff\xff\x7f"), "arguments that do not fit (int)"),
        (call("pathlib", "PosixPath", b"K\x01"), "arguments that do not fit (int)"),
        (call("collections", "defaultdict", text("f")), "arguments that do not fit (str)"),
        (call("collections", "OrderedDict", b"](Na"), "an opcode that takes a value"),
        (call("collections", "OrderedDict", b"]Na"), "an entry that is no pair"),
        (call("collections", "OrderedDict", b"N", b"N"), "arguments that do not fit"),
        (call("collections", "Counter", text("aab")), "arguments that do not fit (str)"),
        (call("_codecs", "encode", text("é"), text("ascii")), "text that is no ascii"),
        (call("_codecs", "encode", b"N", text("ascii")), "do not fit (NoneType, str)"),
        (call("builtins", "complex", b"K\x01", b"N"), "do not fit (int, NoneType)"),
        (call("builtins", "complex", *[b"\x8a\xff" + b"\x7f" * 255] * 2), "do not fit (int, int)"),
        (call("collections", "OrderedDict", b"](](]Nee"), "a list where a key should stand"),
        (call("numpy.core.multiarray", "scalar"), "arguments that do not fit ()"),
        (scalar(text("f4"), b"N"), "arguments that do not fit (Record, NoneType)"),
        (scalar(b"N", binary(b"1234")), "a numpy dtype without its code"),
        (scalar(text("U1"), binary(b"\xff\xff\xff\xff")), "a numpy text that is no UTF-32"),
        (call("collections", "deque", b"N"), "arguments that do not fit (NoneType)"),
        (call("builtins", "set", text("ab")), "arguments that do not fit (str)"),
        (call("builtins", "complex", text("1"), b"N"), "arguments that do not fit"),
        (call("types", "SimpleNamespace", b"N"), "arguments that do not fit (NoneType)"),
        (
            call("copyreg", "_reconstructor", named("a", "B"), named("builtins", "dict"), b"}"),
            "arguments that do not fit (Global, Global, dict)",
        ),
        (
            call("copyreg", "_reconstructor", named("a", "B"), named("builtins", "dict"), b"N"),
            "arguments that do not fit (Global, Global, NoneType)",
        ),
        (call("collections", "OrderedDict") + b")R", "a call of a dict"),
        (named("a", "b") + b"NR", "a call with a NoneType for arguments"),
        (b"N)R", "a call of a NoneType"),
        (b"N)\x81", "an object of a NoneType"),
        (named("a", "B") + b"N\x81", "an object with a NoneType for arguments"),
        (named("a", "B") + b"Nb", "a state for a Global"),
        (b"K\x01}b", "a state for a int"),
        (text("id") + b"Q", "a reference to data outside of the pickle"),
        (b"Pid\n", "a reference to data outside of the pickle"),
        (b"\x97", "a buffer outside of the pickle"),
        (call("numpy.core.multiarray", "scalar", b"N", binary(b"1234")), "without its dtype"),
        (scalar(text("f4"), binary(b"12345678")), "a numpy scalar of 8 bytes instead of 4"),
        (scalar(text("c8"), binary(b"1234")), "a numpy scalar of 4 bytes instead of 8"),
    ],
)
def test_misused_allowed_calls(value: bytes, found: str) -> None:
    assert found in refuse(whole(value)).message


def test_a_hidden_second_stream_is_refused(sentinel: Path) -> None:
    data = whole(b"}") + whole(LIVE["os.system"](f"echo > {sentinel}"))
    message = refuse(data).message
    assert message == f"{len(data) - 4} bytes follow the end of the pickle (at byte 4 of data.pkl)"
    assert not sentinel.exists()


def test_scanning_finds_names_in_what_is_refused() -> None:
    first = entry("a", call("os", "system", text("x")) + b"0" + three_names())
    uses = pickles.scan_globals(whole(first) + whole(named("second", "stream")))
    assert [(use.name, use.verdict) for use in uses] == [
        ("os.system", "refused"),
        ("collections.OrderedDict", "known"),
        ("builtins.eval", "inert"),
        ("nt.system", "inert"),
        ("second.stream", "inert"),
    ]
    assert uses[0].offset == 2 + 1 + 6


@pytest.mark.parametrize("name", LIVE)
def test_scanning_tells_which_call_is_refused(name: str) -> None:
    streams = whole(b"N") + whole(b"K\x01") + whole(entry("a", LIVE[name]("true")))
    uses = pickles.scan_globals(b"head" + streams + whole(named("last", "name")), 4)
    assert [use.verdict for use in uses].count("refused") == 1
    assert uses[-1] == pickles.GlobalUse("last.name", len(streams) + 2, "inert")


def test_scanning_takes_the_callers_calls_for_granted() -> None:
    value = call("my", "tensor", b"K\x01") + b"}b" + call("os", "system", text("true"))
    uses = pickles.scan_globals(whole(group(value, text("id") + b"Q")), calls=["my.tensor"])
    assert [(use.name, use.verdict) for use in uses] == [
        ("my.tensor", "known"),
        ("os.system", "refused"),
    ]


def three_names() -> bytes:
    """Push three globals: by its line, by the stack, and by texts from the memo."""
    return (
        named("collections", "OrderedDict")
        + text("builtins")
        + text("eval")
        + b"\x93"
        + text("nt")
        + b"\x940"
        + text("system")
        + b"\x940"
        + b"h\x00h\x01\x93"
    )


@pytest.mark.parametrize("data", [b"", b".", b"\x80\x02", b"cos\nsystem\n", b"\xff" * 50])
def test_scanning_never_fails(data: bytes) -> None:
    names = [use.name for use in pickles.scan_globals(data)]
    assert names == (["os.system"] if data.startswith(b"c") else [])
