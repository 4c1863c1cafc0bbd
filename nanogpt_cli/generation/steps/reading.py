"""How fast a device reads its memory at the moment: the limit that a step's speed is held to."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import torch

from nanogpt_cli.generation.steps.base import Step
from nanogpt_cli.generation.steps.compiled import CompiledStep

FLOATS = 1 << 27
"""Half a gigabyte, more than most caches hold."""


class Reading:
    """A buffer that is summed when asked.

    Args:
        device: whose memory.
    """

    def __init__(self, device: torch.device) -> None:
        self._buffer = torch.ones(FLOATS, device=device)

    def measure(self, step: Step[Any]) -> float:
        """Return bytes a second, read with the step's threads, and its library if it has one."""
        started = settle(self._buffer.device)
        if isinstance(step, CompiledStep):
            address = ctypes.c_void_p(self._buffer.data_ptr())
            step.library.nanogpt_read(address, ctypes.c_int64(FLOATS), step.threads)
        else:
            self._buffer.sum()
        return self._buffer.nbytes / (settle(self._buffer.device) - started)


def settle(device: torch.device) -> float:
    """Return the time, in seconds, once the device has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
