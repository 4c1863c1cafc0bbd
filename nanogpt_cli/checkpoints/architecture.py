"""From a described file to one GPT: its config, and which stored tensor is which weight.

Every envelope, key prefix and layout found in the wild is reduced here to nanoGPT's names. No
tensor data is loaded; the two embedding matrices are compared byte by byte where only that can
tell whether the head is tied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nanogpt_cli.checkpoints.contents import Contents, TensorInfo
from nanogpt_cli.checkpoints.envelope import Envelope, open_envelope
from nanogpt_cli.checkpoints.fitting import MisfitError, parameter_shapes, require_fit
from nanogpt_cli.checkpoints.hugging_face.config import HFSettings, gpt2_settings
from nanogpt_cli.checkpoints.raw import same_bytes
from nanogpt_cli.checkpoints.sizes import settle_activation, settle_sizes
from nanogpt_cli.checkpoints.stored_names import (
    CONV1D,
    HEAD,
    WTE,
    Weight,
    is_conv1d,
    sort_names,
)
from nanogpt_cli.checkpoints.zero_biases import first_nonzero, is_bias, without_biases
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.errors import CheckpointError, UsageError


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

    def require_n_head(self) -> None:
        """Raise UsageError where nothing says how many heads the model has."""
        if self.n_head_known:
            return
        C = self.config.n_embd
        fitting = [n for n in range(1, C + 1) if C % n == 0 and (C // n >= 8 or C < 16)]
        raise UsageError(
            f"the file does not say how many attention heads its {C} columns are split into",
            hint=f"give --n-head N; divisors of {C}: {', '.join(map(str, fitting[:12]))}",
        )


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
    config, sources = settle_sizes(contents, envelope, weights, n_head)
    config.activation, sources["activation"] = settle_activation(
        contents, envelope, conv1d=conv1d, untied=tying == "untied", notes=notes
    )
    config.tied_head = tying != "untied"
    if tying == "untied":
        notes.append("the head is not tied to the embedding in this file: both matrices are used")
    try:
        require_fit(weights, config)
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
