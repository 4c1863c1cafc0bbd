"""Cropping safetensors and Hugging Face folders: weights, config.json, and what lies beside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nanogpt_cli.checkpoints.contents import Contents, TensorInfo
from nanogpt_cli.checkpoints.envelope import SIZE_NAMES
from nanogpt_cli.checkpoints.hugging_face.config import CONFIG_NAME, SIZES, gpt2_settings, load_json
from nanogpt_cli.checkpoints.hugging_face.folder import (
    INDEX_LIMIT,
    INDEX_SUFFIX,
    describe_weights,
)
from nanogpt_cli.checkpoints.plans import BytesPlan, CopyPlan, FilePlan, NewTensor
from nanogpt_cli.checkpoints.safetensors_files.format import SafetensorsFile
from nanogpt_cli.checkpoints.safetensors_files.write import SafetensorsPlan
from nanogpt_cli.errors import name_some
from nanogpt_cli.surgery.cutting import Cutter
from nanogpt_cli.surgery.report import Cut
from nanogpt_cli.surgery.torch_files import crop_torch

LEFT_OUT = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx"),
    *(".gguf", ".ot", ".tflite", ".mlmodel", ".index.json", ".ckpt.index", ".npz"),
)
"""How the names of files end that hold weights, or training state, of the size before."""
DTYPE_FIELDS = ("dtype", "torch_dtype")


@dataclass
class FolderCrop:
    """A folder to be written.

    Args:
        plans: its files by name.
        weights: which of them hold weights.
        notes: what a user should hear.
    """

    plans: dict[str, FilePlan] = field(default_factory=dict)
    weights: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def crop_safetensors(contents: Contents, cutter: Cutter, *, is_alone: bool) -> SafetensorsPlan:
    """Return the plan of a cropped safetensors file.

    Args:
        contents: the source, one file.
        cutter: cuts its tensors, and keeps account.
        is_alone: whether no config.json belongs to the output, so that it must say its own sizes.
    """
    assert isinstance(contents.root, dict), "safetensors are tensors by name"
    tensors = cutter.cut_entries(contents.root)
    metadata = {"format": "pt", **contents.metadata}
    if is_alone:
        metadata |= _own_metadata(cutter)
    elif "block_size" in metadata:
        metadata["block_size"] = str(cutter.block_size)
    stored = {
        str(name): tensor
        for name, tensor in tensors.items()
        if isinstance(tensor, TensorInfo | NewTensor)
    }
    return SafetensorsPlan(stored, metadata)


def _own_metadata(cutter: Cutter) -> dict[str, str]:
    """Return what the model's sizes are, and what else its source says for sure."""
    architecture = cutter.architecture
    sizes = {name: str(getattr(architecture.config, name)) for name in sorted(SIZE_NAMES)}
    sizes["block_size"] = str(cutter.block_size)
    if not architecture.n_head_known:
        del sizes["n_head"]
    if architecture.sources["activation"] == "file":
        sizes["activation"] = architecture.config.activation
    return sizes


def crop_folder(contents: Contents, cutter: Cutter) -> FolderCrop:
    """Return the plans of a cropped Hugging Face folder.

    Args:
        contents: the source folder.
        cutter: cuts its tensors, and keeps account.
    """
    assert contents.hf_config is not None, "a Hugging Face folder has a config.json"
    crop = FolderCrop()
    for path in contents.files:
        part = describe_weights(path)
        if part.format == SafetensorsFile.name:
            crop.plans[path.name] = crop_safetensors(part, cutter, is_alone=False)
        else:
            made = crop_torch(part, cutter, weights_only=False)
            crop.plans[path.name] = made.plan
            crop.notes += made.notes
        crop.weights.append(path.name)
    _plan_index(contents.path, cutter, crop)
    crop.plans[CONFIG_NAME] = _json_plan(_cropped_config(contents.hf_config, cutter))
    _plan_the_rest(contents.path, crop)
    return crop


def keeps_tied_head(contents: Contents) -> bool:
    """Return whether a head equal to the embedding has a place in the output of its own.

    A torch file names one storage twice. Safetensors cannot, and their head is left out, unless
    the config says that it is a matrix of its own.
    """
    if contents.hf_config is not None and not gpt2_settings(contents.hf_config).tied_head:
        return True
    return not any(SafetensorsFile().sniff(path) for path in contents.files)


def _plan_index(folder: Path, cutter: Cutter, crop: FolderCrop) -> None:
    """Plan the index of a model in shards: names without prefixes, the size that it has now."""
    for name in sorted(path.name for path in folder.glob(f"*{INDEX_SUFFIX}")):
        index = load_json(folder / name, INDEX_LIMIT)
        shards = index.get("weight_map")
        if not isinstance(shards, dict) or not set(shards.values()) <= set(crop.weights):
            continue
        kept = cutter.kept_names(shards)
        index["weight_map"] = kept
        size = sum(tensor.nbytes for _, tensor in cutter.ledger.after)
        if isinstance(index.get("metadata"), dict):
            index["metadata"] = {**index["metadata"], "total_size": size}  # type: ignore[dict-item]
        crop.plans[name] = _json_plan(index)


def _cropped_config(config: Mapping[str, object], cutter: Cutter) -> dict[str, object]:
    """Return config.json with the new number of positions, and the type of cast weights."""
    before, after = cutter.architecture.config.block_size, cutter.block_size
    changed = dict(config)
    names = [name for name in ("n_positions", SIZES["n_positions"][0], "n_ctx") if name in config]
    for name in names or ["n_positions"]:
        changed[name] = after
        if after != before:
            cutter.cuts.append(Cut(f"{CONFIG_NAME}.{name}", before, after))
    own = config.get("nanogpt")
    if isinstance(own, dict):
        changed["nanogpt"] = _with_block_size(own, after)
    if cutter.dtype is not None:
        known = [name for name in DTYPE_FIELDS if name in config] or [DTYPE_FIELDS[1]]
        changed |= dict.fromkeys(known, cutter.dtype)
    return changed


def _with_block_size(own: dict[str, object], block_size: int) -> dict[str, object]:
    """Return our own entry of a config.json, which may repeat the sizes."""
    changed = {name: block_size if name == "block_size" else own[name] for name in own}
    sizes = own.get("sizes")
    if isinstance(sizes, dict) and "block_size" in sizes:
        changed["sizes"] = {**sizes, "block_size": block_size}
    return changed


def _plan_the_rest(folder: Path, crop: FolderCrop) -> None:
    """Plan copies of the tokenizer, the card and their like; other weights stay behind."""
    left_out = []
    for path in sorted(folder.iterdir()):
        if path.name in crop.plans or path.name.startswith("."):
            continue
        if path.is_file() and not path.name.lower().endswith(LEFT_OUT):
            crop.plans[path.name] = CopyPlan(path)
        else:
            left_out.append(path.name)
    if left_out:
        crop.notes.append(
            f"not taken along, since they may be of the old size: {name_some(left_out)}"
        )


def _json_plan(value: Mapping[str, object]) -> BytesPlan:
    return BytesPlan((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
