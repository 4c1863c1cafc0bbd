"""Hugging Face transformers' `generate`: SDPA attention, dynamic cache, greedy."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from benchmarks.workers.protocol import Clock, Ids, pad_left, serve

torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")


class Transformers:
    """GPT2LMHeadModel from the folder."""

    def __init__(self, model: Path, dtype: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}"
        self.model = transformers.GPT2LMHeadModel.from_pretrained(
            model / "hf", dtype=getattr(torch, dtype), attn_implementation="sdpa"
        ).eval()
        self.model.generation_config.eos_token_id = None

    def generate(self, prompts: Ids, new_tokens: int, clock: Clock) -> Ids:
        """Continue the prompts; ragged ones are padded on the left and masked."""

        def watch(ids: Any, *_: object, **__: object) -> Any:
            clock.step()
            return torch.zeros(len(ids), dtype=torch.bool)

        rows, mask = pad_left(prompts)
        with torch.inference_mode():
            ids = self.model.generate(
                torch.tensor(rows),
                attention_mask=torch.tensor(mask),
                max_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=0,
                stopping_criteria=[watch],
            )
        new: Ids = ids[:, len(rows[0]) :].tolist()
        return new


if __name__ == "__main__":
    serve(Transformers)
