"""torch's zip format, since 1.4: NAME/data.pkl beside one record a storage, NAME/data/KEY.

Only the archive's directory and the pickle are read; tensors are places in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli import pickles
from nanogpt_cli.checkpoints.contents import Contents
from nanogpt_cli.checkpoints.files import errors_name, read_start
from nanogpt_cli.checkpoints.torch_files.rebuild import (
    TORCH_CALLS,
    TORCH_CONSTANTS,
    Storage,
    element_bytes,
    notes_on,
    read_identity,
)
from nanogpt_cli.checkpoints.torch_files.zip_layout import LOCAL_SIGNATURE
from nanogpt_cli.checkpoints.torch_files.zips import Member, read_directory, read_member
from nanogpt_cli.errors import CheckpointError

PICKLE = "data.pkl"
MAX_NOTE = 64
"""Bytes of the records that hold a word or a number."""


class TorchZip:
    """The FORMATS entry for what torch.save writes today, whatever the file is called.

    Source: torch/serialization.py.
    """

    name = "torch-zip"

    def sniff(self, path: Path) -> bool:
        """Return whether a file is a zip archive that begins with, or lists, a data.pkl."""
        start = read_start(path, 512)
        if not start.startswith(LOCAL_SIGNATURE):
            return False
        name = start[30 : 30 + int.from_bytes(start[26:28], "little")]
        if name.endswith(b"/" + PICKLE.encode()) and name.count(b"/") == 1:
            return True
        try:
            return bool(_pickle_names(read_directory(path)))
        except CheckpointError:
            return False

    def describe(self, path: Path) -> Contents:
        """Return what a file holds: its values, with a TensorInfo in place of each tensor.

        Raises:
            CheckpointError: damaged, not what it seems, or a pickle that would call what is not
                on the written list.
        """
        with errors_name(path):
            return _describe(path, self.name)


@dataclass(frozen=True)
class _Archive:
    """A torch archive: its members, and the folder within it that holds them."""

    path: Path
    members: dict[str, Member]
    folder: str

    def note(self, name: str) -> bytes:
        """Return a small record's bytes, b"" where there is none."""
        member = self.members.get(f"{self.folder}/{name}")
        return b"" if member is None else bytes(read_member(self.path, member, MAX_NOTE)).strip()

    def storage(self, identity: object) -> Storage:
        """Return where the storage of a persistent id lies."""
        kind, key, numel, _ = read_identity(identity, 5)
        nbytes = numel * element_bytes(kind.dtype)
        member = self.members.get(f"{self.folder}/data/{key}")
        if member is None:
            raise pickles.Malformed(f"a storage {key[:40]!r} that the archive lacks")
        if member.size != nbytes:
            raise pickles.Malformed(
                f"a storage {key[:40]!r} of {nbytes:,} bytes whose record has {member.size:,}"
            )
        offset, name = (0, member.name) if member.is_deflated else (member.start, "")
        return Storage(key, kind.dtype, self.path, offset, nbytes, name)


def _describe(path: Path, format_name: str) -> Contents:
    archive = _open(path)
    _check_byte_order(archive.note("byteorder"))
    data = read_member(path, archive.members[f"{archive.folder}/{PICKLE}"], pickles.MAX_BYTES)
    made = pickles.load(
        bytes(data),
        name=PICKLE,
        persistent=archive.storage,
        calls=TORCH_CALLS,
        constants=TORCH_CONSTANTS,
    )
    version = (archive.note("version") or archive.note(".data/version")).decode("ascii", "replace")
    return Contents(
        path=path,
        format=format_name,
        container=f"torch zip, version {version}" if version.isdigit() else "torch zip",
        files=(path,),
        root=made.value,
        globals=made.globals,
        notes=notes_on(made),
    )


def _open(path: Path) -> _Archive:
    members = read_directory(path)
    names = _pickle_names(members)
    if len(names) != 1:
        raise CheckpointError(f"the archive holds {len(names)} files {PICKLE!r}, not one")
    folder = names[0].removesuffix(f"/{PICKLE}")
    if any(
        name == f"{folder}/constants.pkl" or name.startswith(f"{folder}/code/") for name in members
    ):
        raise CheckpointError(
            "it is a TorchScript archive, a program and not a checkpoint",
            "where you trust it, load it with torch.jit.load and save its state_dict()",
        )
    return _Archive(path, members, folder)


def _pickle_names(members: dict[str, Member]) -> list[str]:
    """Return the members that are NAME/data.pkl, one folder deep."""
    return [name for name in members if name.endswith(f"/{PICKLE}") and name.count("/") == 1]


def _check_byte_order(order: bytes) -> None:
    if order not in (b"", b"little"):
        raise CheckpointError(
            f"its numbers are in byte order {order.decode('ascii', 'replace')!r}, "
            "and only 'little' can be read"
        )
