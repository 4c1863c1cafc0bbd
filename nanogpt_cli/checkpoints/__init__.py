"""Reading checkpoints: what a reference stands for, which format a file has, which GPT it holds.

Nothing in a file is executed, and nothing heavy is imported before weights are wanted. To add a
format: a folder like those here, and its entry in FORMATS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nanogpt_cli.checkpoints.architecture import Architecture, read_architecture
from nanogpt_cli.checkpoints.contents import Contents, TensorInfo
from nanogpt_cli.checkpoints.envelope import open_envelope
from nanogpt_cli.checkpoints.files import stamp
from nanogpt_cli.checkpoints.finding import refs
from nanogpt_cli.checkpoints.finding.refs import Located
from nanogpt_cli.checkpoints.hugging_face.config import read_hf_config
from nanogpt_cli.checkpoints.hugging_face.folder import HuggingFaceFolder
from nanogpt_cli.checkpoints.impostors import explain
from nanogpt_cli.checkpoints.safetensors_files.format import SafetensorsFile
from nanogpt_cli.checkpoints.torch_files.legacy_format import TorchLegacy
from nanogpt_cli.checkpoints.torch_files.zip_format import TorchZip
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.errors import CheckpointError, NanoGPTError

if TYPE_CHECKING:
    from nanogpt_cli.model import GPT

__all__ = [
    "FORMATS",
    "Architecture",
    "Checkpoint",
    "Contents",
    "Format",
    "Located",
    "TensorInfo",
    "describe",
    "load_model",
    "open_checkpoint",
]


class Format(Protocol):
    """One kind of file or folder that holds weights."""

    name: str

    def sniff(self, path: Path) -> bool:
        """Return whether `path` looks like this format, by its content alone."""

    def describe(self, path: Path) -> Contents:
        """Return what `path` holds.

        Raises:
            CheckpointError: damaged, or not what it seems.
        """


FORMATS: tuple[Format, ...] = (HuggingFaceFolder(), SafetensorsFile(), TorchZip(), TorchLegacy())


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, opened and understood, its weights unread.

    Args:
        located: where it is and how it was found.
        contents: what its files hold.
        architecture: which GPT that is.
        stamps: of its files, as they were when it was opened.
    """

    located: Located
    contents: Contents
    architecture: Architecture
    stamps: Mapping[Path, tuple[int, ...]] = field(default_factory=dict)

    @property
    def has_changed(self) -> bool:
        """Whether one of its files was written again since it was opened."""
        return any(stamp(path) != before for path, before in self.stamps.items())

    def open_again(self) -> Checkpoint:
        """Return it as its files now are.

        Raises:
            CheckpointError: they are not whole.
            NanoGPTError: they hold another model.
        """
        known = self.architecture.n_head_known
        again = open_located(self.located, n_head=self.config.n_head if known else None)
        if again.config != self.config:
            raise NanoGPTError(
                f"{str(self.located.path)!r} was written again while it was read, and holds "
                "another model now",
                hint="run the command again",
            )
        return again

    def require_unchanged(self) -> None:
        """Refuse what was read if a file was written again since: it may be of two models.

        Raises:
            CheckpointError: one was, as by a training that saves its next checkpoint.
        """
        for path, before in self.stamps.items():
            if stamp(path) != before:
                raise CheckpointError(
                    f"{str(path)!r} was written again while it was read",
                    hint="run the command again, once it is whole",
                )

    @property
    def config(self) -> GPTConfig:
        """The model's configuration."""
        return self.architecture.config

    @property
    def folder(self) -> Path:
        """Where things that belong to the checkpoint, its tokenizer first of all, may lie."""
        path = self.located.path
        return path if path.is_dir() else path.parent

    @property
    def train_config(self) -> Mapping[str, object]:
        """nanoGPT's flat dict of training settings; empty where there is none."""
        return self.architecture.envelope.train_config

    @property
    def iter_num(self) -> int | None:
        """Iterations trained, where the file says."""
        return self.architecture.envelope.iter_num

    @property
    def best_val_loss(self) -> float | None:
        """Validation loss in nats per token, where the file says."""
        return self.architecture.envelope.best_val_loss

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should hear."""
        return (*self.located.notes, *self.architecture.notes)


def describe(path: Path) -> Contents:
    """Return what a file or a Hugging Face folder holds, by the first format that knows it.

    Raises:
        CheckpointError: no format does, and what the file is instead.
    """
    for format in FORMATS:
        if format.sniff(path):
            return format.describe(path)
    raise explain(path)


def open_checkpoint(
    ref: str | None, *, n_head: int | None = None, offline: bool = False
) -> Checkpoint:
    """Open what a reference stands for: names, shapes and settings, no tensor data.

    Args:
        ref: a file, a folder, a stock name, a hub id, "demo", or None for `out/ckpt.pt`.
        n_head: for files that do not say it.
        offline: fetch nothing.

    Raises:
        UsageError: no such path or name, or an `n_head` that contradicts the file.
        CheckpointError: not a checkpoint, damaged, or of another architecture.
    """
    return open_located(refs.locate(ref, offline=offline), n_head=n_head)


def open_located(located: Located, *, n_head: int | None = None) -> Checkpoint:
    """Open what was found; see `open_checkpoint`."""
    try:
        before = {located.path: stamp(located.path)} if located.path.is_file() else {}
        contents = describe(located.path)
        stamps = {path: stamp(path) for path in contents.files} | before
        if contents.hf_config is None:
            contents = _with_neighbouring_config(contents)
        architecture = read_architecture(contents, n_head=n_head)
        return Checkpoint(located, contents, architecture, stamps)
    except NanoGPTError as error:
        if str(located.path) not in error.message:
            error.message = f"{str(located.path)!r}: {error.message}"
        raise


def _with_neighbouring_config(contents: Contents) -> Contents:
    """Give a bare weights file the Hugging Face config.json of its folder, if there is one.

    A file that says itself how many heads it has, which no shape can check, says it all.
    """
    if isinstance(contents.root, dict) and "model_args" in contents.root:
        return contents
    if "n_head" in open_envelope(contents).model_args:
        return contents
    config = read_hf_config(contents.path.parent)
    return contents if config is None else replace(contents, hf_config=config)


def load_model(
    checkpoint: Checkpoint, cls: type[GPT] | None = None, *, mapped: bool = False
) -> GPT:
    """Load the weights: a GPT in float32 on the CPU, in training mode as torch builds modules.

    Args:
        checkpoint: opened.
        cls: a class made from GPT, or None for GPT.
        mapped: as in `load_weights`; call `checkpoint.require_unchanged()` when the weights were
            copied elsewhere.

    Raises:
        UsageError: the number of heads is not known.
        CheckpointError: the file changed since it was opened.
    """
    from nanogpt_cli.checkpoints.loading import load_weights  # the heavy half

    classes = () if cls is None else (cls,)
    model = load_weights(checkpoint.architecture, *classes, mapped=mapped)
    checkpoint.require_unchanged()
    return model
