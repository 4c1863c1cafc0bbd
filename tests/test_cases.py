"""cases.md: every case is held by tests that are there, and by one at least that always runs."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROW = re.compile(r"\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")

Tests = dict[str, ast.FunctionDef]


def read_cases() -> dict[int, list[str]]:
    """Return the names of each case's tests; no line of the table is passed over."""
    _, table = (HERE / "cases.md").read_text(encoding="utf-8").split("|---|---|---|---|\n")
    rows = [ROW.fullmatch(line) for line in table.splitlines()]
    assert None not in rows, "a line that is no row"
    numbers = [int(row[1]) for row in rows if row]
    assert numbers == sorted(set(numbers))
    return {int(row[1]): re.findall("`([^`]+)`", row[4]) for row in rows if row}


CASES = read_cases()


@cache
def functions_in(path: Path) -> Tests:
    nodes = ast.walk(ast.parse(path.read_bytes()))
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def find(name: str) -> ast.FunctionDef:
    path, function = name.split("::")
    assert (HERE / path).is_file(), f"there is no {path}"
    assert function in functions_in(HERE / path), f"{path} has no {function}"
    return functions_in(HERE / path)[function]


def always_runs(test: ast.FunctionDef) -> bool:
    """Whether nothing on it, nor a fixture of it, may have it left out on a Linux machine."""
    told = " ".join(ast.unparse(decorator) for decorator in test.decorator_list)
    needs = {argument.arg for argument in test.args.args}
    return not (
        re.search(r"mark\.(real|skip\b|xfail)|geteuid|find_compiler", told) or "zoo" in needs
    )


@pytest.mark.parametrize("number", CASES)
def test_a_case_is_held_by_tests(number: int) -> None:
    tests = [find(name) for name in CASES[number]]
    assert tests, "no test holds it"
    assert all(test.name.startswith("test_") for test in tests)
    assert any(map(always_runs, tests))


def test_a_number_in_a_docstring_is_a_case() -> None:
    for path in HERE.rglob("test_*.py"):
        docstring = ast.get_docstring(ast.parse(path.read_bytes())) or ""
        _, _, told = docstring.partition("CASES:")
        assert {int(number) for number in re.findall(r"\((\d+)\)", told)} <= CASES.keys(), path
