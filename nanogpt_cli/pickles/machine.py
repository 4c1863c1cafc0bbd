"""The machine that reads a pickle and executes nothing.

It has a stack and a memo as every unpickler has, and no way to import, look up or call anything
that a file names: a call is a key of a table of our own functions, or the file is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from nanogpt_cli.pickles.known import KNOWN_CALLS, KNOWN_NAMES, Call, canonical
from nanogpt_cli.pickles.opcodes import MAX_NAME, Buffer
from nanogpt_cli.pickles.stack import Stack
from nanogpt_cli.pickles.values import Global, GlobalUse, Malformed, Record, Refused

Persistent = Callable[[object], object]

_OUTSIDE = "the pickle is a part of something larger: give the whole file"


class Machine(Stack):
    """One reading of one stream.

    Args:
        data: the bytes, the stream beginning at `at`.
        at: where it begins; afterwards, where the last opcode began.
        end: where it must have ended.
        persistent: what turns a persistent id into a value, or None.
        calls: canonical names -> functions of ours, beside KNOWN_CALLS.
        constants: canonical names that stand for values.
    """

    def __init__(
        self,
        data: Buffer,
        at: int,
        end: int,
        persistent: Persistent | None,
        calls: Mapping[str, Call],
        constants: Mapping[str, object],
    ) -> None:
        super().__init__(at, end)
        self.data = data
        self.start = at
        self.uses: dict[str, GlobalUse] = {}
        self._persistent = persistent
        self._calls = {**KNOWN_CALLS, **calls}
        self._constants = constants

    def name(self, dotted: object) -> None:
        """Push a name, or the value that it stands for."""
        assert isinstance(dotted, str), "decoded as text"
        self.note(dotted)
        self._push(self._constants.get(canonical(dotted), Global(dotted)))

    def note(self, dotted: str) -> None:
        """Write down that the stream refers to a name."""
        if dotted not in self.uses:
            key = canonical(dotted)
            known = key in self._calls or key in self._constants or key in KNOWN_NAMES
            verdict = "known" if known else "inert"
            self.uses[dotted] = GlobalUse(dotted, self.at - self.start, verdict)

    def stack_name(self, _: object) -> None:
        """Push the name whose module and own name lie on the stack."""
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise Malformed("a name that is no text")
        if len(name) > MAX_NAME or len(module) > MAX_NAME:
            raise Malformed(f"a name of more than {MAX_NAME} characters")
        self.name(f"{module}.{name}")

    def reduce(self, _: object) -> None:
        """Replace a name and its arguments by what the list makes of the call."""
        args, function = self._pop(), self._pop()
        if not isinstance(function, Global):
            raise Malformed(f"a call of a {type(function).__name__}")
        if not isinstance(args, tuple):
            raise Malformed(f"a call with a {type(args).__name__} for arguments")
        self.push_new(self._call(function.name, args))

    def new_object(self, _: object) -> None:
        """Replace a class without arguments by a record, or by what the list makes of it."""
        args, cls = self._pop(), self._pop()
        if not isinstance(cls, Global):
            raise Malformed(f"an object of a {type(cls).__name__}")
        if not isinstance(args, tuple):
            raise Malformed(f"an object with a {type(args).__name__} for arguments")
        if args or canonical(cls.name) in self._calls:
            self.push_new(self._call(cls.name, args))
        else:
            self.push_new(Record(cls.name))

    def build(self, _: object) -> None:
        """Give a record its state; a dict's attributes are dropped."""
        state, target = self._pop(), self._top()
        if isinstance(target, Record):
            target.state = state
        elif not (isinstance(target, dict) and (state is None or isinstance(state, dict))):
            raise Malformed(f"a state for a {type(target).__name__}")

    def persist(self, _: object) -> None:
        """Replace a persistent id by what it stands for."""
        self.persist_argument(self._pop())

    def persist_argument(self, identity: object) -> None:
        """Push what a persistent id stands for."""
        if self._persistent is None:
            raise Malformed("a reference to data outside of the pickle", _OUTSIDE)
        self.push_new(self._persistent(identity))

    def refuse_instance(self, dotted: object) -> None:
        """Refuse INST."""
        self._refuse(str(dotted))

    def refuse_object(self, _: object) -> None:
        """Refuse OBJ, whose class begins a group."""
        self._refuse(_name_of((self._pop_mark() or [None])[0]))

    def refuse_keywords(self, _: object) -> None:
        """Refuse NEWOBJ_EX, whose class lies below two arguments."""
        self._pop()
        self._pop()
        self._refuse(_name_of(self._pop()))

    def refuse_extension(self, code: object) -> None:
        """Refuse EXT1, EXT2 and EXT4."""
        self._refuse(f"extension code {code}")

    def refuse_buffer(self, _: object) -> None:
        """Refuse buffers that lie outside of the stream."""
        raise Malformed("a buffer outside of the pickle", _OUTSIDE)

    def _call(self, name: str, args: tuple[object, ...]) -> object:
        stand_in = self._calls.get(canonical(name))
        if stand_in is None:
            self._refuse(name)
        for arg in args:
            if isinstance(arg, str | bytes | bytearray | list | tuple | dict | set | frozenset):
                self._charge(len(arg))
        return stand_in(args)

    def _refuse(self, name: str) -> NoReturn:
        use = self.uses.get(name)
        offset = self.at - self.start if use is None else use.offset
        self.uses[name] = GlobalUse(name, offset, "refused")
        raise Refused(name)


def _name_of(value: object) -> str:
    return value.name if isinstance(value, Global) else f"a {type(value).__name__}"
