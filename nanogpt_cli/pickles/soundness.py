"""A last look at what a pickle built: no value within itself, none too deep, none that explodes.

What passes can be walked, compared and printed by plain recursion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from nanogpt_cli.pickles.values import Malformed, Record

MAX_DEPTH = 100
MAX_UNSHARED = 20_000_000

_CONTAINERS = (list, tuple, dict, set, frozenset, Record)


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return chain(value.keys(), value.values())
    if isinstance(value, Record):
        return (value.state, value.args, value.items)
    assert isinstance(value, list | tuple | set | frozenset), "only containers are walked"
    return value


def check_soundness(root: object) -> None:
    """Check that `root` is a finite tree once sharing is undone, of bounded depth and size.

    Raises:
        Malformed: it is not.
    """
    walk = _Walk()
    walk.enter(root)
    while walk.path:
        frame = walk.path[-1]
        for child in frame.waiting:
            if isinstance(child, _CONTAINERS) and child:
                if walk.enter(child):
                    break
            else:
                frame.size += 1
        else:
            walk.leave()


class _Frame:
    """A container whose children are being visited."""

    __slots__ = ("depth", "key", "size", "waiting")

    def __init__(self, value: object) -> None:
        self.key = id(value)
        self.waiting: Iterator[object] = iter(_children(value))
        self.depth = 1
        self.size = 1


class _Walk:
    """A depth-first visit that sees every container once, without recursion."""

    def __init__(self) -> None:
        self.path: list[_Frame] = []
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
            raise Malformed(f"a {type(value).__name__.lower()} that holds itself", None)
        if len(self.path) >= MAX_DEPTH:
            raise Malformed(f"values nested more than {MAX_DEPTH} deep", None)
        self._open.add(id(value))
        self.path.append(_Frame(value))
        return True

    def leave(self) -> None:
        """Finish the container on top and add it to the one that holds it."""
        frame = self.path.pop()
        self._open.discard(frame.key)
        self._done[frame.key] = (frame.depth, frame.size)
        if self.path:
            self._add_to_top(frame.depth, frame.size)

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
