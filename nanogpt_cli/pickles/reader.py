"""Reading a pickle from bytes: one stream, or several in a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.pickles.known import Call
from nanogpt_cli.pickles.machine import Machine, Persistent
from nanogpt_cli.pickles.opcodes import OPCODES, Buffer, decode
from nanogpt_cli.pickles.soundness import make_sound
from nanogpt_cli.pickles.values import Malformed, Pickle, Refused

MAX_BYTES = 64 << 20
"""A longer stream is refused: it is no description of tensors and no token table."""
MAX_OPCODES = 10_000_000

_NOTHING: Mapping[str, object] = MappingProxyType({})
_NO_CALLS: Mapping[str, Call] = MappingProxyType({})

Step = Callable[[Machine, object], None]


def _constant(value: object) -> Step:
    return lambda machine, _: machine.push_argument(value)


def _fresh(make: Callable[[], object]) -> Step:
    return lambda machine, _: machine.push_new(make())


def _short_tuple(length: int) -> Step:
    return lambda machine, _: machine.make_short_tuple(length)


_PUSHED = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)

STEPS: dict[str, Step] = {
    **dict.fromkeys(_PUSHED, Machine.push_argument),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), Machine.get),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), Machine.put),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), Machine.refuse_extension),
    **dict.fromkeys(("NEXT_BUFFER", "READONLY_BUFFER"), Machine.refuse_buffer),
    "ADDITEMS": Machine.add_items,
    "APPEND": Machine.append,
    "APPENDS": Machine.appends,
    "BINPERSID": Machine.persist,
    "BUILD": Machine.build,
    "DICT": Machine.make_dict,
    "DUP": Machine.duplicate,
    "EMPTY_DICT": _fresh(dict),
    "EMPTY_LIST": _fresh(list),
    "EMPTY_SET": _fresh(set),
    "EMPTY_TUPLE": _constant(()),
    "FRAME": Machine.frame,
    "FROZENSET": Machine.make_frozenset,
    "GLOBAL": Machine.name,
    "INST": Machine.refuse_instance,
    "LIST": Machine.make_list,
    "MARK": Machine.mark,
    "MEMOIZE": Machine.memoize,
    "NEWFALSE": _constant(False),
    "NEWOBJ": Machine.new_object,
    "NEWOBJ_EX": Machine.refuse_keywords,
    "NEWTRUE": _constant(True),
    "NONE": _constant(None),
    "OBJ": Machine.refuse_object,
    "PERSID": Machine.persist_argument,
    "POP": Machine.pop,
    "POP_MARK": Machine.pop_mark,
    "PROTO": Machine.set_protocol,
    "REDUCE": Machine.reduce,
    "SETITEM": Machine.set_item,
    "SETITEMS": Machine.set_items,
    "STACK_GLOBAL": Machine.stack_name,
    "TUPLE": Machine.make_tuple,
    "TUPLE1": _short_tuple(1),
    "TUPLE2": _short_tuple(2),
    "TUPLE3": _short_tuple(3),
}
"""Opcode -> what the machine does; STOP ends the reading."""

assert STEPS.keys() | {"STOP"} == {name for name, _ in OPCODES.values()}, "every opcode has a step"


def load(
    data: Buffer,
    *,
    name: str = "the pickle",
    persistent: Persistent | None = None,
    calls: Mapping[str, Call] = _NO_CALLS,
    constants: Mapping[str, object] = _NOTHING,
) -> Pickle:
    """Return what `data`, one whole pickle of protocol 0 to 5, describes; nothing is executed.

    Containers, numbers and text come as themselves, OrderedDict and its like as dict, paths as
    str, numpy scalars as numbers, objects of unknown classes as `Record`, names as `Global`. The
    value is no deeper than 100 and never holds itself: objects that refer back to what holds them
    find a record without a state there.

    Args:
        data: the bytes, all of them.
        name: what messages call it ("data.pkl", "meta.pkl").
        persistent: turns a persistent id into a value; without it such ids are refused.
        calls: further calls by canonical name; each takes the arguments as one tuple and raises
            `Malformed` where they do not fit.
        constants: values that names stand for.

    Raises:
        CheckpointError: the stream is damaged, goes on after its end, or would call what is not
            on the written list; the message names the global and the offset.
    """
    made, end = load_at(data, 0, name=name, persistent=persistent, calls=calls, constants=constants)
    if end != len(data):
        raise CheckpointError(
            f"{len(data) - end} bytes follow the end of the pickle (at byte {end} of {name})",
            "the file is damaged or hides a second stream: get it again from where it came from",
        )
    return made


def load_at(
    data: Buffer,
    offset: int,
    *,
    name: str = "the pickle",
    persistent: Persistent | None = None,
    calls: Mapping[str, Call] = _NO_CALLS,
    constants: Mapping[str, object] = _NOTHING,
) -> tuple[Pickle, int]:
    """Return the pickle that begins at `offset`, and the offset after its end; see `load`."""
    end = min(len(data), offset + MAX_BYTES)
    machine = Machine(data, offset, end, persistent, calls, constants)
    try:
        value, after = run(machine)
        cut = make_sound(value)
    except Malformed as flaw:
        raise _malformed(machine, flaw, name) from None
    except Refused as refused:
        place = machine.uses[refused.name].offset
        raise CheckpointError(
            f"the file would call {refused.name!r} (at byte {place} of {name}): "
            "refused, nothing was run",
            "ask for a file that holds weights alone: "
            "torch.save(model.state_dict(), 'weights.pt') writes one",
        ) from None
    return Pickle(value, tuple(machine.uses.values()), machine.protocol, cut), after


def run(machine: Machine) -> tuple[object, int]:
    """Return the value that the machine's stream describes and the position after its stop mark.

    Raises:
        Malformed: the stream is damaged, or longer than any honest one.
        Refused: it calls what is not on the list.
    """
    position = machine.at
    for _ in range(MAX_OPCODES):
        machine.at = position
        opcode, argument, position = decode(machine.data, position, machine.end)
        if opcode == "STOP":
            return machine.finish(), position
        STEPS[opcode](machine, argument)
    raise Malformed(f"more than {MAX_OPCODES:,} opcodes", None)


def _malformed(machine: Machine, flaw: Malformed, name: str) -> CheckpointError:
    place = machine.at - machine.start
    return CheckpointError(
        f"{flaw} (at byte {place} of {name})",
        flaw.hint,
    )
