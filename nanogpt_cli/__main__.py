"""`python -m nanogpt_cli`, and the entry point of the `nanogpt` command."""

from __future__ import annotations

import sys

from nanogpt_cli.cli import main


def run() -> None:
    """Run the command line and exit with its code."""
    sys.exit(main())


if __name__ == "__main__":
    run()
