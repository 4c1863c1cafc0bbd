"""What can be told of a file that its reader refuses: its members, and the names in its pickle.

Nothing is executed, and a broken file gives less instead of an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli import pickles
from nanogpt_cli.checkpoints.contents import GlobalUse
from nanogpt_cli.checkpoints.files import errors_name, map_file, read_start
from nanogpt_cli.checkpoints.torch_legacy import TorchLegacy, find_object
from nanogpt_cli.checkpoints.torch_rebuild import TORCH_CALLS, TORCH_CONSTANTS
from nanogpt_cli.checkpoints.zips import LOCAL_SIGNATURE, read_directory, read_member
from nanogpt_cli.errors import CheckpointError


@dataclass(frozen=True)
class Survey:
    """A file's parts, unread.

    Args:
        members: (name, bytes once unpacked) of an archive, in the order of the file.
        globals: names that its pickles refer to; the first call that is refused is "refused".
    """

    members: tuple[tuple[str, int], ...] = ()
    globals: tuple[GlobalUse, ...] = ()


def survey(path: Path) -> Survey:
    """Return the members and the globals of a zip, a legacy torch file or a plain pickle.

    Raises:
        CheckpointError: the file cannot be opened at all.
    """
    start = read_start(path, 4)
    with errors_name(path):
        if start == LOCAL_SIGNATURE:
            return _survey_archive(path)
        if not path.stat().st_size:
            return Survey()
        with map_file(path) as data:
            is_torch = TorchLegacy().sniff(path)
            return Survey(globals=_scan(data, _object_start(data) if is_torch else 0))


def _survey_archive(path: Path) -> Survey:
    try:
        members = read_directory(path)
    except CheckpointError:
        return Survey()
    uses: tuple[GlobalUse, ...] = ()
    for name, member in members.items():
        if name.endswith(".pkl"):
            try:
                data = read_member(path, member, pickles.MAX_BYTES)
            except CheckpointError:
                continue
            uses += _scan(bytes(data), 0)
    return Survey(tuple((name, member.size) for name, member in members.items()), uses)


def _object_start(data: pickles.Buffer) -> int:
    try:
        return find_object(data)
    except CheckpointError:
        return 0


def _scan(data: pickles.Buffer, offset: int) -> tuple[GlobalUse, ...]:
    uses = pickles.scan_globals(data, offset, calls=TORCH_CALLS, constants=TORCH_CONSTANTS)
    return tuple(GlobalUse(use.name, use.offset, use.verdict) for use in uses)
