"""How files name and lay out a GPT's tensors, reduced to nanoGPT's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.errors import CheckpointError, name_some

WTE, WPE, HEAD = "transformer.wte.weight", "transformer.wpe.weight", "lm_head.weight"

CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
"""OpenAI's Conv1D matrices, stored [in, out]; attn.c_proj is square, so no shape check helps."""

WRAPPERS = ("_orig_mod.", "module.", "model.")
"""Key prefixes that torch.compile, DataParallel and trainers put before a model's own names."""

BODY = ("wte", "wpe", "h", "ln_f")
"""The parts that Hugging Face files may name without `transformer.` before them."""


@dataclass(frozen=True)
class Weight:
    """One weight of the model: the tensor that holds it, and whether it is stored transposed."""

    info: TensorInfo
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in nanoGPT's layout."""
        return self.info.shape[::-1] if self.transposed else self.info.shape


@dataclass
class StoredNames:
    """Stored tensors under nanoGPT's names, sorted into weights and masks."""

    weights: dict[str, TensorInfo] = field(default_factory=dict)
    masks: dict[str, TensorInfo] = field(default_factory=dict)
    prefixes: dict[str, None] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)


def sort_names(stored: Mapping[str, TensorInfo]) -> StoredNames:
    """Give every tensor of a state dict nanoGPT's name.

    Raises:
        CheckpointError: two of one name, or no embedding: another architecture.
    """
    names = StoredNames()
    for key, info in stored.items():
        name, removed = _strip(key)
        names.prefixes.update(dict.fromkeys(removed))
        if name.split(".", 1)[0] in BODY:
            name = f"transformer.{name}"
        names.stored[key] = name
        if _is_mask(name, info):
            names.masks[key] = info
        elif name in names.weights:
            raise CheckpointError(
                f"two tensors are named {name!r} once prefixes are removed: {key!r} is the second",
                hint="the file holds two models: save the state_dict() of one",
            )
        else:
            names.weights[name] = info
    if WTE not in names.weights:
        raise _another_architecture(stored)
    return names


def strip_prefixes(key: str) -> str:
    """Return a stored key without what torch.compile, DataParallel and trainers put before it."""
    return _strip(key)[0]


def canonical_name(key: str) -> str:
    """Return a stored key as nanoGPT names it."""
    name = strip_prefixes(key)
    return f"transformer.{name}" if name.split(".", 1)[0] in BODY else name


def _strip(key: str) -> tuple[str, list[str]]:
    removed = []
    if "_orig_mod." in key:  # torch.compile of a single block leaves it in the middle
        key, removed = key.replace("_orig_mod.", ""), ["_orig_mod."]
    while key.startswith(WRAPPERS):
        prefix = key[: key.index(".") + 1]
        key = key[len(prefix) :]
        removed.append(prefix)
    return key, removed


def _is_mask(name: str, info: TensorInfo) -> bool:
    """Tell a causal mask from a weight: `attn.bias` is one only when it has four axes."""
    if name.endswith(".attn.masked_bias"):
        return True
    return name.endswith(".attn.bias") and len(info.shape) == 4


def _another_architecture(stored: Mapping[str, TensorInfo]) -> CheckpointError:
    inside = next((key for key in stored if key.endswith("wte.weight")), None)
    first = {key.split(".", 1)[0] for key in stored}
    if inside is not None and len(first) == 1:
        prefix = f"{first.pop()}."
        return CheckpointError(
            f"every tensor's name begins with {prefix!r}, which is not part of a GPT's names",
            hint="save the inner model's state_dict(), or remove that prefix from the keys",
        )
    return CheckpointError(
        f"not a GPT-2 model: no tensor is named {WTE!r}; found {name_some(stored)}",
        hint="nanogpt reads nanoGPT, GPT-2, minGPT and build-nanogpt weights",
    )


def is_conv1d(weights: Mapping[str, TensorInfo]) -> bool:
    """Tell [in, out] from [out, in] by the one matrix that shows it: c_attn, C by 3C."""
    C = weights[WTE].shape[-1] if weights[WTE].shape else 0
    info = weights.get("transformer.h.0.attn.c_attn.weight")
    return info is not None and info.shape == (C, 3 * C)
