"""Who takes part: each peer's environment, and the variants of it that are timed.

To add an engine: a worker beside the others, its peer and its variants here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

TORCH = "torch==2.13.0"
SAFETENSORS = "safetensors==0.8.0"
NUMPY = "numpy==2.4.6"


@dataclass(frozen=True)
class Peer:
    """An engine's home.

    Args:
        module: the worker's, below `benchmarks.workers`.
        requirements: of its own environment; none for what runs in the harness's.
        build: variables while it is installed.
        removed: what a requirement brings along and does not need.
        files: what it reads: the model "as it is", its own files "once", or "by dtype".
    """

    module: str
    requirements: tuple[str, ...] = ()
    build: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    files: str = "as it is"


PEERS = {
    "ours": Peer("ours"),
    "nanogpt": Peer("nanogpt"),
    "hf": Peer("hf", (TORCH, "transformers==5.24.0", SAFETENSORS, NUMPY)),
    "ctranslate2": Peer(
        "ctranslate2_peer", ("ctranslate2==4.8.5", SAFETENSORS, NUMPY), files="by dtype"
    ),
    "llama.cpp": Peer(
        "llama_cpp_peer",
        ("llama-cpp-python==0.3.36", "gguf==0.19.0", SAFETENSORS, NUMPY),
        build={
            "CMAKE_ARGS": "-DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release "
            "-DLLAVA_BUILD=OFF -DLLAMA_CURL=OFF",
            "FORCE_CMAKE": "1",
            "PIP_NO_BINARY": "llama-cpp-python",
        },
        files="by dtype",
    ),
    "openvino": Peer(
        "openvino_peer",
        (TORCH, "optimum-intel==2.2.0", "openvino==2026.4.1", SAFETENSORS),
        # PyPI's torchvision is built for CUDA, and breaks transformers beside a CPU's torch.
        removed=("torchvision",),
        files="once",
    ),
}


@dataclass(frozen=True)
class Variant:
    """One engine in one number format.

    Args:
        peer: a name of PEERS.
        dtype: the format, as the worker knows it.
        bits: that one weight takes in memory, scales included.
        exact: whether its arithmetic is float32 throughout, so that its ids must be the
            reference's.
        options: more for the worker.
        suffix: what tells it from another variant of the same format.
    """

    peer: str
    dtype: str
    bits: float
    exact: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    suffix: str = ""

    @property
    def name(self) -> str:
        """How it is asked for and listed."""
        return f"{self.peer}/{self.dtype}{self.suffix}"


REFERENCE = "nanogpt/float32"
YARDSTICK = "hf/float32"

COMPILED: Mapping[str, object] = {"compile": True}
EAGER: Mapping[str, object] = {"compile": False}

VARIANTS = (
    Variant("ours", "float32", 32, True, COMPILED),
    Variant("ours", "float16", 16, False, COMPILED),
    Variant("ours", "bfloat16", 16, False, COMPILED),
    Variant("ours", "int8", 8, False, COMPILED),
    Variant("ours", "float32", 32, True, EAGER, "+eager"),
    Variant("ours", "float16", 16, False, EAGER, "+eager"),
    Variant("ours", "int8", 8, False, EAGER, "+eager"),
    Variant("nanogpt", "float32", 32, exact=True),
    Variant("hf", "float32", 32, exact=True),
    Variant("hf", "bfloat16", 16),
    Variant("ctranslate2", "float32", 32, exact=True),
    Variant("ctranslate2", "int8", 8),
    Variant("llama.cpp", "f32", 32, exact=True),
    Variant("llama.cpp", "f16", 16),
    Variant("llama.cpp", "f16", 16, False, {"flash_attention": True}, "+flash"),
    Variant("llama.cpp", "q8_0", 8.5),
    Variant("llama.cpp", "q8_0", 8.5, False, {"flash_attention": True}, "+flash"),
    Variant("openvino", "float32", 32, exact=True),
    Variant("openvino", "bfloat16", 16),
)


def find_variants(patterns: str) -> list[Variant]:
    """Return the variants that any of the patterns names, in the order of VARIANTS.

    Args:
        patterns: names with `*`, or peers, separated by commas.

    Raises:
        ValueError: a pattern that fits none.
    """
    chosen = []
    for pattern in patterns.split(","):
        fitting = [v for v in VARIANTS if v.peer == pattern or fnmatchcase(v.name, pattern)]
        if not fitting:
            known = ", ".join(variant.name for variant in VARIANTS)
            raise ValueError(f"no engine fits {pattern!r}: known are {known}")
        chosen += fitting
    return [variant for variant in VARIANTS if variant in chosen]
