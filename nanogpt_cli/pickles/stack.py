"""The half of the machine that every unpickler has: a stack, marks, a memo, plain containers."""

from __future__ import annotations

from nanogpt_cli.pickles.keys import KeyGuard
from nanogpt_cli.pickles.values import Malformed, Record

MAX_PROTOCOL = 5
MAX_OBJECTS = 2_000_000
"""Containers, records and groups that one stream may make."""
SPARE_COPIES = 1_000_000
"""Copies of memoised values that a stream may ask for beyond its own length."""


class Stack:
    """Builds plain values from opcodes; knows no names and no calls.

    Args:
        at: where the stream begins; afterwards, where the last opcode began.
        end: where it must have ended.
    """

    def __init__(self, at: int, end: int) -> None:
        self.at = at
        self.end = end
        self.protocol = 0
        self.memo: dict[int, object] = {}
        self._stack: list[object] = []
        self._marked: list[list[object]] = []
        self._keys = KeyGuard()
        self._made = 0
        self._copies = end - at + SPARE_COPIES

    def finish(self) -> object:
        """Return the one value that is left."""
        value = self._pop()
        if self._stack or self._marked:
            raise Malformed("a stop mark while values are still waiting")
        return value

    def _pop(self) -> object:
        if not self._stack:
            raise Malformed("an opcode that takes a value where there is none")
        return self._stack.pop()

    def _top(self) -> object:
        if not self._stack:
            raise Malformed("an opcode that takes a value where there is none")
        return self._stack[-1]

    def _pop_mark(self) -> list[object]:
        if not self._marked:
            raise Malformed("an opcode that needs a mark where there is none")
        items = self._stack
        self._stack = self._marked.pop()
        return items

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def push_new(self, value: object) -> None:
        """Push a container or a record, and count it."""
        self._count()
        self._stack.append(value)

    def _count(self) -> None:
        self._made += 1
        if self._made > MAX_OBJECTS:
            raise Malformed(f"more than {MAX_OBJECTS:,} objects", None)

    def _charge(self, parts: int) -> None:
        self._copies -= parts
        if self._copies < 0:
            raise Malformed("shared values that are copied too often")

    def mark(self, _: object) -> None:
        """Begin a group of values."""
        self._count()
        self._marked.append(self._stack)
        self._stack = []

    def pop(self, _: object) -> None:
        """Drop the top value, or the mark where a group is empty."""
        if self._stack or not self._marked:
            self._pop()
        else:
            self._pop_mark()

    def pop_mark(self, _: object) -> None:
        """Drop a group."""
        self._pop_mark()

    def duplicate(self, _: object) -> None:
        """Push the top value again."""
        self._push(self._top())

    def push_argument(self, argument: object) -> None:
        """Push what the opcode itself spells."""
        self._push(argument)

    # The memo and the frame

    def get(self, index: object) -> None:
        """Push a memoised value."""
        if index not in self.memo:
            raise Malformed(f"memo entry {index} is used before it is made")
        assert isinstance(index, int), "decoded as a number"
        self._push(self.memo[index])

    def put(self, index: object) -> None:
        """Memoise the top value."""
        assert isinstance(index, int), "decoded as a number"
        if index < 0:
            raise Malformed(f"memo entry {index} is negative")
        self.memo[index] = self._top()

    def memoize(self, _: object) -> None:
        """Memoise the top value under the next number."""
        self.memo[len(self.memo)] = self._top()

    def set_protocol(self, version: object) -> None:
        """Note the protocol."""
        assert isinstance(version, int), "decoded as a number"
        if version > MAX_PROTOCOL:
            raise Malformed(f"pickle protocol {version}, and {MAX_PROTOCOL} is the last one known")
        self.protocol = version

    def frame(self, length: object) -> None:
        """Check that the frame lies within the stream; frames say nothing else."""
        assert isinstance(length, int), "decoded as a number"
        if length > self.end - self.at - 9:
            raise Malformed(f"a frame of {length} bytes, longer than what is left")

    # Containers

    def make_tuple(self, _: object) -> None:
        """Push the group as a tuple."""
        self.push_new(tuple(self._pop_mark()))

    def make_short_tuple(self, length: object) -> None:
        """Push the top values, one to three, as a tuple."""
        assert isinstance(length, int), "given by the table of steps"
        if len(self._stack) < length:
            raise Malformed("an opcode that takes values where there are none")
        values = tuple(self._stack[-length:])
        del self._stack[-length:]
        self.push_new(values)

    def make_list(self, _: object) -> None:
        """Push the group as a list."""
        self.push_new(self._pop_mark())

    def make_dict(self, _: object) -> None:
        """Push the group of keys and values as a dict."""
        made: dict[object, object] = {}
        self._fill(made, self._pop_mark())
        self.push_new(made)

    def make_frozenset(self, _: object) -> None:
        """Push the group as a frozenset."""
        members = self._pop_mark()
        for member in members:
            self._charge(self._keys.admit(member))
        self.push_new(frozenset(members))

    def append(self, _: object) -> None:
        """Append the top value to the list below it."""
        value = self._pop()
        self._entries_list().append(value)

    def appends(self, _: object) -> None:
        """Append a group to the list below it."""
        values = self._pop_mark()
        self._entries_list().extend(values)

    def set_item(self, _: object) -> None:
        """Set one entry of the dict below key and value."""
        value = self._pop()
        key = self._pop()
        self._fill(self._entries_dict(), [key, value])

    def set_items(self, _: object) -> None:
        """Set a group of entries of the dict below it."""
        pairs = self._pop_mark()
        self._fill(self._entries_dict(), pairs)

    def add_items(self, _: object) -> None:
        """Add a group to the set below it."""
        members = self._pop_mark()
        target = self._top()
        if not isinstance(target, set):
            raise Malformed(f"members added to a {type(target).__name__}")
        for member in members:
            self._charge(self._keys.admit(member))
            target.add(member)

    def _fill(self, target: dict[object, object], pairs: list[object]) -> None:
        if len(pairs) % 2:
            raise Malformed("a key without its value")
        for at in range(0, len(pairs), 2):
            key = pairs[at]
            self._charge(self._keys.admit(key))
            target[key] = pairs[at + 1]

    def _entries_list(self) -> list[object]:
        target = self._top()
        if isinstance(target, Record):
            if target.items is None:
                target.items = []
            target = target.items
        if not isinstance(target, list):
            raise Malformed(f"entries appended to a {type(target).__name__}")
        return target

    def _entries_dict(self) -> dict[object, object]:
        target = self._top()
        if isinstance(target, Record):
            if target.items is None:
                target.items = {}
            target = target.items
        if not isinstance(target, dict):
            raise Malformed(f"entries set in a {type(target).__name__}")
        return target
