"""Honest pickles: what ordinary picklers write comes back as plain values and inert records."""

from __future__ import annotations

import argparse
import collections
import copyreg
import datetime
import math
import pathlib
import pickle
import types
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from pickle_recipes import call, entry, group, named, text, whole

from nanogpt_cli import pickles
from nanogpt_cli.pickles import Global, Record


@dataclass
class Settings:
    """A config object, as build-nanogpt pickles one."""

    block_size: int = 1024
    name: str = "x"


@dataclass(slots=True)
class Slotted:
    """The same with slots."""

    n_layer: int = 12


class Table(dict[str, int]):
    """A dict of a class of its own."""


class Row(list[int]):
    """A list of a class of its own."""


def read(value: object, protocol: int) -> object:
    """Pickle with the standard library and read with ours."""
    return pickles.load(pickle.dumps(value, protocol)).value


def pair(key: str, value: int) -> bytes:
    """Push a list of a key and a small number."""
    return b"](" + text(key) + b"K" + bytes([value]) + b"e"


OF_PAIRS = {"a": 1, "b": 2}
PLAIN: list[object] = [
    None,
    True,
    False,
    0,
    255,
    256,
    65_536,
    -1,
    2**31,
    -(2**63),
    2**100,
    -(2**1000),
    0.0,
    -1.5e300,
    math.inf,
    "",
    "line\nbreak \\ 'quoted' \\u0041",
    "ünïcödé 模型 \U0001f600",
    "x" * 300,
    b"",
    b"\x00\xff" * 200,
    bytearray(b"ab\xff"),
    (),
    (1,),
    (1, 2),
    (1, 2, 3),
    tuple(range(10)),
    [],
    [1, [2, [3]]],
    list(range(2000)),
    {},
    {"a": 1, 2: "b", (3, "c"): None, 1.5: 2, b"k": 3},
    {f"key {i}": i for i in range(2000)},
    set(),
    {1, "a", (2, 3)},
    frozenset({1, 2}),
    1 + 2j,
]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", PLAIN, ids=lambda value: repr(value)[:20])
def test_plain_values_come_as_themselves(value: object, protocol: int) -> None:
    made = read(value, protocol)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize("protocol", range(6))
def test_every_byte_and_many_letters_survive(protocol: int) -> None:
    everything = {"bytes": bytes(range(256)), "text": "".join(map(chr, range(0xD000)))}
    assert read(everything, protocol) == everything


@pytest.mark.parametrize("protocol", range(6))
def test_shared_values_stay_shared(protocol: int) -> None:
    shared = ["x"]
    made = read([shared, shared, {"again": shared}], protocol)
    assert isinstance(made, list)
    assert made[0] is made[1] is made[2]["again"]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (collections.defaultdict(int, {1: 2}), {1: 2}),
        (collections.defaultdict(list, {1: [2]}), {1: [2]}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.deque([1, 2], maxlen=5), [1, 2]),
        (collections.deque([1, 2]), [1, 2]),
        (pathlib.PurePosixPath("/data/ckpt.pt"), "/data/ckpt.pt"),
        (pathlib.PurePosixPath("out"), "out"),
        (pathlib.Path("out") / "x", "out/x"),
        (pathlib.PureWindowsPath("C:\\data\\x"), "C:\\data\\x"),
        (np.float64(2.5), 2.5),
        (np.float32(1.5), 1.5),
        (np.float16(0.5), 0.5),
        (np.int64(-3), -3),
        (np.int8(-3), -3),
        (np.uint16(65535), 65535),
        (np.bool_(True), True),
        (np.complex64(1 + 2j), 1 + 2j),
        (np.str_("héy"), "héy"),
        (np.bytes_(b"ab"), b"ab"),
        (np.array(4, dtype=">i4")[()], 4),
    ],
    ids=repr,
)
def test_listed_calls_become_plain(value: object, expected: object, protocol: int) -> None:
    made = read(value, protocol)
    assert made == expected
    assert type(made) is type(expected)


def test_numpy_of_either_age_and_order() -> None:
    dtype = call("numpy", "dtype", text("f4"), b"\x89", b"\x88")
    big = dtype + group(b"K\x03", text(">"), b"N", b"N", b"N", b"J\xff\xff\xff\xff" * 2, b"K\x00")
    raw = call("_codecs", "encode", text("?\x80\x00\x00"), text("latin1"))
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        data = whole(call(module, "scalar", big + b"b", raw))
        assert pickles.load(data).value == 1.0


def test_a_numpy_scalar_of_python_2() -> None:
    dtype = call("numpy", "dtype", b"U\x02f4", b"\x89", b"\x88")
    for raw in (b"\x00\x00\x80?", b"\xc3\xa9\x80?"):
        spelled = call("numpy.core.multiarray", "scalar", dtype, b"U\x04" + raw)
        assert pickles.load(whole(spelled)).value == np.frombuffer(raw, "<f4")[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (call("collections", "OrderedDict", b"](" + pair("a", 1) + pair("b", 2) + b"e"), OF_PAIRS),
        (call("collections", "OrderedDict", entry("a", b"K\x01")), {"a": 1}),
        (call("collections", "defaultdict", b"N", entry("a", b"K\x01")), {"a": 1}),
        (call("collections", "defaultdict"), {}),
        (call("collections", "deque"), []),
        (call("collections", "deque", b")", b"K\x05"), []),
        (named("collections", "OrderedDict") + b")\x81", {}),
        (call("builtins", "set"), set()),
        (call("__builtin__", "set", group(b"K\x01", b"K\x02")), {1, 2}),
        (call("builtins", "dict"), {}),
        (call("builtins", "list"), []),
        (call("builtins", "bytes"), b""),
        (call("builtins", "bytearray"), bytearray()),
        (call("builtins", "bytearray", text("\xff"), text("latin-1")), bytearray(b"\xff")),
        (call("builtins", "complex", b"K\x01", b"F2.0\n"), 1 + 2j),
        (call("_codecs", "encode", text("é"), text("utf8")), "é".encode()),
        (call("pathlib._local", "PosixPath", text("a"), text("b")), "a/b"),
        (call("pathlib", "WindowsPath", text("C:\\"), text("b")), "C:\\b"),
    ],
    ids=repr,
)
def test_calls_as_others_spell_them(value: bytes, expected: object) -> None:
    made = pickles.load(whole(value)).value
    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_unknown_objects_become_records(protocol: int) -> None:
    made = read({"config": Settings(block_size=64)}, protocol)
    assert isinstance(made, dict)
    record = made["config"]
    assert isinstance(record, Record)
    assert record.class_name == f"{__name__}.Settings"
    assert record.fields == {"block_size": 64, "name": "x"}


@pytest.mark.parametrize("protocol", [0, 1])
def test_unknown_objects_of_old_protocols(protocol: int) -> None:
    record = read(Settings(block_size=64), protocol)
    assert isinstance(record, Record)
    assert record.fields == {"block_size": 64, "name": "x"}


def test_a_class_that_exists_nowhere_is_no_obstacle() -> None:
    value = named("model.of.another", "GPTConfig") + b")\x81" + entry("n_layer", b"K\x04") + b"b"
    made = pickles.load(whole(value))
    assert isinstance(made.value, Record)
    assert made.value.fields == {"n_layer": 4}
    assert [(use.name, use.offset, use.verdict) for use in made.globals] == [
        ("model.of.another.GPTConfig", 2, "inert")
    ]


def test_slots_come_with_the_other_fields() -> None:
    slotted = read(Slotted(3), 2)
    assert isinstance(slotted, Record)
    assert slotted.fields == {"n_layer": 3}
    pair = named("a", "B") + b")\x81" + group(entry("x", b"K\x01"), entry("y", b"K\x02")) + b"b"
    record = pickles.load(whole(pair)).value
    assert isinstance(record, Record)
    assert record.fields == {"x": 1, "y": 2}


class Node:
    """Knows its parent, as the nodes of some config libraries do."""

    def __init__(self, parent: Node | None = None) -> None:
        self.parent = parent
        self.children = [] if parent is None else [parent]
        self.child = Node(self) if parent is None else None


@pytest.mark.parametrize("protocol", range(6))
def test_objects_that_know_their_parents_lose_the_way_back(protocol: int) -> None:
    made = pickles.load(pickle.dumps({"config": Node(), None: 1}, protocol))
    assert made.cut == 2
    root = made.value
    assert isinstance(root, dict)
    assert root[None] == 1
    child = root["config"].fields["child"]
    for parent in (child.fields["parent"], child.fields["children"][0]):
        assert isinstance(parent, Record)
        assert (parent.class_name, parent.state) == (f"{__name__}.Node", None)
    assert repr(root).count("Node") == 4


def test_entries_of_subclasses_are_kept() -> None:
    table, row = read(Table(a=1, b=2), 2), read(Row([1, 2]), 2)
    assert isinstance(table, Record)
    assert table.items == {"a": 1, "b": 2}
    assert isinstance(row, Record)
    assert row.items == [1, 2]


@pytest.mark.parametrize("protocol", range(6))
def test_namespaces(protocol: int) -> None:
    for value in (types.SimpleNamespace(lr=0.1), argparse.Namespace(lr=0.1)):
        record = read(value, protocol)
        assert isinstance(record, Record)
        assert record.class_name.endswith("Namespace")
        assert record.fields == {"lr": 0.1}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (datetime.datetime(2024, 1, 2), "datetime.datetime"),
        (datetime.timedelta(1), "datetime.timedelta"),
        (Fraction(1, 3), "fractions.Fraction"),
        (range(3), "builtins.range"),
        (slice(1, 2), "builtins.slice"),
        (np.arange(3), "numpy.ndarray"),
        (np.dtype("f4"), "numpy.dtype"),
        (np.datetime64("2024-01-01"), "numpy.scalar"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("protocol", range(6))
def test_other_listed_constructors_are_recorded_not_called(
    value: object, name: str, protocol: int
) -> None:
    record = read(value, protocol)
    assert isinstance(record, Record)
    assert record.class_name == name
    assert record.args


def test_names_that_are_not_called_stay_names() -> None:
    assert read(copyreg.pickle, 2) == Global("copy_reg.pickle")
    assert read([math.sin], 4) == [Global("math.sin")]
    assert pickles.load(whole(named("os", "system"))).value == Global("os.system")


def test_constants_and_calls_are_the_callers() -> None:
    made = pickles.load(
        whole(group(named("torch", "float32"), call("my", "sum", b"K\x01", b"K\x02"))),
        constants={"torch.float32": "float32"},
        calls={"my.sum": lambda args: sum(arg for arg in args if isinstance(arg, int))},
    )
    assert made.value == ("float32", 3)
    assert [(use.name, use.verdict) for use in made.globals] == [
        ("torch.float32", "known"),
        ("my.sum", "known"),
    ]


def test_persistent_ids_are_the_callers() -> None:
    for spelled in (text("key") + b"Q", b"Pkey\n"):
        assert pickles.load(whole(spelled), persistent=lambda key: [key]).value == ["key"]


def test_protocol_is_told() -> None:
    assert [pickles.load(pickle.dumps(1, p)).protocol for p in range(6)] == [0, 0, 2, 3, 4, 5]


def test_streams_in_a_row() -> None:
    data = b"head" + pickle.dumps([1]) + pickle.dumps({"a": 2}, 0) + b"tail"
    first, at = pickles.load_at(data, 4)
    second, end = pickles.load_at(data, at)
    assert (first.value, second.value, data[end:]) == ([1], {"a": 2}, b"tail")


def test_texts_of_python_2() -> None:
    assert pickles.load(b"S'it\\'s \\x41\\n\\101\\\\'\n.").value == "it's A\nA\\"
    assert pickles.load(b'S"a\'b"\n.').value == "a'b"
    assert pickles.load(b"U\x02\xc3\xa9.").value == "é"
    assert pickles.load(b"T\x02\x00\x00\x00\xff\xfe.").value == b"\xff\xfe"
    assert pickles.load(b"Vb\\u0061\\U0001f600\n.").value == "ba\U0001f600"
    assert pickles.load(b"(I01\nI00\nI7\nL8L\nL9\nF1.5\nl.").value == [True, False, 7, 8, 9, 1.5]


def test_a_record_is_equal_to_itself_alone() -> None:
    one, other = Record("a.B", state=1), Record("a.B", state=1)
    assert one == one
    assert one != other
    assert {one: 1}[one] == 1
    assert repr(one) == "Record(class_name='a.B', state=1, args=(), items=None)"
