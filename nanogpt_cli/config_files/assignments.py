"""A Python module's own literal assignments, read from its syntax tree and never executed."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nanogpt_cli.errors import UsageError

_MAX_BITS = 4096
_PYTHON = "a line each, such as top_k = 200; a name that does not end in .py is read as TOML"
_MAX_CHARS = 100_000


def _parse(path: Path, data: bytes) -> ast.Module:
    try:
        with warnings.catch_warnings():  # a stray backslash in the file is no concern of ours
            warnings.simplefilter("ignore")
            return ast.parse(data)
    except SyntaxError as error:
        line = f" line {error.lineno}" if error.lineno else ""
        raise UsageError(f"config {str(path)!r}{line}: {error.msg}", _PYTHON) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _unreadable(path) from error


def _unreadable(path: Path) -> UsageError:
    return UsageError(f"config {str(path)!r} is not Python that can be read", _PYTHON)


class _NotLiteralError(Exception):
    """A value that only running the file could tell."""


class Assignments:
    """The names that a module's own statements set, the last one winning.

    Args:
        path: the file, for messages.
        data: its bytes.

    Raises:
        UsageError: no Python, or an `import *`.

    Attributes:
        values: what could be read, and the line of it.
        unread: names set by anything else, and the line of it.
        used: names that the file reads.
    """

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self.values: dict[str, tuple[Any, int]] = {}
        self.unread: dict[str, int] = {}
        module = _parse(path, data)
        names = (node for node in ast.walk(module) if isinstance(node, ast.Name))
        self.used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        try:
            for statement in module.body:
                self._read_statement(statement)
        except RecursionError as error:
            raise _unreadable(path) from error

    def _read_statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign([target], value)
            case ast.AnnAssign():
                pass
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                self._assign([target], ast.BinOp(ast.Name(name, ast.Load()), op, value))
            case _:
                for name in _bound_names(statement):
                    self._pass_over(name, statement.lineno)

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        try:
            read = self._evaluate(value)
        except (_NotLiteralError, RecursionError):
            inside = [node.target for node in ast.walk(value) if isinstance(node, ast.NamedExpr)]
            for target in (*targets, *inside):
                for name in _bound_names(target):
                    self._pass_over(name, target.lineno)
            return
        for target in targets:
            self._store(target, read)

    def _store(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.unread.pop(name, None)
                self.values.pop(name, None)
                self.values[name] = (value, target.lineno)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(value, list) and len(
                parts
            ) == len(value):
                for part, item in zip(parts, value, strict=True):
                    self._store(part, item)
            case _:
                for name in _bound_names(target):
                    self._pass_over(name, target.lineno)

    def _pass_over(self, name: str, line: int) -> None:
        if name == "*":
            raise UsageError(
                f"config {str(self.path)!r} line {line}: 'import *' may set any key",
                "write the values out: the file is read, never executed",
            )
        self.values.pop(name, None)
        self.unread[name] = line

    def _evaluate(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() | float() | str() | None as value):
                return value
            case ast.Name(id=name) if name in self.values:
                return self.values[name][0]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._evaluate(operand)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                value = self._evaluate(operand)
                return _compute(ast.Mult(), value, -1 if isinstance(sign, ast.USub) else 1)
            case ast.BinOp(left=left, op=op, right=right):
                return _compute(op, self._evaluate(left), self._evaluate(right))
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._evaluate(item) for item in items]
        raise _NotLiteralError


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def _compute(op: ast.operator, left: Any, right: Any) -> Any:
    """Return `left op right` for two numbers, or two strings joined, within bounds."""
    texts = isinstance(left, str) and isinstance(right, str) and isinstance(op, ast.Add)
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if not (texts or numbers) or type(op) not in _ARITHMETIC:
        raise _NotLiteralError
    if isinstance(op, ast.Pow) and _bits(left) * abs(right) > _MAX_BITS:
        raise _NotLiteralError
    try:
        result = _ARITHMETIC[type(op)](left, right)
    except (ArithmeticError, ValueError) as error:
        raise _NotLiteralError from error
    if isinstance(result, complex) or _bits(result) > _MAX_BITS:
        raise _NotLiteralError
    if isinstance(result, str) and len(result) > _MAX_CHARS:
        raise _NotLiteralError
    return result


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 1


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that running `node` at the top of a module may set there."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.partition(".")[0]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        for inner in ast.walk(node):
            if isinstance(inner, ast.Global):
                yield from inner.names
        return
    for child in ast.iter_child_nodes(node):
        yield from _bound_names(child)
