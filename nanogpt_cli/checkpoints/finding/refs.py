"""The one grammar of checkpoint references: what a name on the command line stands for.

Decided by what exists and what it holds, never by an extension. Nothing is read but names and
config.json; a hub id is fetched.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.checkpoints.finding import hub
from nanogpt_cli.checkpoints.hugging_face.folder import HuggingFaceFolder
from nanogpt_cli.errors import NanoGPTError, UsageError, name_some, nearest

STOCK = {
    "gpt2": "openai-community/gpt2",
    "gpt2-medium": "openai-community/gpt2-medium",
    "gpt2-large": "openai-community/gpt2-large",
    "gpt2-xl": "openai-community/gpt2-xl",
    "distilgpt2": "distilbert/distilgpt2",
}
"""Names that need no owner -> their hub ids."""

DEMO = "demo"
DEMO_PATH = Path(__file__).resolve().parents[2] / "assets" / "demo" / "ckpt.pt"
DEFAULT_PATH = Path("out", "ckpt.pt")

WEIGHT_SUFFIXES = (
    *(".pt", ".pth", ".bin", ".ckpt", ".safetensors"),
    *(".h5", ".msgpack", ".gguf", ".onnx", ".npz", ".npy", ".pkl", ".zip", ".tar"),
)
"""A name that ends so is meant as a file, and never looked up on the hub."""

HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*(@[^\s/]+)?", re.ASCII)


@dataclass(frozen=True)
class Located:
    """Where a checkpoint lies.

    Args:
        given: the reference as the user gave it, or None.
        path: a file, or a Hugging Face folder.
        kind: "file", "folder", "hub" or "demo".
        revision: commit of a hub model, else None.
        notes: what a user should hear about the choice.
    """

    given: str | None
    path: Path
    kind: str
    revision: str | None = None
    notes: tuple[str, ...] = ()


def locate(ref: str | None, *, offline: bool = False, default_to_demo: bool = True) -> Located:
    """Return what a checkpoint reference stands for; a hub id is fetched unless it is cached.

    Args:
        ref: a file, a folder, a stock name, a hub id `owner/name[@revision]`, "demo", or None.
        offline: fetch nothing.
        default_to_demo: what None means: `out/ckpt.pt` or else the demo, or an error.

    Raises:
        UsageError: a path that does not exist or is no file or folder, a folder that holds
            several checkpoints, or no reference.
        NanoGPTError: a folder without a checkpoint, a path that cannot be read, or a failed fetch.
    """
    if ref is None:
        return _default(default_to_demo)
    if not ref.strip():
        raise UsageError("the checkpoint's name is empty", hint="give a file, a folder or a model")
    if _exists(ref):
        return _local(ref)
    if ref == DEMO:
        return _demo(ref)
    if ref in STOCK or _is_hub_id(ref):
        return _on_hub(ref, offline=offline)
    raise _missing(ref)


def _default(default_to_demo: bool) -> Located:
    if not default_to_demo:
        raise UsageError("no checkpoint was given", hint="give a file, a folder or a model's name")
    if _exists(str(DEFAULT_PATH)):
        note = f"no checkpoint was named: using {DEFAULT_PATH}"
        return Located(None, _regular_file(DEFAULT_PATH), "file", notes=(note,))
    return _demo(None, f"no checkpoint was named and there is no {DEFAULT_PATH}: using {DEMO}")


def _demo(given: str | None, *notes: str) -> Located:
    if not DEMO_PATH.is_file():
        raise NanoGPTError(
            f"the demo model is missing from this installation: no {str(DEMO_PATH)!r}",
            hint="install nanogpt-cli again",
        )
    return Located(given, DEMO_PATH, "demo", notes=notes)


def _exists(ref: str) -> bool:
    """Return whether a path is there, be it a broken link."""
    try:
        Path(ref).lstat()
    except PermissionError as error:
        raise NanoGPTError(f"cannot look for {ref!r}: {error.strerror}") from error
    except (OSError, ValueError):  # nothing there; ValueError: a zero byte, which no path can have
        return False
    return True


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        return False


def _local(ref: str) -> Located:
    path = Path(ref)
    notes: tuple[str, ...] = ()
    if ref == DEMO or ref in STOCK or ref in STOCK.values():
        other = "the model inside the package" if ref == DEMO else "the model of that name"
        notes = (f"{ref!r} is a local path and is used, not {other}",)
    if not _is_folder(path):
        return Located(ref, _regular_file(path), "file", notes=notes)
    found, folder_notes = _in_folder(path)
    kind = "folder" if found == path else "file"
    return Located(ref, found, kind, notes=notes + folder_notes)


def _regular_file(path: Path) -> Path:
    """Return the path if it is a file that can be read; never opens what might block."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise UsageError(
            f"{str(path)!r} is a broken link: it points to {str(path.readlink())!r}",
            hint="give the file itself",
        ) from None
    except OSError as error:
        raise NanoGPTError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"{str(path)!r} is {_kind_of(mode)}, not a checkpoint",
            hint="give a file, a folder or a model's name",
        )
    if not os.access(path, os.R_OK):
        raise NanoGPTError(
            f"cannot read {str(path)!r}: no permission", hint="chmod +r it, or name a copy of it"
        )
    return path


def _kind_of(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "no regular file")


def _in_folder(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the checkpoint in a folder, and notes about what was passed over."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
        is_hugging_face = HuggingFaceFolder().sniff(folder)
    except OSError as error:
        raise NanoGPTError(f"cannot read folder {str(folder)!r}: {error.strerror}") from error
    if "ckpt.pt" in names:
        return _regular_file(folder / "ckpt.pt"), ()
    torch_files = [name for name in names if name.lower().endswith((".pt", ".pth"))]
    if is_hugging_face:
        # A trainer leaves optimizer.pt and its like beside the weights.
        passed = f"the Hugging Face model is used, not {name_some(torch_files)} beside it"
        return folder, (passed,) if torch_files else ()
    if len(torch_files) == 1:
        return _regular_file(folder / torch_files[0]), ()
    if torch_files:
        raise UsageError(
            f"{str(folder)!r} holds several checkpoints: {name_some(torch_files)}",
            hint=f"name one of them: {folder / torch_files[0]}",
        )
    raise _no_checkpoint(folder, names)


def _no_checkpoint(folder: Path, names: list[str]) -> NanoGPTError:
    weights = [name for name in names if Path(name).suffix.lower() in WEIGHT_SUFFIXES]
    holds = f"it holds {name_some(names)}" if names else "it is empty"
    if str(folder) == DEMO:
        hint = "for the model in the package, run this in another folder, or rename this one"
    elif str(folder) in STOCK:
        hint = f"for the model of that name give {STOCK[str(folder)]}"
    elif weights:
        hint = f"name the file: {folder / weights[0]}"
    else:
        hint = "a checkpoint is a .pt file, or config.json and model.safetensors"
    return NanoGPTError(f"no checkpoint in folder {str(folder.absolute())!r}: {holds}", hint)


def _is_hub_id(ref: str) -> bool:
    name = ref.partition("@")[0]
    if not HUB_ID.fullmatch(ref) or _is_folder(Path(name.partition("/")[0])):
        return False
    return not any(part.lower().endswith(WEIGHT_SUFFIXES) for part in (name, ref))


def _on_hub(ref: str, *, offline: bool) -> Located:
    name, _, revision = STOCK.get(ref, ref).partition("@")
    fetched = hub.fetch(name, revision or None, offline=offline)
    return Located(ref, fetched.folder, "hub", fetched.commit, fetched.notes)


def _missing(ref: str) -> UsageError:
    tried = os.path.normpath(Path.cwd() / ref)
    return UsageError(f"no such file or folder: {tried!r}", hint=_suggest(ref))


def _suggest(ref: str) -> str:
    name = ref.partition("@")[0]
    if name in STOCK and ref != name:
        return f"a revision needs the whole id: {STOCK[name]}{ref[len(name) :]}"
    names = [*STOCK, DEMO]
    close = None if os.sep in ref else nearest(ref, names, cutoff=0.75)
    close = close or _near(Path(ref))
    if close is not None:
        return f"did you mean {close}?"
    if any(char.isspace() for char in ref):
        return 'a prompt is given with --prompt "TEXT"; without a checkpoint, the demo continues it'
    return f"give a file, a folder, owner/name on the hub, or one of {', '.join(names)}"


def _near(path: Path) -> str | None:
    """Return what is beside a missing path under a similar name."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):  # no such folder, or a zero byte in the name
        return None
    close = nearest(path.name, names, cutoff=0.75)
    return str(path.parent / close) if close else None
