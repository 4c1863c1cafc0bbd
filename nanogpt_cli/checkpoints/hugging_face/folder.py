"""A Hugging Face folder: config.json beside weights, in one file or in shards.

File names that an index gives are untrusted: only plain names within the folder are opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath

from nanogpt_cli.checkpoints.contents import Contents
from nanogpt_cli.checkpoints.files import DAMAGED
from nanogpt_cli.checkpoints.hugging_face.config import CONFIG_NAME, load_json, read_hf_config
from nanogpt_cli.checkpoints.impostors import explain
from nanogpt_cli.checkpoints.safetensors_files.format import SafetensorsFile
from nanogpt_cli.checkpoints.torch_files.legacy_format import TorchLegacy
from nanogpt_cli.checkpoints.torch_files.zip_format import TorchZip
from nanogpt_cli.errors import CheckpointError, name_some
from nanogpt_cli.pickles import GlobalUse

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""The names that weights have, the one that wins first; an index is called NAME.index.json."""

INDEX_SUFFIX = ".index.json"
INDEX_LIMIT = 100_000_000

FOREIGN = {
    "tf_model.h5": "TensorFlow",
    "model.ckpt.index": "TensorFlow",
    "flax_model.msgpack": "Flax",
    "model.onnx": "ONNX",
}
"""Weights of other frameworks -> the framework, for the error that says so."""


class HuggingFaceFolder:
    """The FORMATS entry for a folder that `save_pretrained` wrote or the hub holds."""

    name = "huggingface"

    def sniff(self, path: Path) -> bool:
        """Return whether a folder has a Hugging Face config.json and weights of any framework."""
        if not path.is_dir() or not (path / CONFIG_NAME).is_file():
            return False
        indices = tuple(name + INDEX_SUFFIX for name in WEIGHTS)
        if not any((path / name).is_file() for name in (*WEIGHTS, *indices, *FOREIGN)):
            return False
        try:
            return read_hf_config(path) is not None
        except CheckpointError:
            return True  # weights beside a damaged config.json: `describe` says what is wrong

    def describe(self, path: Path) -> Contents:
        """Return the tensors of every weight file in the folder, and its config.json.

        Safetensors win over `.bin` where a folder has both.

        Raises:
            CheckpointError: no config.json or no weights, a shard that is missing, a tensor that
                is not where the index says, or a damaged file.
        """
        config = read_hf_config(path)
        if config is None:
            raise CheckpointError(f"{str(path)!r} has no Hugging Face {CONFIG_NAME}")
        for name in WEIGHTS:
            if (path / name).is_file():
                part = describe_weights(path / name)
                what = f"{name}, {part.container}"
                return _merge(path, config, (part,), part.root, what)
            index = path / (name + INDEX_SUFFIX)
            if index.is_file():
                parts = _describe_shards(path, index)
                root = {key: value for part in parts for key, value in _tensors(part).items()}
                what = f"{len(parts)} shards, {parts[0].container}"
                return _merge(path, config, parts, root, what)
        raise _no_weights(path)


def read_index(path: Path) -> dict[str, str]:
    """Return the weight_map of an index file: tensor name to a plain file name.

    Raises:
        CheckpointError: no such map, or a shard name that leaves the folder.
    """
    weight_map = load_json(path, INDEX_LIMIT).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{str(path)!r} has no weight_map", DAMAGED)
    for key, name in weight_map.items():
        if not is_plain_name(name):
            raise CheckpointError(
                f"{str(path)!r} puts tensor {key!r} in {name!r}: "
                "a shard must be a plain file name in the same folder",
                DAMAGED,
            )
    return weight_map


def is_plain_name(name: object) -> bool:
    """Return whether a value is one file name, with no folder before it on any system."""
    if not isinstance(name, str) or name in {"", ".", ".."} or "\0" in name:
        return False
    return PurePosixPath(name).name == name and PureWindowsPath(name).name == name


def describe_weights(path: Path) -> Contents:
    """Return the tensors of one weight file, its format told by content and not by name.

    Raises:
        CheckpointError: a file of no known format.
    """
    for format_ in (SafetensorsFile(), TorchZip(), TorchLegacy()):
        if format_.sniff(path):
            return format_.describe(path)
    raise explain(path)


def _describe_shards(folder: Path, index: Path) -> tuple[Contents, ...]:
    weight_map = read_index(index)
    names = sorted(set(weight_map.values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{str(folder)!r} lacks {len(missing)} of {len(names)} shards: {name_some(missing)}",
            hint="copy or download the rest of the model",
        )
    parts = []
    for name in names:
        part = describe_weights(folder / name)
        _check_shard(part, {key for key, shard in weight_map.items() if shard == name})
        parts.append(part)
    return tuple(parts)


def _check_shard(part: Contents, expected: set[str]) -> None:
    found = set(_tensors(part))
    lacking, extra = expected - found, found - expected
    for what, keys in (("lacks", lacking), ("holds beyond the index", extra)):
        if keys:
            names = name_some(sorted(map(str, keys)))
            raise CheckpointError(
                f"shard {str(part.path)!r} {what} {len(keys)} tensors: {names}",
                hint="index and shards are not of one model: copy or download it again",
            )


def _tensors(part: Contents) -> Mapping[str, object]:
    if not isinstance(part.root, dict):
        raise CheckpointError(f"{str(part.path)!r} does not hold a state dict", DAMAGED)
    return part.root


def _merge(
    folder: Path, config: dict[str, object], parts: tuple[Contents, ...], root: object, what: str
) -> Contents:
    metadata: dict[str, str] = {}
    uses: dict[str, GlobalUse] = {}
    for part in parts:
        metadata.update(part.metadata)
        for use in part.globals:
            uses.setdefault(use.name, use)
    return Contents(
        path=folder,
        format=HuggingFaceFolder.name,
        container=f"Hugging Face folder, {what}",
        files=tuple(part.path for part in parts),
        root=root,
        hf_config=config,
        metadata=metadata,
        globals=tuple(uses.values()),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _no_weights(folder: Path) -> CheckpointError:
    for name, framework in FOREIGN.items():
        if (folder / name).is_file():
            return CheckpointError(
                f"{str(folder)!r} has {framework} weights alone ({name}): "
                f"only {' and '.join(WEIGHTS)} are read",
                hint="transformers 4 turns it into safetensors: from_pretrained with from_tf=True "
                "or from_flax=True, then save_pretrained",
            )
    return CheckpointError(
        f"{str(folder)!r} has {CONFIG_NAME} and no weights",
        hint=f"copy {' or '.join(WEIGHTS)} into it",
    )
