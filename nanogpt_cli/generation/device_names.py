"""How devices and threads are asked for, as far as no device has to be there: light."""

from __future__ import annotations

from nanogpt_cli.errors import UsageError, did_you_mean

KINDS = ("auto", "cpu", "cuda", "mps")
"""What a device's name begins with."""

MOST_THREADS = 1024
"""With many thousands the OpenMP library ends the process."""


def check_device(name: str) -> None:
    """Refuse a name that no device has.

    Raises:
        UsageError: it is none of "auto", "cpu", "cuda", "cuda:N" and "mps".
    """
    kind, _, number = name.partition(":")
    if name == "auto" or (kind in KINDS[1:] and (not number or number.isdecimal())):
        return
    raise UsageError(
        f"unknown device {name!r}",
        hint=did_you_mean(kind, KINDS, "give auto, cpu, cuda, cuda:N (a number) or mps"),
    )


def check_threads(threads: int | None) -> None:
    """Refuse a number of CPU threads that cannot be.

    Raises:
        UsageError: fewer than one, or more than any machine's worth.
    """
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise UsageError(
            f"--threads {threads}: it must be 1 to {MOST_THREADS}",
            hint="leave it out for as many as there are physical cores",
        )
