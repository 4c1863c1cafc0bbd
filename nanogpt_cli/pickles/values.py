"""What a pickle turns into here: plain values, inert records, bare names. Nothing is imported."""

from __future__ import annotations

from dataclasses import dataclass

DAMAGED = "the file is damaged: download or copy it again"


class Malformed(Exception):  # noqa: N818
    """A stream or an argument that cannot be read; the reader adds where it lies.

    Args:
        message: what was found.
        hint: what to do, or None.
    """

    def __init__(self, message: str, hint: str | None = DAMAGED) -> None:
        super().__init__(message)
        self.hint = hint


class Refused(Exception):  # noqa: N818
    """A call that is not on the written list.

    Args:
        name: the global that the file would call.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class Global:
    """A name that a pickle refers to without calling it; it is never looked up.

    Args:
        name: "module.name", as the file spells it.
    """

    name: str


@dataclass(eq=False, slots=True)
class Record:
    """An object of a class that is never looked up; two records are equal only if the same.

    Args:
        class_name: "module.name", as the file spells it.
        state: what BUILD would have given the object, or None.
        args: the arguments of one of the listed constructors, else ().
        items: entries of a subclass of dict or list, or None.
    """

    class_name: str
    state: object = None
    args: tuple[object, ...] = ()
    items: dict[object, object] | list[object] | None = None

    @property
    def fields(self) -> dict[str, object]:
        """Return the attributes by name; empty where the state is no set of attributes."""
        parts = self.state if _is_slot_state(self.state) else (self.state,)
        assert isinstance(parts, tuple), "a slot state is a pair"
        return {
            name: value
            for part in parts
            if isinstance(part, dict)
            for name, value in part.items()
            if isinstance(name, str)
        }


def _is_slot_state(state: object) -> bool:
    """Whether `state` is the pair (attributes or None, slots) of a class with __slots__."""
    return (
        isinstance(state, tuple)
        and len(state) == 2
        and (state[0] is None or isinstance(state[0], dict))
        and isinstance(state[1], dict)
    )


@dataclass(frozen=True, slots=True)
class GlobalUse:
    """A name that a pickle refers to, and what was made of it.

    Args:
        name: "module.name", as the file spells it.
        offset: bytes into the stream of its first use.
        verdict: "known", "inert" (kept as a name or a record) or "refused".
    """

    name: str
    offset: int
    verdict: str


@dataclass(frozen=True, slots=True)
class Pickle:
    """One stream, read.

    Args:
        value: plain Python values, `Record`, `Global`, and what the given calls returned.
        globals: every name it refers to, in order of first use.
        protocol: as the stream says, 0 where it does not.
        cut: how many objects referred back to one that holds them, and find it without its state.
    """

    value: object
    globals: tuple[GlobalUse, ...]
    protocol: int
    cut: int = 0
