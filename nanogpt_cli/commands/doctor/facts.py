"""What this installation and this machine are: gathered so that one fact's failure is no other's.

An import that fails is a fact, too: whatever a broken installation raises is its message.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from nanogpt_cli import __version__
from nanogpt_cli.commands.caches import cache_folder
from nanogpt_cli.errors import NanoGPTError

if TYPE_CHECKING:
    from nanogpt_cli.generation.devices import DeviceReport

PACKAGES = (
    *("torch", "transformers", "tokenizers", "tiktoken", "safetensors", "huggingface_hub"),
    *("numpy", "typer", "rich"),
)
VARIABLES = ("NANOGPT_", "HF_", "OMP_", "MKL_", "KMP_", "CUDA_", "TORCH", "PYTORCH_")
"""How the names of variables begin that change what is computed, and how fast."""

T = TypeVar("T")


@dataclass(frozen=True)
class DoctorReport:
    """Facts for a report of a fault. Paths begin with ~ where they lie in the user's home.

    Args:
        packages: version by name; None where one is not installed.
        cpu: model of the processor.
        cpu_capability: the vector instructions that torch uses.
        threads: that torch computes with.
        torch_built_for: "cpu", or the CUDA or ROCm version.
        devices: each that is there, tried.
        compiler: path of the C++ compiler.
        step_folder: where compiled steps are kept.
        step_kept: whether one for this machine is there.
        gpt2_sha256: of the bundled GPT-2 ranks, unpacked and checked.
        hub_folder: the cache of models from the hub.
        variables: names of those that are set and may matter; their values may be secrets.
        faults: what is broken, a sentence each.
    """

    nanogpt: str
    python: str
    platform: str
    packages: dict[str, str | None]
    cpu: str | None
    cores: int | None
    cpu_capability: str | None
    threads: int | None
    torch_built_for: str | None
    devices: tuple[DeviceReport, ...]
    compiler: str | None
    step_folder: str | None
    step_kept: bool | None
    gpt2_sha256: str | None
    hub_folder: str | None
    variables: tuple[str, ...]
    faults: tuple[str, ...]
    schema: ClassVar[str] = "nanogpt.doctor/1"


def gather() -> DoctorReport:
    """Return all facts; what cannot be had is None and named among the faults."""
    faults: list[str] = []

    def ask(what: str, question: Callable[[], T]) -> T | None:
        try:
            return question()
        except Exception as error:  # whatever a broken installation raises is what is asked for
            told = error.message if isinstance(error, NanoGPTError) else _first_line(error)
            faults.append(f"{what}: {told}")
            return None

    torch = ask("torch cannot be imported", _ask_torch)
    tried = ask("the devices cannot be tried", _try_devices) if torch else ()
    devices = tried or ()
    faults += [f"{each.device}: {each.message}" for each in devices if each.message]
    has_step = torch is not None
    folder = cache_folder()
    return DoctorReport(
        nanogpt=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=platform.platform(),
        packages={name: _version(name) for name in PACKAGES},
        cpu=_name_cpu(),
        cores=os.cpu_count(),
        cpu_capability=torch.capability if torch else None,
        threads=torch.threads if torch else None,
        torch_built_for=torch.built_for if torch else None,
        devices=devices,
        compiler=_tilde(ask("the compiler", _find_compiler)) if has_step else None,
        step_folder=_tilde(folder),
        step_kept=ask("the compiled step", lambda: _is_kept(folder)) if has_step else None,
        gpt2_sha256=ask("the GPT-2 tokenizer", _hash_gpt2),
        hub_folder=_tilde(ask("the hub's cache", _find_hub_folder)),
        variables=tuple(sorted(name for name in os.environ if name.startswith(VARIABLES))),
        faults=tuple(faults),
    )


@dataclass(frozen=True)
class _Torch:
    capability: str
    threads: int
    built_for: str


def _ask_torch() -> _Torch:
    import torch

    cuda, rocm = torch.version.cuda, getattr(torch.version, "hip", None)
    built_for = f"ROCm {rocm}" if rocm else f"CUDA {cuda}" if cuda else "cpu"
    return _Torch(torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), built_for)


def _try_devices() -> tuple[DeviceReport, ...]:
    from nanogpt_cli.generation.devices import try_devices

    return try_devices()


def _find_compiler() -> str | None:
    from nanogpt_cli.generation.steps.library import find_compiler

    return find_compiler()


def _is_kept(folder: Path | None) -> bool:
    from nanogpt_cli.generation.steps.library import load_library

    return load_library(folder, build=False)[0] is not None


def _hash_gpt2() -> str:
    from nanogpt_cli.tokenizers.files import read_bytes
    from nanogpt_cli.tokenizers.gpt2 import RANKS_PATH, RANKS_SHA256, unpack_ranks

    unpack_ranks(read_bytes(RANKS_PATH))  # which compares the hash
    return RANKS_SHA256


def _find_hub_folder() -> str:
    from huggingface_hub.constants import HF_HUB_CACHE

    return HF_HUB_CACHE


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _name_cpu() -> str | None:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def _tilde(path: str | Path | None) -> str | None:
    """Return a path without the name of the user, who may paste it where others read."""
    if path is None:
        return None
    with contextlib.suppress(ValueError, RuntimeError):
        return str(Path("~") / Path(path).relative_to(Path.home()))
    return str(path)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
