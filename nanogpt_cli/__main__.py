"""`python -m nanogpt_cli`, and the entry point of the `nanogpt` command."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command line and exit with its code, quietly wherever an interrupt arrives."""
    try:  # with every import in it: they take long enough to be interrupted
        from nanogpt_cli.cli import main

        code = main()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        code = 130
    import signal

    # What remains is to close down, which takes torch a second.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


if __name__ == "__main__":
    run()
