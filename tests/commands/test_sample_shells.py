"""`nanogpt sample` in real shells, pipes and terminals; few runs, each with much to look at."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run

from nanogpt_cli.commands.sample.color import LEVELS, style_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")
if os.name != "nt":
    from terminals import Terminal

NANOGPT = f"'{sys.executable}' -m nanogpt_cli sample"
PROMPT = "caf\u00e9 \u2014"
TEXT = f"demo -p '{PROMPT}' -m 60 -n 2"


def bash(script: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )


@pytest.fixture
def expected(nanogpt: Run) -> bytes:
    result = nanogpt("sample", "demo", "-p", PROMPT, "-m", 60, "-n", 2)
    assert result.out.startswith(PROMPT)
    return result.out.encode()


def test_a_bare_shell_gets_the_same_bytes(expected: bytes) -> None:
    """No locale, no width, a dumb terminal, no stdin, and stderr thrown away."""
    done = bash(
        f"{NANOGPT} {TEXT} --color prob < /dev/null 2> /dev/null",
        LC_ALL="C",
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
        COLUMNS="20",
        TERM="dumb",
        NO_COLOR="1",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")


def test_a_file_of_rows_is_utf8_where_nothing_else_is(tmp_path: Path) -> None:
    done = bash(
        f"{NANOGPT} demo --prompts '{tmp_path}/prompts' -m 2 -o '{tmp_path}/rows' < /dev/null",
        **write_prompts(tmp_path / "prompts", "caf\u00e9 \u65e5\u672c", "\U0001f389"),
    )
    assert done.returncode == 0, done.stderr.decode()
    rows = [json.loads(line) for line in (tmp_path / "rows").read_bytes().decode().splitlines()]
    assert [row["prompt"] for row in rows] == ["caf\u00e9 \u65e5\u672c", "\U0001f389"]


def write_prompts(path: Path, *prompts: str) -> dict[str, str]:
    """Write a file of prompts; return an environment whose locale knows ASCII alone."""
    path.write_bytes("".join(f"{prompt}\n" for prompt in prompts).encode())
    return {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_a_narrow_shell_breaks_no_line_of_stderr(expected: bytes, tmp_path: Path) -> None:
    """And stdin that is closed, not empty, is no prompt."""
    done = bash(f"{NANOGPT} {TEXT} > '{tmp_path}/text' <&-", COLUMNS="20", TERM="xterm")
    assert (done.returncode, (tmp_path / "text").read_bytes()) == (0, expected)
    sampling, closing = done.stderr.decode().splitlines()
    assert sampling.startswith("note: sampling ")
    assert closing.startswith("120 tokens, ")
    assert closing.endswith(", cpu, float32, seed 1337, finished by length")


def test_head_takes_its_line_and_the_rest_is_never_made() -> None:
    script = (
        f"{NANOGPT} demo -p 'To be' -m 100000000 < /dev/null | head -1; echo ${{PIPESTATUS[0]}}"
    )
    done = bash(script)
    line, code, *rest = done.stdout.decode().splitlines()
    assert line.startswith("To be")
    assert (code, rest) == ("0", [])
    notes = done.stderr.decode().splitlines()
    assert notes[0].startswith("note: sampling ")
    assert all(said.startswith("note: compiled the decode step ") for said in notes[1:])


def test_ctrl_c_on_a_terminal_ends_it_with_130_and_leaves_no_colour_behind() -> None:
    styles = [style_of(level, 16) for level in LEVELS[1:]]
    with Terminal("sample", "demo", "-p", "To be", "-m", 10**8, "--color", "prob") as terminal:
        terminal.wait_for("note: probability by the model: ")
        terminal.wait_for("To be")
        shown = "".join(terminal.wait_for(f"\x1b[{style}m") for style in styles)
        terminal.type("\x03")
        code, rest = terminal.close()
    assert code == 130
    text, last = rest.rstrip().rsplit("\r\n", 1)
    assert last == "interrupted"
    opened = re.findall("\x1b\\[([0-9;]*)m", shown + text)
    assert opened[1::2] == ["0"] * (len(opened) // 2)
    assert opened[-1] == "0", "every style is closed"
    assert set(opened) == {"0", *styles}
    assert "Traceback" not in rest


def test_a_conversation_on_a_terminal(tmp_path: Path) -> None:
    """The mark, a text, a text that is stopped, a line that is dropped, history, the end."""
    history = tmp_path / "state" / "nanogpt" / "history"
    variables = {"XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}
    words = ("sample", "demo", "-i", "-m", 30, "--color", "prob")
    with Terminal(*words, **variables) as terminal:
        assert "NO_COLOR is set, so the text is plain" in terminal.wait_for("Ctrl-D leaves")
        terminal.wait_for("> ")
        terminal.type("To be\r")
        text = terminal.wait_for("30 tokens, ")
        assert text.count("To be") == 2, "as it was typed, and before its continuation"
        terminal.wait_for("> ")
        terminal.type("/set max_new_tokens 100000000\r")
        terminal.wait_for("> ")
        terminal.type("/again\r")
        terminal.wait_for("To be")
        terminal.wait_for("\r\n")
        terminal.type("\x03")
        terminal.wait_for("interrupted: /more goes on with the text, /again starts another")
        terminal.wait_for("> ")
        terminal.type("/set max_new_tokens 5\r")
        terminal.wait_for("> ")
        terminal.type("/more\r")
        assert "To be" not in terminal.wait_for("5 tokens, ")
        terminal.wait_for("> ")
        terminal.type("/sett")
        terminal.wait_for("/sett")
        terminal.type("\x03")
        terminal.wait_for("> ")
        terminal.type("/wrong\r")
        terminal.wait_for("error: no such command '/wrong'")
        terminal.wait_for("> ")
        terminal.type("\x1b[A\x7f3\r")  # up, rub out, 3
        terminal.wait_for("error: no such command '/wron3'")
        terminal.wait_for("> ")
        terminal.type("\x04")
        code, rest = terminal.close()
    assert code == 0
    assert "Traceback" not in rest
    assert "\x1b[1;4" not in text + rest
    assert history.stat().st_mode & 0o777 == 0o600
    assert history.parent.stat().st_mode & 0o777 == 0o700
    lines = history.read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ["To be", "/set max_new_tokens 100000000", "/again"]
    assert "/sett" not in lines
