"""Pickles read as data: an interpreter of our own that executes nothing.

For `.pt` files and `meta.pkl` alike. What a stream may call is a written list (`known`); objects
of other classes become records, every other call refuses the file.
"""

from nanogpt_cli.pickles.known import Arguments, Call
from nanogpt_cli.pickles.machine import Persistent
from nanogpt_cli.pickles.opcodes import Buffer
from nanogpt_cli.pickles.reader import MAX_BYTES, load, load_at
from nanogpt_cli.pickles.scan import scan_globals
from nanogpt_cli.pickles.values import (
    DAMAGED,
    Global,
    GlobalUse,
    Malformed,
    Pickle,
    Record,
    Refused,
)

__all__ = [
    "DAMAGED",
    "MAX_BYTES",
    "Arguments",
    "Buffer",
    "Call",
    "Global",
    "GlobalUse",
    "Malformed",
    "Persistent",
    "Pickle",
    "Record",
    "Refused",
    "load",
    "load_at",
    "scan_globals",
]
