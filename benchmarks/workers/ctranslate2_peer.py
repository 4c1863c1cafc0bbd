"""CTranslate2's Generator, on a model converted by its own specification classes."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path
from typing import Any

from benchmarks.workers.hf_tensors import HFTensors
from benchmarks.workers.protocol import Clock, Ids, serve

if Path("/proc/cpuinfo").is_file() and "avx512f" in Path("/proc/cpuinfo").read_text():
    # By itself it stays with AVX2, which is 3 to 6 per cent slower.
    os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX512")

ctranslate2: Any = importlib.import_module("ctranslate2")

LINEARS = (
    ("self_attention.linear_0", "attn.c_attn"),
    ("self_attention.linear_1", "attn.c_proj"),
    ("ffn.linear_0", "mlp.c_fc"),
    ("ffn.linear_1", "mlp.c_proj"),
)
NORMS = (("self_attention.layer_norm", "ln_1"), ("ffn.layer_norm", "ln_2"))


def prepare(model: Path, dtype: str) -> None:
    """Write the model in CTranslate2's format; int8 is by row, by its own rule."""
    tensors = HFTensors(model)
    config = tensors.config
    specs = ctranslate2.specs
    spec = specs.TransformerDecoderModelSpec.from_config(
        config["n_layer"],
        config["n_head"],
        pre_norm=True,
        activation=specs.common_spec.Activation.GELUTanh,
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = tensors["wte.weight"]
    decoder.projection.weight = tensors["wte.weight"]
    decoder.position_encodings.encodings = tensors["wpe.weight"]
    _set_norm(decoder.layer_norm, tensors, "ln_f")
    for number, layer in enumerate(decoder.layer):
        for theirs, ours in NORMS:
            _set_norm(_find(layer, theirs), tensors, f"h.{number}.{ours}")
        for theirs, ours in LINEARS:
            linear = _find(layer, theirs)
            linear.weight, linear.bias = tensors.linear(f"h.{number}.{ours}")
    spec.register_vocabulary([f"<{number}>" for number in range(config["vocab_size"])])
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "<0>"
    spec.validate()
    spec.optimize(quantization=None if dtype == "float32" else dtype)
    shutil.rmtree(_folder(model, dtype), ignore_errors=True)
    _folder(model, dtype).mkdir()
    spec.save(str(_folder(model, dtype)))


def _set_norm(norm: Any, tensors: HFTensors, name: str) -> None:
    norm.gamma, norm.beta = tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def _find(layer: Any, path: str) -> Any:
    """Return the part of a layer at a dotted path; `linear_0` may be the first of a list."""
    for name in path.split("."):
        stem, _, number = name.rpartition("_")
        layer = getattr(layer, name) if hasattr(layer, name) else getattr(layer, stem)[int(number)]
    return layer


def _folder(model: Path, dtype: str) -> Path:
    return model / f"ctranslate2-{dtype}"


class CTranslate2:
    """A Generator with all threads on one job, which is what a single batch can use."""

    def __init__(self, model: Path, dtype: str, threads: int) -> None:
        self.version = f"CTranslate2 {ctranslate2.__version__}"
        self.generator = ctranslate2.Generator(
            str(_folder(model, dtype)),
            device="cpu",
            compute_type=dtype if dtype == "float32" else f"{dtype}_float32",
            inter_threads=1,
            intra_threads=threads,
        )

    def generate(self, prompts: Ids, new_tokens: int, clock: Clock) -> Ids:
        """Continue all prompts as one batch; the prompt is forwarded at once, not step by step."""

        def watch(result: Any) -> bool:
            clock.token(result.batch_id)
            return False

        results = self.generator.generate_batch(
            [[f"<{number}>" for number in prompt] for prompt in prompts],
            beam_size=1,
            sampling_topk=1,
            max_length=new_tokens,
            end_token=[],
            include_prompt_in_result=False,
            callback=watch,
        )
        return [result.sequences_ids[0] for result in results]


if __name__ == "__main__":
    serve(CTranslate2, prepare)
