"""Pickles that no honest writer makes: each ends in one error, soon and in little memory."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pickle_recipes import LIVE, call, entry, group, named, text, whole

from nanogpt_cli import pickles
from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.pickles import reader, stack
from nanogpt_cli.pickles.opcodes import OPCODES


def refuse(data: bytes) -> str:
    """Return the message that reading `data` ends in."""
    with pytest.raises(CheckpointError) as caught:
        pickles.load(data)
    return caught.value.message


def u32(value: int) -> bytes:
    """Return a number as four bytes."""
    return value.to_bytes(4, "little")


def u64(value: int) -> bytes:
    """Return a number as eight bytes."""
    return value.to_bytes(8, "little")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the stream ends without its stop mark (at byte 0 of the pickle)"),
        (b"N", "the stream ends without its stop mark (at byte 1 of the pickle)"),
        (b".", "an opcode that takes a value where there is none (at byte 0 of the pickle)"),
        (b"NN.", "a stop mark while values are still waiting (at byte 2 of the pickle)"),
        (b"(N.", "a stop mark while values are still waiting (at byte 2 of the pickle)"),
        (b"\xff.", "byte 0xff is no opcode (at byte 0 of the pickle)"),
        (b"N.N", "1 bytes follow the end of the pickle (at byte 2 of the pickle)"),
        (b"\x80\xff.", "pickle protocol 255, and 5 is the last one known"),
        (b"\x80", "the stream ends in the middle of a number"),
        (b"t.", "an opcode that needs a mark where there is none"),
        (b"1.", "an opcode that needs a mark where there is none"),
        (b"0.", "an opcode that takes a value where there is none"),
        (b"2.", "an opcode that takes a value where there is none"),
        (b"(2.", "an opcode that takes a value where there is none"),
        (b"Na.", "an opcode that takes a value where there is none"),
        (b"NNa.", "entries appended to a NoneType"),
        (b"}Na.", "entries appended to a dict"),
        (b")Na.", "entries appended to a tuple"),
        (b"]NNs.", "entries set in a list"),
        (b"](NNu.", "entries set in a list"),
        (b"}(Nu.", "a key without its value"),
        (b"(Nd.", "a key without its value"),
        (b"](N\x90.", "members added to a list"),
        (b"}]Ns.", "a list where a key should stand"),
        (b"}}Ns.", "a dict where a key should stand"),
        (b"}\x8fNs.", "a set where a key should stand"),
        (b"}(\x91Ns.", "a frozenset where a key should stand"),
        (b"}]\x85Ns.", "a list where a key should stand"),
        (b"\x8f(]\x90.", "a list where a key should stand"),
        (b"(]\x91.", "a list where a key should stand"),
        (b"}" + b"\x96" + u64(0) + b"Ns.", "a bytearray where a key should stand"),
        (b"N\x85\x86.", "an opcode that takes values where there are none"),
        (b"h\x00.", "memo entry 0 is used before it is made"),
        (b"j\xff\xff\xff\xff.", "memo entry 4294967295 is used before it is made"),
        (b"g9\n.", "memo entry 9 is used before it is made"),
        (b"Np-1\n.", "memo entry -1 is negative"),
        (b"q\x00.", "an opcode that takes a value where there is none"),
        (b"\x94.", "an opcode that takes a value where there is none"),
        (b"NN\x93.", "a name that is no text"),
        (b"\x95" + u64(2**60) + b"N.", f"a frame of {2**60} bytes, longer than what is left"),
        (b"X" + u32(0xFFFFFFFF) + b"a.", "a length of 4294967295 bytes where 2 are left"),
        (b"\x8d" + u64(2**63) + b"a.", f"a length of {2**63} bytes where 2 are left"),
        (b"\x8e" + u64(2**63) + b"a.", f"a length of {2**63} bytes where 2 are left"),
        (b"\x96" + u64(2**40) + b"a.", f"a length of {2**40} bytes where 2 are left"),
        (b"B" + u32(2**31) + b"a.", f"a length of {2**31} bytes where 2 are left"),
        (b"T" + u32(0xFFFFFFFF) + b"a.", "a length of -1 bytes where 2 are left"),
        (b"\x8b" + u32(0xFFFFFFFF) + b"a.", "a length of -1 bytes where 2 are left"),
        (b"\x8b" + u32(256) + bytes(256) + b".", "an integer of 256 bytes, more than 255"),
        (b"C\x05abc", "a length of 5 bytes where 3 are left"),
        (b"X\x01", "the stream ends in the middle of a length"),
        (b"G\x00", "the stream ends in the middle of a number"),
        (b"I" + b"9" * 700 + b"\n.", "b'99999999999999999999' where an integer should stand"),
        (b"L" + b"9" * 700 + b"L\n.", "b'99999999999999999999' where an integer should stand"),
        (b"I1_0\n.", "b'1_0' where an integer should stand"),
        (b"I\n.", "b'' where an integer should stand"),
        (b"I5", "a line that does not end"),
        (b"F1.5.5\n.", "b'1.5.5' where a number should stand"),
        (b"Fabc\n.", "b'abc' where a number should stand"),
        (b"Sabc\n.", "a string without its quotes"),
        (b"S'abc\n.", "a string without its quotes"),
        (b"S'a'b'\n.", "a string without its quotes"),
        (b"S'\\q'\n.", "a quoted string with an unknown escape"),
        (b"S'\\x4'\n.", "a quoted string with an unknown escape"),
        (b"S'\\777'\n.", "a quoted string with an unknown escape"),
        (b"V\\ud800\n.", "text with a broken escape"),
        (b"V\\u12\n.", "text with a broken escape"),
        (b"X" + u32(3) + b"\xed\xa0\x80.", "text that is not UTF-8"),
        (b"c\xff\nx\n.", "text that is not UTF-8"),
        (b"c" + b"a" * 600 + b"\nb\n.", "a line that does not end"),
        (text("a" * 600) + text("b") + b"\x93.", "a name of more than 512 characters"),
        (b"U\x01a" * 2 + b"\x93Nb.", "a state for a Global"),
    ],
    ids=repr,
)
def test_malformed_streams(data: bytes, message: str) -> None:
    assert message in refuse(data)


@pytest.mark.parametrize("before", [b"", b"(", b"N", b"(N", b"]", b"}", b"NN", b"cos\nsystem\n)"])
def test_any_opcode_anywhere_reads_or_is_refused(before: bytes) -> None:
    for code in OPCODES:
        for after in (b"", b".", b"\0" * 9 + b".", b"\n\n.", b"\xff" * 9 + b"."):
            read_quietly(before + bytes([code]) + after)


def nested(opener: bytes, closer: bytes) -> Callable[[int], bytes]:
    """Return what spells a value nested in itself so many times."""
    return lambda depth: opener * depth + b"N" + closer * depth + b"."


DEEP: dict[str, Callable[[int], bytes]] = {
    "lists": nested(b"]", b"a"),
    "tuples": nested(b"", b"\x85"),
    "marked tuples": nested(b"(", b"t"),
    "dicts": nested(b"}K\x01", b"s"),
    "frozen tuples": nested(b"(", b"l"),
    "records": nested(named("a", "B") + b")\x81", b"b"),
    "arguments": nested(named("datetime", "date"), b"\x85R"),
    "set of tuples": lambda depth: b"\x8f(N" + b"\x85" * depth + b"\x90.",
    "keys": lambda depth: b"}N" + b"\x85" * depth + b"Ns.",
    "shapes": lambda depth: call("torch", "Size", b"N" + b"\x85" * depth) + b".",
    "encodings": lambda depth: call("_codecs", "encode", text("a"), b"N" + b"\x85" * depth) + b".",
    "dropped": lambda depth: b"]" * depth + b"a" * (depth - 1) + b"0Nx.",
}


@pytest.mark.parametrize("kind", DEEP)
def test_deep_nesting_is_refused(kind: str) -> None:
    refuse(DEEP[kind](50_000))


@pytest.mark.parametrize("kind", ["lists", "tuples", "dicts", "records"])
def test_honest_nesting_is_read_and_can_be_walked(kind: str) -> None:
    value = pickles.load(DEEP[kind](40)).value
    assert "None" in repr(value)
    assert value == value
    assert "values nested more than 100 deep" in refuse(DEEP[kind](101))


def test_depth_counts_through_shared_values() -> None:
    shared = b"]" * 60 + b"a" * 59 + b"q\x000"
    pickles.load(shared + b"(h\x00" + b"]" * 30 + b"h\x00" + b"a" * 30 + b"t.")
    assert "values nested more than 100 deep" in refuse(
        shared + b"(h\x00" + b"]" * 60 + b"h\x00" + b"a" * 60 + b"t."
    )


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"]q\x00h\x00a.", "list"),
        (b"}q\x00Nh\x00s.", "dict"),
        (b"]q\x00(h\x00ta.", "list"),
        (named("a", "B") + b")\x81q\x00h\x00b.", "record"),
        (named("a", "B") + b")\x81q\x00(h\x00tb.", "record"),
        (named("a", "B") + b")\x81q\x00h\x00Ns.", "record"),
        (named("a", "B") + b")\x81q\x00}Nh\x00sh\x00Nsb.", "record"),
        (b"]q\x00(h\x00" + entry("a", b"h\x00") + b"e.", "list"),
    ],
)
def test_values_that_hold_themselves_are_refused(data: bytes, kind: str) -> None:
    assert f"a {kind} that holds itself" in refuse(data)


@pytest.mark.parametrize("step", [b"2\x86", b"q\x000]h\x00ah\x00a", b"q\x000(h\x00h\x00h\x00t"])
def test_doubling_is_refused_without_being_written_out(step: bytes) -> None:
    message = refuse(b"]" + step * 60 + b".")
    assert "more than 20,000,000 values once shared ones are written out" in message


def test_copies_of_a_shared_value_are_counted() -> None:
    big = b"](" + b"N" * 10_000 + b"eq\x000"
    copies = b"]" + (call("collections", "deque", b"h\x00") + b"a") * 1000
    assert "shared values that are copied too often" in refuse(big + copies + b".")


def colliding_integers(count: int) -> bytes:
    """Return a dict whose integer keys all have the same hash."""
    keys = (i * (2**61 - 1) for i in range(1, count + 1))
    return b"}(" + b"".join(b"\x8a\x0c" + k.to_bytes(12, "little") + b"N" for k in keys) + b"u."


def colliding_tuples(count: int) -> bytes:
    """Return a set of tuples of -1 and -2, which have one hash."""
    minus = {"0": b"J\xff\xff\xff\xff", "1": b"J\xfe\xff\xff\xff"}
    rows = (b"".join(minus[bit] for bit in f"{i:016b}") for i in range(count))
    return b"\x8f(" + b"".join(b"(" + row + b"t" for row in rows) + b"\x90."


def colliding_floats(count: int) -> bytes:
    """Return a dict whose float keys all have the same hash."""
    keys = [float(2 ** (61 * i)) for i in range(1, count + 1)]
    return b"}(" + b"".join(b"F" + repr(k).encode() + b"\nN" for k in keys) + b"u."


@pytest.mark.parametrize("make", [colliding_integers, colliding_tuples, colliding_floats])
def test_colliding_keys_are_refused(make: Callable[[int], bytes]) -> None:
    pickles.load(make(8))
    assert "keys that were made to collide" in refuse(make(16))


def test_ordinary_keys_are_as_many_as_they_like() -> None:
    pairs = {(i, i + 1): i for i in range(20_000)}
    numbers = {i - 10_000: str(i) for i in range(20_000)} | {i / 7: i for i in range(10_000)}
    for value in (pairs, numbers, set(pairs)):
        assert pickles.load(pickle.dumps(value)).value == value


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (b"(" + b"N" * 300 + b"t", "a key of 300 parts, more than 256"),
        (b"((" + b"N" * 200 + b"t2t", "a key of more than 256 parts"),
        (text("x" * 70_000), "a key of more than 256 parts or 65536 bytes"),
        (b"\x8a\x20" + b"\x7f" * 32, "a key of 255 bits, more than 128"),
    ],
)
def test_keys_that_are_dear_to_hash_are_refused(key: bytes, found: str) -> None:
    assert found in refuse(b"}" + key + b"Ns.")


def test_objects_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "MAX_OBJECTS", 1000)
    pickles.load(b"(" + b"]" * 998 + b"l.")
    for thing in (b"]", b"}", b"\x8f", b")\x85", b"(t", named("a", "B") + b")\x81"):
        assert "more than 1,000 objects" in refuse(b"(" + thing * 1000 + b"l.")


def test_opcodes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_OPCODES", 1000)
    pickles.load(b"(" + b"N" * 997 + b"l.")
    assert "more than 1,000 opcodes" in refuse(b"(" + b"N" * 998 + b"l.")


def test_long_streams_are_not_read_beyond_the_limit() -> None:
    data = text("x" * (pickles.MAX_BYTES + 10)) + b"."
    assert "a length of 67,108,874".replace(",", "") in refuse(data)


@pytest.mark.parametrize(
    "data",
    [
        b"X" + u32(0x7FFFFFFF) + b"x" * 1000,
        b"\x8d" + u64(2**40) + b"x" * 1000,
        b"\x96" + u64(2**40) + b"x" * 1000,
        b"Nr\xff\xff\xff\xff" * 100 + b".",
        call("builtins", "bytearray", b"J\xff\xff\xff\x7f") + b".",
        b"(" * 1000,
    ],
    ids=repr,
)
def test_nothing_is_allocated_for_a_mere_claim(data: bytes) -> None:
    tracemalloc.start()
    try:
        refuse(data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


SEEDS = [
    pickle.dumps({"a": [1, (2.5, "x")], "b": {"c": {1, 2}}, "d": b"bytes"}, protocol)
    for protocol in range(6)
] + [whole(make("true")) for make in LIVE.values()]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_mutated_pickles_read_or_are_refused(seed: bytes, changes: list[tuple[int, int]]) -> None:
    data = bytearray(seed)
    for place, value in changes:
        data[place % len(data)] = value
    read_quietly(bytes(data))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(sorted(OPCODES)), max_size=30), st.binary(max_size=20))
def test_random_opcodes_read_or_are_refused(codes: list[int], data: bytes) -> None:
    read_quietly(bytes(codes) + data + b".")
    read_quietly(b"".join(bytes([code]) + b"\x01a\n" for code in codes) + b".")


def read_quietly(data: bytes) -> None:
    """Read and scan; anything but a value or a CheckpointError fails the test."""
    pickles.scan_globals(data)
    try:
        made = pickles.load(data)
    except CheckpointError as error:
        assert error.message.endswith(" of the pickle)") or "refused" in error.message  # noqa: PT017
    else:
        repr(made.value)


def test_group_helper_matches_the_standard_pickler() -> None:
    assert pickle.loads(whole(group(text("a"), b"K\x01"))) == ("a", 1)
