"""Every peer in an environment of its own, made at first use and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.variants import Peer

DONE = "installed"


class InstallError(Exception):
    """A peer could not be installed; the end of pip's own words says why."""


def ensure_venv(venvs: Path, name: str, peer: Peer) -> Path:
    """Return the Python that runs a peer's worker.

    Raises:
        InstallError: pip failed.
    """
    if not peer.requirements:
        return Path(sys.executable)
    folder = venvs / name
    python = folder / "bin" / "python"
    wanted = fingerprint(peer)
    if (folder / DONE).is_file() and (folder / DONE).read_text() == wanted:
        return python
    print(f"installing {', '.join(peer.requirements)} into {folder}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    # One compiler at a time by default: a build must not starve what else the machine does.
    environment = {"CMAKE_BUILD_PARALLEL_LEVEL": "1", **os.environ, **peer.build}
    _pip(python, ["install", *peer.requirements], environment)
    if peer.removed:
        _pip(python, ["uninstall", "--yes", *peer.removed], environment)
    (folder / DONE).write_text(wanted)
    return python


def _pip(python: Path, arguments: list[str], environment: dict[str, str]) -> None:
    command = [str(python), "-m", "pip", "--quiet", *arguments]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        raise InstallError(done.stdout.decode(errors="replace")[-1500:])


def fingerprint(peer: Peer) -> str:
    """Return what changes when a peer must be installed anew."""
    wanted = repr(
        (peer.requirements, peer.removed, sorted(peer.build.items()), sys.version_info[:2])
    )
    return hashlib.sha256(wanted.encode()).hexdigest()
