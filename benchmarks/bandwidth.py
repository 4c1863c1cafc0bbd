"""The memory bandwidth that an engine has at the moment: the limit that its figures are held to."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Protocol

import torch

SOURCE = Path(__file__).with_suffix(".c")
SMALLEST_MIB = 1024
"""Caches of a gigabyte are not in sight, and smaller buffers measure the cache."""

PASSES = 5
WIDE = "-mprefer-vector-width=512"
FLAGS = ("-O3", "-march=native", "-ffast-math", "-fopenmp")


class Probe(Protocol):
    """Something that measures bandwidth when asked."""

    name: str

    def measure(self) -> float:
        """Return bytes read a second, over a tenth of a second or so."""

    def close(self) -> None:
        """Free the buffer."""


class CompiledProbe:
    """bandwidth.c in a process of its own, waiting between questions."""

    def __init__(self, program: Path, mib: int, threads: int) -> None:
        self.name = "bandwidth.c"
        self._process = subprocess.Popen(
            [program, str(mib), str(PASSES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )

    def measure(self) -> float:
        assert self._process.stdin is not None, "opened with a pipe"
        assert self._process.stdout is not None, "opened with a pipe"
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline()) * 1e9

    def close(self) -> None:
        self._process.communicate()


class TorchProbe:
    """torch's own sum, where no compiler is: a few per cent lower."""

    def __init__(self, mib: int, threads: int) -> None:
        self.name = "torch.sum (no C compiler was found)"
        torch.set_num_threads(threads)
        self._buffer = torch.ones(mib * 2**18)

    def measure(self) -> float:
        rates = []
        for _ in range(PASSES):
            start = time.perf_counter()
            self._buffer.sum()
            rates.append(self._buffer.nbytes / (time.perf_counter() - start))
        return sorted(rates)[PASSES // 2]

    def close(self) -> None:
        self._buffer = torch.empty(0)


def open_probe(cache: Path, threads: int) -> Probe:
    """Return a probe, compiled into `cache` where a compiler is."""
    mib = max(SMALLEST_MIB, 2 * last_level_cache_bytes() // 2**20)
    program = cache / "bandwidth"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is not None:
        for flags in ((*FLAGS, WIDE), FLAGS):
            command = [compiler, *flags, str(SOURCE), "-o", str(program)]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return CompiledProbe(program, mib, threads)
    return TorchProbe(mib, threads)


def last_level_cache_bytes(cpu: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Return the size of the largest cache that Linux tells of, or 0."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = [path.read_text().strip() for path in cpu.glob("index*/size")]
    return max((int(size[:-1]) * units[size[-1]] for size in sizes), default=0)
