"""Whether weights are those of a config: names, shapes and types, all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nanogpt_cli.accounting.parameters import Part, list_parts
from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.stored_names import (
    Weight,
)
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.errors import CheckpointError, name_some

FLOATS = ("float32", "float16", "bfloat16", "float64")

TWO_MODELS = "weights and settings are of different models: get both from one place again"


class MisfitError(CheckpointError):
    """Weights that are not those of the file's config.

    Args:
        fault: the first thing that is wrong.
        weights: all that the file holds, by nanoGPT's names.
        config: what it should hold them for.
        masks: as in Architecture.
    """

    def __init__(
        self,
        fault: CheckpointError,
        weights: Mapping[str, Weight],
        config: GPTConfig,
        masks: Mapping[str, TensorInfo],
    ) -> None:
        super().__init__(fault.message, fault.hint)
        self.weights = weights
        self.config = config
        self.masks = masks


def require_fit(weights: Mapping[str, Weight], config: GPTConfig) -> None:
    expected = parameter_shapes(config)
    missing = [name for name in expected if name not in weights]
    unexpected = [name for name in weights if name not in expected]
    if missing or unexpected:
        raise CheckpointError(_key_fault(missing, unexpected), hint=_key_hint(missing, unexpected))
    wrong = [name for name, weight in weights.items() if weight.shape != expected[name]]
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            f"{name!r} has shape {list(weights[name].shape)}, and the file's config wants "
            f"{list(expected[name])}; {_count(len(wrong), 'tensor')} of {len(expected)} differ so",
            hint=TWO_MODELS,
        )
    unfit = [name for name, weight in weights.items() if weight.info.dtype not in FLOATS]
    if unfit:
        dtype = weights[unfit[0]].info.dtype
        raise CheckpointError(
            f"{unfit[0]!r} is of type {dtype}: weights must be {', '.join(FLOATS)}",
            hint="quantized weights are not read: use the model that they were made from",
        )


def _key_fault(missing: Iterable[str], unexpected: Iterable[str]) -> str:
    parts = [
        f"{_count(len(names), f'{kind} weight')}: {name_some(names)}"
        for kind, names in (("missing", list(missing)), ("unexpected", list(unexpected)))
        if names
    ]
    return "not this GPT: " + "; ".join(parts)


def _key_hint(missing: list[str], unexpected: list[str]) -> str | None:
    if missing and not unexpected and all(name.endswith(".bias") for name in missing):
        return "the file has biases in some layers only, which nanoGPT's model cannot hold"
    return "a file of another model, or a fork with other layers, cannot be read"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def parameter_shapes(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """Return nanoGPT's parameter names and shapes, in named_parameters order."""
    wte, wpe, *inner, ln_f, head = list_parts(config)
    shapes = _shapes(wte, "transformer.wte") | _shapes(wpe, "transformer.wpe")
    for layer in range(config.n_layer):
        for part in inner:
            shapes |= _shapes(part, "transformer." + part.name.replace("*", str(layer)))
    shapes |= _shapes(ln_f, "transformer.ln_f")
    return shapes if config.tied_head else shapes | _shapes(head, "lm_head")


def _shapes(part: Part, name: str) -> dict[str, tuple[int, ...]]:
    bias = {f"{name}.bias": (part.bias_size,)} if part.bias_size else {}
    return {f"{name}.weight": part.weight_shape} | bias
