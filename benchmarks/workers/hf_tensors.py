"""The Hugging Face folder's tensors as numpy arrays, for peers that read no such folder."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any


class HFTensors:
    """GPT-2's tensors by name; a linear layer's matrix is [out, in], as everybody else has it.

    Args:
        model: the folder with `hf` in it.
    """

    def __init__(self, model: Path) -> None:
        load_file: Any = importlib.import_module("safetensors.numpy").load_file
        self.config: dict[str, Any] = json.loads((model / "hf" / "config.json").read_text())
        self._tensors: dict[str, Any] = load_file(model / "hf" / "model.safetensors")

    def __getitem__(self, name: str) -> Any:
        return self._tensors[f"transformer.{name}"]

    def linear(self, name: str) -> tuple[Any, Any]:
        """Return a Conv1D's matrix, turned round, and its bias."""
        return self[f"{name}.weight"].T.copy(), self[f"{name}.bias"]
