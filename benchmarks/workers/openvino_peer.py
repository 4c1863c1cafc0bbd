"""OpenVINO's runtime on the stateful model that optimum-intel exports.

optimum writes the files; the loop here drives the compiled model itself, without the overhead of
`OVModelForCausalLM.generate`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from benchmarks.workers.protocol import Clock, Ids, pad_left, serve

np: Any = importlib.import_module("numpy")
openvino: Any = importlib.import_module("openvino")

PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}


def prepare(model: Path, _: str) -> None:
    """Export the Hugging Face folder, weights float32 whatever the arithmetic will be."""
    exporters: Any = importlib.import_module("optimum.exporters.openvino")
    exporters.main_export(
        str(model / "hf"),
        _folder(model),
        task="text-generation-with-past",
        ov_config=importlib.import_module("optimum.intel").OVConfig(dtype="fp32"),
        stateful=True,
        convert_tokenizer=False,
    )


def _folder(model: Path) -> Path:
    return model / "openvino"


class OpenVINO:
    """A compiled model with its cache inside, and numpy for the argmax."""

    def __init__(self, model: Path, dtype: str, threads: int) -> None:
        self.version = f"OpenVINO {openvino.__version__.partition('-')[0]}"
        precision = PRECISIONS[dtype]
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": precision,
            # By default the cache is 8 bits wide, which would be another model's ids.
            "KV_CACHE_PRECISION": precision,
        }
        path = _folder(model) / "openvino_model.xml"
        self.request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()
        self.inputs = {name for part in self.request.model_inputs for name in part.get_names()}

    def generate(self, prompts: Ids, new_tokens: int, clock: Clock) -> Ids:
        """Continue the prompts; ragged ones are padded on the left and masked."""
        rows, padding = pad_left(prompts)
        idx, mask = np.array(rows), np.array(padding)
        positions = np.maximum(mask.cumsum(1) - 1, 0)
        self.request.reset_state()
        made = []
        for _ in range(new_tokens):
            self._run(idx, mask, positions)
            idx = self.request.get_tensor("logits").data[:, -1].argmax(-1)[:, None]
            clock.step()
            made.append(idx)
            mask = np.concatenate((mask, np.ones_like(mask[:, :1])), 1)
            positions = positions[:, -1:] + 1
        new: Ids = np.concatenate(made, 1).tolist()
        return new

    def _run(self, idx: Any, mask: Any, positions: Any) -> None:
        inputs = {
            "input_ids": idx,
            "attention_mask": mask,
            "position_ids": positions,
            "beam_idx": np.arange(len(idx), dtype=np.int32),
        }
        self.request.infer({name: inputs[name] for name in self.inputs})


if __name__ == "__main__":
    serve(OpenVINO, prepare)
