"""llama.cpp through the C functions that llama-cpp-python carries.

Not through its `Llama` class, which copies all logits of every token into numpy: here a step is
llama_decode and the library's own greedy sampler.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from benchmarks.workers.gguf_file import write_gguf
from benchmarks.workers.hf_tensors import HFTensors
from benchmarks.workers.protocol import Clock, Ids, serve

UBATCH = 512
"""Positions run at once: llama.cpp's own default."""


def prepare(model: Path, dtype: str) -> None:
    """Write the GGUF file."""
    write_gguf(HFTensors(model), _file(model, dtype), dtype)


def _file(model: Path, dtype: str) -> Path:
    return model / f"llama.cpp-{dtype}.gguf"


class LlamaCpp:
    """A model with a context that is made anew only when a job needs a larger one."""

    def __init__(
        self, model: Path, dtype: str, threads: int, flash_attention: bool = False
    ) -> None:
        self.lib: Any = importlib.import_module("llama_cpp")
        self.version = f"llama-cpp-python {self.lib.__version__}"
        self.threads, self.flash_attention = threads, flash_attention
        # The keys and values that are each format's best: exact beside float32 weights.
        self.cache_type = self.lib.GGML_TYPE_F32 if dtype == "f32" else self.lib.GGML_TYPE_F16
        # Kept: the library calls it for as long as it lives.
        self.silence = self.lib.llama_log_callback(lambda *_: None)
        self.lib.llama_log_set(self.silence, None)
        self.lib.llama_backend_init()
        parameters = self.lib.llama_model_default_params()
        parameters.n_gpu_layers = 0
        path = str(_file(model, dtype)).encode()
        self.model = self.lib.llama_model_load_from_file(path, parameters)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {_file(model, dtype).name}")
        self.sampler = self.lib.llama_sampler_init_greedy()
        self.context: Any = None
        self.size = (0, 0)

    def _open(self, rows: int, positions: int) -> None:
        """Make a context for so many rows of so many positions."""
        if self.context is not None and self.size == (rows, positions):
            self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
            return
        if self.context is not None:
            self.lib.llama_free(self.context)
        parameters = self.lib.llama_context_default_params()
        parameters.n_ctx = rows * positions
        parameters.n_batch = max(rows * positions, UBATCH)
        parameters.n_ubatch = UBATCH
        parameters.n_seq_max = rows
        parameters.n_threads = parameters.n_threads_batch = self.threads
        parameters.type_k = parameters.type_v = self.cache_type
        parameters.flash_attn_type = int(self.flash_attention)
        parameters.no_perf = True
        self.context = self.lib.llama_init_from_model(self.model, parameters)
        self.size = (rows, positions)

    def generate(self, prompts: Ids, new_tokens: int, clock: Clock) -> Ids:
        """Run all prompts in one batch, then one position of every row a step."""
        rows = len(prompts)
        longest = max(map(len, prompts))
        self._open(rows, longest + new_tokens)
        batch = self.lib.llama_batch_init(sum(map(len, prompts)), 0, 1)
        try:
            return self._decode(batch, prompts, new_tokens, clock)
        finally:
            self.lib.llama_batch_free(batch)

    def _decode(self, batch: Any, prompts: Ids, new_tokens: int, clock: Clock) -> Ids:
        made: Ids = [[] for _ in prompts]
        outputs = self._fill(batch, prompts, [0] * len(prompts))
        for _ in range(new_tokens):
            if code := self.lib.llama_decode(self.context, batch):
                raise RuntimeError(f"llama_decode returned {code}")
            for row, at in enumerate(outputs):
                made[row].append(self.lib.llama_sampler_sample(self.sampler, self.context, at))
                clock.token(row)
            starts = [len(p) + len(m) - 1 for p, m in zip(prompts, made, strict=True)]
            outputs = self._fill(batch, [row[-1:] for row in made], starts)
        return made

    def _fill(self, batch: Any, rows: Ids, starts: list[int]) -> list[int]:
        """Put the rows' ids into the batch; return the places whose logits are wanted."""
        at, outputs = 0, []
        for row, (ids, start) in enumerate(zip(rows, starts, strict=True)):
            for place, number in enumerate(ids):
                batch.token[at] = number
                batch.pos[at] = start + place
                batch.n_seq_id[at] = 1
                batch.seq_id[at][0] = row
                batch.logits[at] = place == len(ids) - 1
                at += 1
            outputs.append(at - 1)
        batch.n_tokens = at
        return outputs


if __name__ == "__main__":
    serve(LlamaCpp, prepare)
