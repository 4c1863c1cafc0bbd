"""Where to compute, and in which number format. Probes a device only when asked to use it."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from nanogpt_cli.errors import UsageError, count_of, did_you_mean
from nanogpt_cli.generation.device_names import check_device, check_threads

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

BFLOAT16_CAPABILITY = (8, 0)
"""Ampere: older CUDA cards only emulate bfloat16, slowly."""


def choose_device(name: str) -> torch.device:
    """Return the device for "auto", "cpu", "cuda", "cuda:N" or "mps".

    Raises:
        UsageError: an unknown name, or a device that this machine or this torch lacks.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    check_device(name)
    kind, _, number = name.partition(":")
    if kind == "cuda":
        _require_cuda(name, int(number or 0))
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UsageError("--device mps: no Metal device is available", hint="use --device cpu")
    return torch.device(name if kind == "cuda" else kind)


def _require_cuda(name: str, number: int) -> None:
    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = "this torch is built without CUDA" if built is None else "no CUDA device is available"
        raise UsageError(f"--device {name}: {why}", hint="use --device cpu")
    count = torch.cuda.device_count()
    if number >= count:
        raise UsageError(
            f"--device {name}: this machine has {count_of(count, 'CUDA device')}, numbered from 0",
            hint=f"use --device cuda:{count - 1}",
        )


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype for "auto", "float32", "bfloat16" or "float16" on a device.

    Raises:
        UsageError: an unknown name, or bfloat16 on a card without it.
    """
    if device.type == "cuda":
        has_bfloat16 = torch.cuda.get_device_capability(device) >= BFLOAT16_CAPABILITY
    else:
        has_bfloat16 = device.type == "cpu"
    if name == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if has_bfloat16 else torch.float16
    if name not in DTYPES:
        hint = did_you_mean(name, DTYPES, f"give auto, {', '.join(DTYPES)}")
        raise UsageError(f"unknown dtype {name!r}", hint=hint)
    if name == "bfloat16" and not has_bfloat16:
        raise UsageError(
            f"--dtype bfloat16: {device} does not support it", hint="use --dtype float16"
        )
    return DTYPES[name]


def idle_gpu_note(name: str) -> tuple[str, ...]:
    """Return a note where a GPU is left idle by a flag; found without a call to CUDA."""
    if name != "cpu":
        return ()
    if torch.version.cuda is not None and Path("/dev/nvidia0").exists():
        return ("this machine has a CUDA device, and --device cpu leaves it idle",)
    if torch.backends.mps.is_built() and torch.backends.mps.is_available():
        return ("this machine has a Metal device, and --device cpu leaves it idle",)
    return ()


def use_threads(threads: int | None) -> None:
    """Compute with so many CPU threads; None leaves torch's own choice, the physical cores.

    Raises:
        UsageError: fewer than one, or more than any machine's worth.
    """
    check_threads(threads)
    if threads is not None:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class DeviceReport:
    """A device of this machine, tried.

    Args:
        device: as --device names it.
        description: its model, and what it can do.
        status: "right": it multiplies matrices as it should; "wrong"; or "failed".
        message: what went wrong; "" where nothing did.
    """

    device: str
    description: str
    status: str
    message: str = ""


def try_devices() -> tuple[DeviceReport, ...]:
    """Return each device that is there, with whether it multiplies two small matrices right."""
    found = [("cpu", f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}")]
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            found.append((f"cuda:{number}", _describe_cuda(number)))
    if torch.backends.mps.is_available():
        found.append(("mps", "Metal"))
    return tuple(_try(device, description) for device, description in found)


def _describe_cuda(number: int) -> str:
    facts = torch.cuda.get_device_properties(number)
    gigabytes = facts.total_memory / 1e9
    return f"{facts.name}, capability {facts.major}.{facts.minor}, {gigabytes:.1f} GB"


def _try(device: str, description: str) -> DeviceReport:
    """Compare with the product in whole numbers, which every number format holds exactly."""
    a = torch.arange(64 * 48).reshape(64, 48) % 7 - 3
    b = torch.arange(48 * 32).reshape(48, 32) % 5 - 2
    try:
        product = (a.float().to(device) @ b.float().to(device)).cpu()
    except RuntimeError as error:  # of a driver, a library or the card
        first = next(iter(str(error).splitlines()), "")
        return DeviceReport(device, description, "failed", first)
    wrong = int((product != (a @ b)).sum())
    if wrong:
        told = f"{wrong} of {product.numel()} elements of a product of matrices are wrong"
        return DeviceReport(device, description, "wrong", told)
    return DeviceReport(device, description, "right")
