"""The overview of a checkpoint, from names, shapes and settings alone."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import ClassVar

from nanogpt_cli.accounting.parameters import ParameterCounts, count_parameters
from nanogpt_cli.checkpoints import Checkpoint, TensorInfo
from nanogpt_cli.checkpoints.hugging_face.config import CONFIG_NAME
from nanogpt_cli.checkpoints.raw import read_bytes
from nanogpt_cli.checkpoints.stored_names import WTE
from nanogpt_cli.inspection.formats import tell_age
from nanogpt_cli.inspection.stored import ByteCount, count_bytes, list_stored
from nanogpt_cli.inspection.tokenizer import TokenizerReport, report_tokenizer
from nanogpt_cli.inspection.training import TrainingReport, report_training
from nanogpt_cli.pickles import GlobalUse

CONFIG_FIELDS = (
    *("n_layer", "n_head", "n_embd", "block_size", "vocab_size"),
    *("bias", "dropout", "activation"),
)

MAX_COMPARED_BYTES = 8 << 20
"""An untied head larger than this is not compared with wte here: that takes the weights' reader."""

_CODES = {"float32": "f", "float64": "d"}


@dataclass(frozen=True)
class FileSize:
    """A file that holds weights."""

    path: str
    file_bytes: int


@dataclass(frozen=True)
class ConfigValue:
    """A field of the model's configuration.

    Args:
        value: None where nothing says it.
        source: "file", "config.json", "shapes", "flag", "assumed" or "unknown".
    """

    value: int | float | str | bool | None
    source: str


@dataclass(frozen=True)
class TyingReport:
    """Whether the head is the embedding.

    Args:
        kind: "storage", "value" (equal copies), "absent" (no head stored) or "untied".
        max_abs_difference: between the two matrices, where they were compared.
    """

    kind: str
    max_abs_difference: float | None


@dataclass(frozen=True)
class DtypeCount:
    """The weights of one type."""

    dtype: str
    tensors: int
    parameters: int


@dataclass(frozen=True)
class OverviewReport:
    """What a checkpoint is.

    Args:
        given: the reference as typed, or None.
        path: what it stands for.
        kind: "file", "folder", "hub" or "demo".
        revision: commit of a hub model.
        format: name of the reader.
        container: the same for people.
        age: which versions write this; "" where nothing tells.
        files: those with weights.
        family: "nanogpt", "build-nanogpt", "bare" or "other".
        config: field to value and source.
        parameters: by each rule.
        training: how it was trained.
        stored: where every byte went.
        tying: whether the head is the embedding.
        prefixes: removed from the stored names.
        dtypes: of the weights, the most frequent first.
        tokenizer: the one that belongs to it.
        globals: what its pickle refers to.
        notes: what a user should hear.
    """

    given: str | None
    path: str
    kind: str
    revision: str | None
    format: str
    container: str
    age: str
    files: tuple[FileSize, ...]
    family: str
    config: dict[str, ConfigValue]
    parameters: ParameterCounts
    training: TrainingReport
    stored: ByteCount
    tying: TyingReport
    prefixes: tuple[str, ...]
    dtypes: tuple[DtypeCount, ...]
    tokenizer: TokenizerReport
    globals: tuple[GlobalUse, ...]
    notes: tuple[str, ...]
    schema: ClassVar[str] = "nanogpt.inspect/1"


def survey(
    checkpoint: Checkpoint, *, tokenizer: str | None = None, meta: Path | None = None
) -> OverviewReport:
    """Return the overview of an opened checkpoint; no tensor data but small heads is read.

    Args:
        checkpoint: opened, its weights unread.
        tokenizer: as `--tokenizer`, or None for what lies beside it.
        meta: as `--meta`.

    Raises:
        UsageError: `tokenizer` or `meta` name nothing.
    """
    contents, architecture = checkpoint.contents, checkpoint.architecture
    files = tuple(FileSize(str(path), path.stat().st_size) for path in contents.files)
    located = checkpoint.located
    return OverviewReport(
        given=located.given,
        path=str(located.path),
        kind=located.kind,
        revision=located.revision,
        format=contents.format,
        container=contents.container,
        age=tell_age(contents),
        files=files,
        family=architecture.envelope.family,
        config=_config(checkpoint),
        parameters=count_parameters(checkpoint.config),
        training=report_training(checkpoint),
        stored=count_bytes(list_stored(checkpoint), sum(file.file_bytes for file in files)),
        tying=_tying(checkpoint),
        prefixes=architecture.prefixes,
        dtypes=_dtypes(weight.info for weight in architecture.weights.values()),
        tokenizer=report_tokenizer(checkpoint, tokenizer=tokenizer, meta=meta),
        globals=contents.globals,
        notes=checkpoint.notes,
    )


def _config(checkpoint: Checkpoint) -> dict[str, ConfigValue]:
    architecture = checkpoint.architecture
    stated = architecture.envelope.model_args
    values = {}
    for name in CONFIG_FIELDS:
        source = architecture.sources.get(name)
        if source is None:  # only dropout, which no shape shows
            source = "file" if name in stated else "assumed"
        if source == "file" and checkpoint.contents.hf_config is not None:
            source = CONFIG_NAME
        value = getattr(architecture.config, name)
        values[name] = ConfigValue(None if source == "unknown" else value, source)
    return values


def _tying(checkpoint: Checkpoint) -> TyingReport:
    architecture = checkpoint.architecture
    difference = None
    if architecture.tying in ("storage", "value"):
        difference = 0.0
    elif architecture.tying == "untied" and architecture.head is not None:
        difference = _max_difference(architecture.head, architecture.weights[WTE].info)
    return TyingReport(architecture.tying, difference)


def _max_difference(one: TensorInfo, other: TensorInfo) -> float | None:
    """Return the largest difference of two small matrices, or None where they are not."""
    if one.shape != other.shape or max(one.nbytes, other.nbytes) > MAX_COMPARED_BYTES:
        return None
    first, second = _values(one), _values(other)
    if first is None or second is None:
        return None
    return max(map(abs, map(sub, first, second)), default=0.0)


def _values(info: TensorInfo) -> Iterable[float] | None:
    if info.dtype not in _CODES or not info.is_contiguous:
        return None
    return array(_CODES[info.dtype], read_bytes(info))


def _dtypes(infos: Iterable[TensorInfo]) -> tuple[DtypeCount, ...]:
    counts: dict[str, list[int]] = {}
    for info in infos:
        counts.setdefault(info.dtype, []).append(info.numel)
    rows = (DtypeCount(dtype, len(sizes), sum(sizes)) for dtype, sizes in counts.items())
    return tuple(sorted(rows, key=lambda row: -row.tensors))
