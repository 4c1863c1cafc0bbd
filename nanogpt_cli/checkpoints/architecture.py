"""From a described file to one GPT: its config, and which stored tensor is which weight.

Every envelope, key prefix and layout found in the wild is reduced here to nanoGPT's names. No
tensor data is loaded; the two embedding matrices are compared byte by byte where only that can
tell whether the head is tied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from nanogpt_cli.accounting.parameters import Part, list_parts
from nanogpt_cli.checkpoints.contents import Contents, TensorInfo
from nanogpt_cli.checkpoints.envelope import Envelope, open_envelope
from nanogpt_cli.checkpoints.hf_config import HFSettings, gpt2_settings
from nanogpt_cli.checkpoints.raw import read_scalar, same_bytes
from nanogpt_cli.checkpoints.stored_names import CONV1D, HEAD, WPE, WTE, is_conv1d, sort_names
from nanogpt_cli.checkpoints.zero_biases import first_nonzero, is_bias, without_biases
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.errors import CheckpointError, UsageError, name_some

SIZES = ("block_size", "vocab_size", "n_layer", "n_head", "n_embd")
FLOATS = ("float32", "float16", "bfloat16", "float64")

TWO_MODELS = "weights and settings are of different models: get both from one place again"
NO_CARRIED_MODEL = "nanogpt reads nanoGPT, GPT-2, minGPT and build-nanogpt weights"


@dataclass(frozen=True)
class Weight:
    """One weight of the model: the tensor that holds it, and whether it is stored transposed."""

    info: TensorInfo
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in nanoGPT's layout."""
        return self.info.shape[::-1] if self.transposed else self.info.shape


@dataclass(frozen=True)
class Architecture:
    """The GPT that a file holds.

    Args:
        config: every size; `n_head` stands in as 1 where `sources["n_head"]` is "unknown".
        sources: config field to where its value came from: "file", "shapes", "flag", "assumed".
        weights: nanoGPT's parameter names, in named_parameters order, the head only if untied.
        masks: stored causal masks by stored name; they are no parameters.
        tying: "storage", "value" (equal copies), "absent" (no head stored) or "untied".
        head: the stored head, if there is one.
        prefixes: what was removed from the stored names.
        envelope: what the file holds beside the weights.
        notes: what a user should hear.
        names: stored name to nanoGPT's name, for every tensor of the state dict that has one.
    """

    config: GPTConfig
    sources: dict[str, str]
    weights: dict[str, Weight]
    masks: dict[str, TensorInfo]
    tying: str
    head: TensorInfo | None
    prefixes: tuple[str, ...]
    envelope: Envelope
    notes: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)

    @property
    def n_head_known(self) -> bool:
        """Whether the file, its folder or a flag gave the number of heads."""
        return self.sources["n_head"] != "unknown"


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


def read_architecture(contents: Contents, *, n_head: int | None = None) -> Architecture:
    """Work out which GPT `contents` holds.

    Args:
        contents: a described file or folder.
        n_head: number of heads, for files that do not say it.

    Raises:
        CheckpointError: another architecture, or keys, shapes or types that do not fit.
        UsageError: `n_head` contradicts the file.
    """
    envelope = open_envelope(contents)
    names = sort_names(envelope.weights)
    conv1d = is_conv1d(names.weights)
    weights = {
        name: Weight(info, transposed=conv1d and name.endswith(CONV1D))
        for name, info in names.weights.items()
    }
    head = names.weights.get(HEAD)
    tying = _tying(names.weights.get(WTE), head)
    if tying != "untied":
        weights.pop(HEAD, None)
    if tying == "absent" and contents.hf_config is not None:
        _require_tied(gpt2_settings(contents.hf_config))
    notes = [*contents.notes, *envelope.notes]
    if contents.hf_config is not None:
        weights = _heed_own_entry(contents.hf_config, weights, notes)
    config, sources = _config(contents, envelope, weights, n_head)
    config.activation, sources["activation"] = _activation(
        contents, envelope, conv1d=conv1d, untied=tying == "untied", notes=notes
    )
    config.tied_head = tying != "untied"
    if tying == "untied":
        notes.append("the head is not tied to the embedding in this file: both matrices are used")
    try:
        _check(weights, config)
    except CheckpointError as error:
        raise MisfitError(error, weights, config, names.masks) from error
    ordered = {name: weights[name] for name in parameter_shapes(config)}
    return Architecture(
        config,
        sources,
        ordered,
        names.masks,
        tying,
        head,
        tuple(names.prefixes),
        envelope,
        tuple(notes),
        names.stored,
    )


def _heed_own_entry(
    hf_config: Mapping[str, object], weights: dict[str, Weight], notes: list[str]
) -> dict[str, Weight]:
    """Leave out the zero biases that only Hugging Face's format wants, as our own entry says."""
    own = gpt2_settings(hf_config).nanogpt or {}
    biases = {name: weight.info for name, weight in weights.items() if is_bias(name)}
    if own.get("bias") is not False or not biases:
        return weights
    trained = first_nonzero(biases)
    if trained is None:
        return without_biases(weights)
    notes.append(f"config.json says bias false, but {trained!r} is not zero: biases are used")
    return weights


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


def _tying(wte: TensorInfo | None, head: TensorInfo | None) -> str:
    if head is None or wte is None:
        return "absent"
    if (head.path, head.storage, head.offset) == (wte.path, wte.storage, wte.offset):
        return "storage"
    if head.shape != wte.shape or head.dtype != wte.dtype:
        return "untied"
    return "value" if same_bytes(head, wte) else "untied"


def _require_tied(settings: HFSettings) -> None:
    if not settings.tied_head:
        raise CheckpointError(
            f"config.json says tie_word_embeddings false, and {HEAD!r} is missing",
            hint="without its head the model cannot predict; set it true if the head is tied",
        )


def _config(
    contents: Contents, envelope: Envelope, weights: Mapping[str, Weight], n_head: int | None
) -> tuple[GPTConfig, dict[str, str]]:
    sizes, sources = _sizes_from_shapes(weights), dict.fromkeys(SIZES, "shapes")
    stated = dict(envelope.model_args)
    if contents.hf_config is not None:
        settings = gpt2_settings(contents.hf_config)
        stated = {name: getattr(settings, name) for name in SIZES}
        if not contents.path.is_dir():  # a config.json beside the file, which may have been cropped
            del stated["block_size"]
    for name in SIZES:
        if (value := _stated_size(stated, name)) is not None:
            sizes[name], sources[name] = value, "file"
    if sizes["n_layer"] > len(weights):
        raise CheckpointError(
            f"the file's n_layer is {sizes['n_layer']}, and it holds {len(weights)} weights in all",
            hint=TWO_MODELS,
        )
    if n_head is not None:
        if "n_head" in sizes and sizes["n_head"] != n_head:
            raise UsageError(
                f"--n-head {n_head} contradicts the file, which says n_head {sizes['n_head']}",
                hint="leave --n-head out",
            )
        if n_head < 1 or sizes["n_embd"] % n_head:
            raise UsageError(
                f"--n-head {n_head} does not divide the model's {sizes['n_embd']} columns",
                hint="every head has an equal share of them",
            )
        sizes["n_head"], sources["n_head"] = n_head, "flag"
    elif "n_head" not in sizes:
        sizes["n_head"], sources["n_head"] = 1, "unknown"
    bias = "transformer.ln_f.bias" in weights
    dropout = stated.get("dropout")
    is_share = isinstance(dropout, int | float) and 0.0 <= dropout <= 1.0
    sources["bias"] = "shapes"
    config = GPTConfig(
        sizes["block_size"],
        sizes["vocab_size"],
        sizes["n_layer"],
        sizes["n_head"],
        sizes["n_embd"],
        dropout=float(cast(float, dropout)) if is_share else 0.0,
        bias=bias,
    )
    return config, sources


def _sizes_from_shapes(weights: Mapping[str, Weight]) -> dict[str, int]:
    for name in (WTE, WPE):
        if name not in weights:
            raise CheckpointError(
                f"missing weight {name!r}: it gives the model's sizes",
                hint="save the whole model's state_dict(), embeddings too",
            )
        if len(weights[name].shape) != 2:
            found = list(weights[name].shape)
            raise CheckpointError(
                f"{name!r} has shape {found}: it must have two axes", hint=NO_CARRIED_MODEL
            )
    layers = {
        part
        for name in weights
        if name.startswith("transformer.h.") and (part := name.split(".")[2]).isdecimal()
    }
    return {
        "vocab_size": weights[WTE].shape[0],
        "n_embd": weights[WTE].shape[1],
        "block_size": weights[WPE].shape[0],
        "n_layer": len(layers) or 1,
    }


def _stated_size(stated: Mapping[str, object], name: str) -> int | None:
    value = stated.get(name)
    if value is None:
        return None
    if isinstance(value, TensorInfo):
        if value.numel != 1:
            raise CheckpointError(
                f"the file's {name} is a tensor of shape {list(value.shape)}, not an integer",
                hint="save it as a plain number in model_args",
            )
        value = read_scalar(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CheckpointError(
            f"the file's {name} is {value!r}: it must be an integer",
            hint="save it as a plain number in model_args",
        )
    return value


def _activation(
    contents: Contents, envelope: Envelope, *, conv1d: bool, untied: bool, notes: list[str]
) -> tuple[str, str]:
    """Return the activation and where it came from; what no file says goes by its family."""
    if contents.hf_config is not None:
        return gpt2_settings(contents.hf_config).activation, "file"
    if (own := envelope.own.get("activation")) is not None:
        return cast(str, own), "file"
    if conv1d:
        notes.append("Conv1D weights without a config: taken as GPT-2's, with the tanh GELU")
        return "gelu_tanh", "assumed"
    if envelope.family == "build-nanogpt":
        return "gelu_tanh", "assumed"
    if envelope.family == "bare" and untied:
        notes.append("a bare file with an untied head: taken as minGPT's, with the tanh GELU")
        return "gelu_tanh", "assumed"
    return "gelu", "assumed"


def _check(weights: Mapping[str, Weight], config: GPTConfig) -> None:
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
