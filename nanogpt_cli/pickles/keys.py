"""Which values may be dictionary keys and set members, so that hashing stays cheap and honest."""

from __future__ import annotations

import sys

from nanogpt_cli.pickles.values import Malformed

MAX_KEY_PARTS = 256
MAX_KEY_LENGTH = 65_536
MAX_KEY_BITS = 128
MAX_EQUAL_HASHES = 8
UNIQUE_BELOW = sys.hash_info.modulus
"""Smaller integers are their own hash (but for -1), so none collide."""

_UNHASHABLE = (list, dict, set, frozenset, bytearray)


def measure_key(key: object) -> int:
    """Return how many parts `key` has, nested tuples counted through.

    Raises:
        Malformed: it has no hash, or one that could take long to compute or compare.
    """
    if type(key) is str and len(key) <= MAX_KEY_LENGTH:
        return 1
    parts, length, waiting = 0, 0, [key]
    while waiting:
        part = waiting.pop()
        parts += 1
        if isinstance(part, tuple):
            if len(part) > MAX_KEY_PARTS:
                raise Malformed(f"a key of {len(part)} parts, more than {MAX_KEY_PARTS}")
            waiting.extend(part)
        elif isinstance(part, _UNHASHABLE):
            raise Malformed(f"a {type(part).__name__} where a key should stand")
        elif isinstance(part, str | bytes):
            length += len(part)
        elif isinstance(part, int) and part.bit_length() > MAX_KEY_BITS:
            raise Malformed(f"a key of {part.bit_length()} bits, more than {MAX_KEY_BITS}")
        if parts > MAX_KEY_PARTS or length > MAX_KEY_LENGTH:
            raise Malformed(f"a key of more than {MAX_KEY_PARTS} parts or {MAX_KEY_LENGTH} bytes")
    return parts


class KeyGuard:
    """Counts keys that share a hash, since the hashes of numbers can be chosen by a file."""

    def __init__(self) -> None:
        self._seen: dict[int, list[object]] = {}

    def admit(self, key: object) -> int:
        """Return what hashing `key` costs, in parts.

        Raises:
            Malformed: it can be no key, or too many different keys have its hash.
        """
        if type(key) is int and -UNIQUE_BELOW < key < UNIQUE_BELOW:
            return 1
        parts = measure_key(key)
        if isinstance(key, str | bytes):
            return parts
        alike = self._seen.setdefault(hash(key), [])
        if not any(key == other for other in alike):
            if len(alike) >= MAX_EQUAL_HASHES:
                raise Malformed("keys that were made to collide")
            alike.append(key)
        return parts
