"""The compiled step's library: found in a cache folder, or built with the machine's C++ compiler.

A library is named after all that decided its code, and after its own bytes: one that is stale, cut
short or changed has another name than it should have, and is never loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

SOURCES = Path(__file__).parent / "native"
COMPILERS = ("g++", "clang++", "c++")
BUILD_SECONDS = 300
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", "-w")


class BuildError(Exception):
    """No library; the message says why in a few words."""


def load_library(folder: Path | None, *, build: bool) -> tuple[ctypes.CDLL | None, str | None]:
    """Return the library, or None and why there is none, and a note where something went wrong.

    Args:
        folder: where libraries are kept between runs, made where it is missing; None keeps none.
        build: whether to build one that is not there; else only a kept one is taken.
    """
    key = _key()
    if folder is not None:
        kept = _kept(folder, key)
        if kept is not None:
            with contextlib.suppress(OSError):
                return ctypes.CDLL(str(kept)), None
    if not build:
        return None, None
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="nanogpt-") as scratch:
            built = _build(Path(scratch))
            # Loaded before the temporary folder goes: a mapped file outlives its name.
            library = ctypes.CDLL(str(built))
            where = "it is not kept" if folder is None else _keep(built, folder, key)
            seconds = time.monotonic() - started
            return library, f"compiled the decode step for this CPU in {seconds:.1f} s; {where}"
    except (BuildError, OSError) as error:
        return None, f"the step could not be compiled, so it runs uncompiled: {error}"


def find_compiler() -> str | None:
    """Return the path of a C++ compiler, or None."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def _key() -> str:
    """Return a digest of all that decides the machine code."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    facts = (FLAGS, torch.__version__, sys.platform, platform.machine(), _cpu_capability())
    digest.update(repr(facts).encode())
    return digest.hexdigest()[:24]


def _cpu_capability() -> str:
    """Return what the CPU can do, so that a folder shared by machines serves each its own."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return f"{platform.processor()} {torch.backends.cpu.get_cpu_capability()}"


def _kept(folder: Path, key: str) -> Path | None:
    """Return the library of this key whose bytes are what its name says, or None."""
    if not _is_private(folder):
        return None
    for path in sorted(folder.glob(f"step-{key}-*.so")):
        with contextlib.suppress(OSError):
            if path.name == _name(key, path.read_bytes()):
                return path
    return None


def _name(key: str, data: bytes) -> str:
    return f"step-{key}-{hashlib.sha256(data).hexdigest()[:24]}.so"


def _is_private(folder: Path) -> bool:
    """Say whether nobody else can put a library there for us to run."""
    try:
        status = folder.stat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _keep(built: Path, folder: Path, key: str) -> str:
    """Copy a library into the folder, whole or not at all; say where it is, or why not."""
    data = built.read_bytes()
    again = "it is not kept, so each run compiles it again"
    temporary = None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder):
            return f"{again}: others can write to {str(folder)!r}"
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as file:
            temporary = Path(file.name)
            file.write(data)
        temporary.replace(folder / _name(key, data))
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        reason = (error.strerror or str(error)).lower()
        return f"{again}: {reason} in {str(folder)!r}"
    return f"it is kept in {str(folder)!r}"


def _build(scratch: Path) -> Path:
    """Compile into a folder and return the library, tried.

    Raises:
        BuildError: no compiler, or none that makes a library that computes what it should.
    """
    compiler = find_compiler()
    if compiler is None:
        raise BuildError(f"no C++ compiler was found ({', '.join(COMPILERS)})")
    built = scratch / "step.so"
    said = ""
    for extra in _variants():
        command = [compiler, *FLAGS, *extra, str(SOURCES / "step.cpp"), "-o", str(built)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"{compiler} did not run: {error}") from error
        if done.returncode == 0:
            return built
        said = said or next(iter(done.stderr.strip().splitlines()), f"exit {done.returncode}")
    raise BuildError(f"{compiler} failed: {said}")


def _variants() -> Iterator[tuple[str, ...]]:
    """Give the flags for this CPU and for threads, the best first."""
    threads: list[tuple[str, ...]] = [("-fopenmp",)]
    bundled = Path(torch.__file__).parent / "lib" / "libomp.dylib"
    if bundled.exists():
        threads.append(("-Xpreprocessor", "-fopenmp", str(bundled)))
    for parallel in (*threads, ()):
        for target in ("-march=native", "-mcpu=native"):
            yield (target, *parallel)
