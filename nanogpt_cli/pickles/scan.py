"""The names in a pickle that is refused or broken, as far as its opcodes can be told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from nanogpt_cli.pickles.known import Call
from nanogpt_cli.pickles.machine import Machine
from nanogpt_cli.pickles.opcodes import MAX_NAME, Buffer, decode
from nanogpt_cli.pickles.reader import MAX_BYTES, MAX_OPCODES, run
from nanogpt_cli.pickles.values import GlobalUse, Malformed, Record, Refused

MAX_STREAMS = 100
_PROTO = b"\x80"
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
_GETS = ("GET", "BINGET", "LONG_BINGET")


def scan_globals(
    data: Buffer,
    offset: int = 0,
    *,
    calls: Iterable[str] = (),
    constants: Mapping[str, object] | None = None,
) -> tuple[GlobalUse, ...]:
    """Return every name that the pickle at `offset` holds, and those right behind it.

    Works on what `load` refuses, and never raises on what the bytes are. The first call that
    `load` would refuse is "refused", wherever in the streams it stands; other names are "known" or
    "inert", whatever is done to them.

    Args:
        data: the bytes.
        offset: where the first stream begins.
        calls: canonical names of the calls that are allowed beside the pickles' own list.
        constants: canonical names that stand for values.
    """
    end = min(len(data), offset + MAX_BYTES)
    stand_ins: dict[str, Call] = {name: _stand_in(name) for name in calls}
    uses: dict[str, GlobalUse] = {}
    position = offset
    for _ in range(MAX_STREAMS):
        machine = Machine(data, position, end, _stand_in("persistent"), stand_ins, constants or {})
        machine.start, machine.uses = offset, uses
        try:
            _, position = run(machine)
        except (Malformed, Refused):
            _Spelling(machine).read_on(machine.at)
            break
        if not _stream_follows(data, position):
            break
    return tuple(uses.values())


def _stream_follows(data: Buffer, position: int) -> bool:
    """Whether another stream begins where one ended; whatever else follows is data."""
    return data[position : position + 1] == _PROTO


def _stand_in(name: str) -> Callable[[object], object]:
    """Return a function that takes anything and gives a record, on which anything can be built."""

    def record(_: object) -> object:
        return Record(name)

    return record


class _Spelling:
    """Reads names by their spelling alone, with no stack: the texts last pushed, and a memo."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._texts = ("", "")
        self._memo = {i: v for i, v in machine.memo.items() if isinstance(v, str)}
        self._memoised = len(machine.memo)

    def read_on(self, position: int) -> None:
        """Note the names from `position` to the end of the last stream that can be decoded."""
        machine = self._machine
        for _ in range(MAX_OPCODES):
            machine.at = position
            try:
                opcode, argument, position = decode(machine.data, position, machine.end)
            except Malformed:
                return
            if opcode == "STOP" and not _stream_follows(machine.data, position):
                return
            self._read(opcode, argument)

    def _read(self, opcode: str, argument: object) -> None:
        if opcode in ("GLOBAL", "INST"):
            self._machine.note(str(argument))
        elif opcode == "STACK_GLOBAL":
            self._machine.note(".".join(self._texts))
        elif opcode in _PUTS:
            index = argument if isinstance(argument, int) else self._memoised
            self._memo[index] = self._texts[1]
            self._memoised += 1
        elif opcode in _GETS and isinstance(argument, int):
            self._texts = (self._texts[1], self._memo.get(argument, ""))
        elif isinstance(argument, str):
            self._texts = (self._texts[1], argument[:MAX_NAME])
