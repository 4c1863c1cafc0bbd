"""`nanogpt doctor`: the facts that belong to a report of a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from nanogpt_cli import output
from nanogpt_cli.errors import count_of
from nanogpt_cli.options.output import JsonOpt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nanogpt_cli.commands.doctor.facts import DoctorReport


def doctor(json: JsonOpt = False) -> None:
    """Say what this installation and this machine are, and try what computes.

    The text is made to be pasted into an issue. Every device that is there multiplies two small
    matrices, which is compared with the right product. Exit code 3 where something is broken.

    Examples:

        nanogpt doctor
        nanogpt doctor --json
    """
    from nanogpt_cli.commands.doctor.facts import gather

    report = gather()
    output.emit(report, json, render)
    if report.faults:
        raise typer.Exit(3)


def render(report: DoctorReport) -> str:
    """Return a line a fact, as plain text."""
    lines = list(_facts(report))
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:{width}}  {fact}".rstrip() for name, fact in lines)


def _facts(report: DoctorReport) -> Iterator[tuple[str, str]]:
    yield "nanogpt", report.nanogpt
    yield "python", report.python
    yield "platform", report.platform
    for name, version in report.packages.items():
        built_for = report.torch_built_for if name == "torch" else None
        yield name, (version or "not installed") + (f", for {built_for}" if built_for else "")
    yield "cpu", f"{report.cpu or 'unknown'}, {report.cores} threads in hardware"
    if report.threads is not None:
        yield (
            "torch computes with",
            f"{count_of(report.threads, 'thread')}, {report.cpu_capability}",
        )
    for device in report.devices:
        yield device.device, f"{device.description}: matrix product {device.status}"
    if report.step_kept is not None:
        yield "C++ compiler", report.compiler or "none"
        kept = "for this machine, kept" if report.step_kept else "none kept for this machine"
        yield "compiled step", f"{kept} in {report.step_folder or 'no folder'}"
    if report.gpt2_sha256 is not None:
        yield "GPT-2 tokenizer", f"sha256 {report.gpt2_sha256[:16]}..., as it should be"
    yield "hub cache", report.hub_folder or "unknown"
    yield "variables set", ", ".join(report.variables) or "none of those that matter"
    for fault in report.faults or ("none found",):
        yield "faults", fault
