"""What the figures were measured on."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.bandwidth import last_level_cache_bytes

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16")
"""What decides which kernels a library takes."""


def describe_machine(probe: str, rates: Sequence[float]) -> dict[str, object]:
    """Return processor, cores, memory, date, and the bandwidth measured on the way."""
    model, flags = read_processor()
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "processor": model,
        "instructions": [flag for flag in FLAGS if flag in flags],
        "processors": os.cpu_count(),
        "last_level_cache_bytes": last_level_cache_bytes(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "bandwidth_probe": probe,
        "bandwidth_bytes_per_second": {
            "lowest": min(rates, default=None),
            "median": median(rates) if rates else None,
            "highest": max(rates, default=None),
        },
    }


def read_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, set[str]]:
    """Return the processor's name and its instruction sets, as Linux tells them."""
    if not cpuinfo.is_file():
        return platform.processor(), set()
    lines = (line.partition(":") for line in cpuinfo.read_text().splitlines())
    fields = {name.strip(): value.strip() for name, _, value in lines}
    return fields.get("model name", platform.machine()), set(fields.get("flags", "").split())
