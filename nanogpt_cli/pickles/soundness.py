"""A last look at what a pickle built: no value within itself, none too deep, none that explodes.

What passes can be walked, compared and printed by plain recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from nanogpt_cli.pickles.values import Malformed, Record

MAX_DEPTH = 100
MAX_UNSHARED = 20_000_000

_FIXED = object()
"""The place of a child that cannot be replaced: a key, a member, a part of a tuple."""
_CONTAINERS = (list, tuple, dict, set, frozenset, Record)


def make_sound(root: object) -> int:
    """Check that `root` is a finite tree once sharing is undone, of bounded depth and size.

    Objects may know what holds them: where a dict or a list below a record refers back to it, the
    reference becomes a record of that class without a state.

    Returns:
        How many references became such records.

    Raises:
        Malformed: it is not, and cannot be made so.
    """
    walk = _Walk()
    walk.enter(root)
    while walk.path:
        frame = walk.path[-1]
        for place, child in frame.waiting:
            frame.place = place
            if isinstance(child, _CONTAINERS) and child:
                if walk.enter(child):
                    break
            else:
                frame.size += 1
        else:
            walk.leave()
    return walk.cut


def _children(value: object) -> Iterator[tuple[object, object]]:
    """Return (place, child) of everything in a container."""
    if isinstance(value, dict):
        return chain(((_FIXED, key) for key in value), value.items())
    if isinstance(value, list):
        return enumerate(value)
    if isinstance(value, Record):
        return iter([(_FIXED, value.state), (_FIXED, value.args), (_FIXED, value.items)])
    assert isinstance(value, tuple | set | frozenset), "only containers are walked"
    return ((_FIXED, child) for child in value)


class _Frame:
    """A container whose children are being visited."""

    __slots__ = ("depth", "place", "size", "value", "waiting")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.waiting = _children(value)
        self.place: object = _FIXED
        self.depth = 1
        self.size = 1


class _Walk:
    """A depth-first visit that sees every container once, without recursion."""

    def __init__(self) -> None:
        self.path: list[_Frame] = []
        self.cut = 0
        self._open: set[int] = set()
        self._done: dict[int, tuple[int, int]] = {}

    def enter(self, value: object) -> bool:
        """Begin `value` unless it is known already; return whether it was begun."""
        known = self._done.get(id(value))
        if known is not None:
            self._add_to_top(*known)
            return False
        if not isinstance(value, _CONTAINERS):
            return False
        if id(value) in self._open:
            self._cut(value)
            return False
        if len(self.path) >= MAX_DEPTH:
            raise Malformed(f"values nested more than {MAX_DEPTH} deep", None)
        self._open.add(id(value))
        self.path.append(_Frame(value))
        return True

    def leave(self) -> None:
        """Finish the container on top and add it to the one that holds it."""
        frame = self.path.pop()
        self._open.discard(id(frame.value))
        self._done[id(frame.value)] = (frame.depth, frame.size)
        if self.path:
            self._add_to_top(frame.depth, frame.size)

    def _cut(self, value: object) -> None:
        """Put a stub where the container on top refers back to a record around it."""
        top = self.path[-1]
        if not isinstance(value, Record) or top.place is _FIXED:
            raise Malformed(f"a {type(value).__name__.lower()} that holds itself", None)
        top.value[top.place] = Record(value.class_name)
        self.cut += 1

    def _add_to_top(self, depth: int, size: int) -> None:
        top = self.path[-1]
        top.depth = max(top.depth, depth + 1)
        top.size += size
        if len(self.path) + depth > MAX_DEPTH:
            raise Malformed(f"values nested more than {MAX_DEPTH} deep", None)
        if top.size > MAX_UNSHARED:
            raise Malformed(
                f"more than {MAX_UNSHARED:,} values once shared ones are written out", None
            )
