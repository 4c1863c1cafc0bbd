"""Draw what `nanogpt inspect --prompt` shows on a terminal, from real runs of the model in the box.

    python -m benchmarks.pictures [FOLDER]

writes NAME.svg for each of PICTURES into the folder, this one by default.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

GREETING = "Good morrow, my gracious lord, and all your banana."
QUESTION = "To be, or not to be, that is the question:"
PICTURES = {
    "surprisal": ("--prompt", GREETING, "--view", "surprisal"),
    "lens": ("--prompt", "To be, or not to be", "--view", "lens"),
    "attention": ("--prompt", QUESTION, "--view", "attention", "--layer", "3", "--head", "0"),
}
"""By name, what `nanogpt inspect demo` is given."""

UNTITLED = 2
"""Lines at the top that name the file, which lies elsewhere on every machine."""

TITLE_MARGIN, TITLE_SHARE = 14, 0.7
"""Columns that the frame's buttons and their like take beside the title, and a letter of it."""

THEME = TerminalTheme(
    (22, 26, 32),
    (222, 227, 233),
    [
        *((22, 26, 32), (238, 108, 100), (134, 200, 120), (224, 184, 90)),
        *((98, 160, 234), (200, 140, 230), (96, 196, 208), (222, 227, 233)),
    ],
)

SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font: 16px system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""rich's own frame, but for its fonts, which come from the network."""


def main(words: list[str]) -> None:
    """Draw every picture."""
    folder = Path(words[0]) if words else Path(__file__).parent
    for name, options in PICTURES.items():
        target = folder / f"{name}.svg"
        target.write_text(draw(name, options), encoding="utf-8")
        print(f"{target}: {target.stat().st_size:,} bytes")


def draw(name: str, options: tuple[str, ...]) -> str:
    """Return the SVG of a run in colours."""
    shown = run(options).splitlines()[UNTITLED:]
    text = Text.from_ansi("\n".join(shown))
    command = shlex.join(["nanogpt", "inspect", "demo", *options]).replace("'", '"')
    lines = [line.rstrip() for line in text.plain.splitlines()]
    width = max(*map(len, lines), round(TITLE_SHARE * len(command)) + TITLE_MARGIN)
    sheet = io.StringIO()
    console = Console(
        record=True,
        file=sheet,
        width=width,
        force_terminal=True,
        color_system="256",
        highlight=False,
    )
    console.print(text, no_wrap=True, overflow="crop", crop=False)
    return console.export_svg(title=command, theme=THEME, code_format=SVG, unique_id=name)


def run(options: tuple[str, ...]) -> str:
    """Return what `nanogpt inspect demo` prints, with its colours.

    Raises:
        CalledProcessError: it failed; its words are on stderr.
    """
    quiet = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    command = [sys.executable, "-m", "nanogpt_cli", "inspect", "demo", "--quiet", *options]
    colours = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLORTERM": ""}
    done = subprocess.run(
        command,
        env={**quiet, **colours},
        stdout=subprocess.PIPE,
        check=True,
        encoding="utf-8",
    )
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1:])
