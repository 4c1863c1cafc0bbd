"""README: the commands it lists are those of the code, and what it says to type is right.

`UPDATE_README=1 pytest tests/test_readme.py` writes the commands anew.
"""

from __future__ import annotations

import inspect
import os
import re
import textwrap
import tomllib
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

from conftest import ROOT
from typer.main import get_command

from nanogpt_cli.cli import build_app
from nanogpt_cli.commands import COMMANDS

README = ROOT / "README.md"
BEGIN = (
    "<!-- commands: generated from the code by `UPDATE_README=1 pytest tests/test_readme.py` -->"
)
END = "<!-- end of commands -->"

SHARED = ("config", "quiet", "debug")
KINDS = {int: "integer", float: "number", str: "text"}


def described_commands() -> str:
    """Return the commands as Markdown: help, then a table of arguments and options."""
    group: Any = get_command(build_app())
    commands = list(group.commands.values())
    every = table(commands[0], lambda name: name in SHARED)
    return "\n\n".join([*map(describe, commands), f"### Every command also has\n\n{every}"])


def describe(command: Any) -> str:
    help_text, examples = command.help.split("\n\nExamples:\n\n")
    shown = f"```sh\n{textwrap.dedent(examples).strip()}\n```"
    own = table(command, lambda name: name not in SHARED)
    return f"### nanogpt {command.name}\n\n{help_text}\n\n{shown}\n\n{own}"


def table(command: Any, wanted: Callable[[str], bool]) -> str:
    hints = inspect.signature(command.callback, eval_str=True).parameters
    rows = ["| | value | default | |", "|---|---|---|---|"]
    for param in command.params:
        if wanted(param.name) and not param.hidden:
            value = value_of(param, hints[param.name].annotation)
            cells = (spell(param), value, default_of(param), param.help)
            rows.append("| " + " | ".join(escape(cell) for cell in cells) + " |")
    return "\n".join(rows)


def spell(param: Any) -> str:
    """Return the names, on and off apart, the long ones first."""
    if param.param_type_name == "argument":
        return f"`{param.metavar or param.name}`"
    groups = (sorted(param.opts, key=lambda name: -len(name)), param.secondary_opts)
    return " / ".join(", ".join(f"`{name}`" for name in names) for names in groups if names)


def value_of(param: Any, annotation: Any) -> str:
    parts = [annotation]
    while get_origin(parts[0]) is not Literal and get_args(parts[0]):
        parts = [part for part in get_args(parts[0]) if part is not type(None)]
    if get_origin(parts[0]) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(parts[0]))
    if parts[0] is bool or param.param_type_name == "argument":
        return ""
    return (param.metavar or KINDS.get(parts[0], "path")).lower()


def default_of(param: Any) -> str:
    if isinstance(param.show_default, str):
        return param.show_default
    if not param.show_default or param.default is None:
        return ""
    if isinstance(param.default, bool):
        return "on" if param.default else "off"
    return f"`{param.default}`"


def escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def test_the_commands_are_those_of_the_code() -> None:
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    fresh = f"{before}{BEGIN}\n\n{described_commands()}\n\n{END}{after}"
    if os.environ.get("UPDATE_README"):
        README.write_text(fresh, encoding="utf-8")
    assert README.read_text(encoding="utf-8") == fresh, "stale: UPDATE_README=1 writes it anew"


def test_every_command_has_its_place_in_order() -> None:
    headings = re.findall(r"(?m)^### nanogpt (\S+)$", README.read_text(encoding="utf-8"))
    assert headings == [command.__name__.replace("_", "-") for command in COMMANDS]


def test_the_two_commands_are_one_line_each() -> None:
    lines = [line for line in README.read_text().splitlines() if line.startswith("python3 ")]
    assert lines == [
        "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt . "
        '&& .venv/bin/nanogpt sample --prompt "To be"',
        "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e "
        '".[dev]" && .venv/bin/pytest',
    ]
    (pattern,) = re.findall(r"grep -m 1 -E '([^']*)' README.md", (ROOT / ".ci/run").read_text())
    assert [line for line in lines if re.search(pattern, line)] == lines[1:]


def test_the_layout_is_the_one_that_is_checked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    block = README.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    there = [re.split(r"\s{2,}", line)[0] for line in block.splitlines()]
    assert there == [layer for layer in layers if "(" not in layer]


def test_paths_that_it_names_are_there() -> None:
    named = re.findall(r"`((?:nanogpt_cli|configs|tests|\.ci)/[\w./]+)`", README.read_text())
    assert len(named) > 3
    for path in named:
        assert "NAME" in path or (ROOT / path).exists(), path


def test_everything_pinned_is_pinned_exactly() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", pin) for pin in pins)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = settings["dependencies"] + settings["optional-dependencies"]["dev"]
    names = {re.split("[<>=]", line)[0].replace("_", "-").lower() for line in wanted}
    assert names <= {pin.split("==")[0].replace("_", "-").lower() for pin in pins}
