"""What the hub's client raises, told as one clear error a cause."""

from __future__ import annotations

import errno
from traceback import walk_tb

from nanogpt_cli.errors import NanoGPTError, UsageError

NETWORK_MODULES = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3"})
"""Packages that the client has used for its requests; their errors share no public base class."""

FULL_DISK = "Not enough free disk space"
"""How the client's warning begins when a file cannot fit."""

LOCAL_WAY = "give a local folder that has config.json and model.safetensors"
LOG_IN = "log in with: hf auth login"


def is_unreachable(error: Exception) -> bool:
    """Return whether an error says that the hub did not answer, or could not at the moment."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        return _status(error) >= 500
    return isinstance(error, ConnectionError | TimeoutError) or _is_network(error)


def explain(error: Exception, model: str, name: str) -> NanoGPTError | None:
    """Return the error to raise for one that came up while `name` of `model` was asked for.

    Args:
        error: what the client raised.
        model: the model as the user should see it.
        name: the file that was asked for.

    Returns:
        None where the cause is not the hub's, the network's or the disk's: a bug.
    """
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError):
        cause = error.__cause__
        return broken_off(model, name, cause if isinstance(cause, Exception) else error)
    if isinstance(error, errors.HFValidationError):
        return UsageError(
            f"{model} is no name that a model can have: {_first_line(error)}",
            hint="give owner/name as the model's page on the hub shows it",
        )
    if isinstance(error, errors.HfHubHTTPError):
        return _refused(error, model, name)
    if isinstance(error, UserWarning) and str(error).startswith(FULL_DISK):
        return _disk_full(model, name)
    if isinstance(error, ConnectionError | TimeoutError) or _is_network(error):
        return broken_off(model, name, error)
    if _in_xet(error):
        return broken_off(model, name, error, or_else="or with HF_HUB_DISABLE_XET=1")
    return _disk(error, model, name) if isinstance(error, OSError) else None


def unreachable(model: str, error: Exception) -> NanoGPTError:
    """Return the error for a hub that does not answer and a model that is not cached."""
    return NanoGPTError(
        f"cannot reach the hub for {model} ({_first_line(error)}), and it is not in the cache",
        hint=f"check the connection, or {LOCAL_WAY}",
    )


def not_cached(model: str, lacking: str) -> NanoGPTError:
    """Return the error for a model that is asked for offline and is not, or not all, there."""
    return NanoGPTError(
        f"{model} is not in the hub's cache ({lacking} is missing), and nothing is fetched offline",
        hint=f"run once without --offline and HF_HUB_OFFLINE, or {LOCAL_WAY}",
    )


def broken_off(model: str, name: str, error: Exception, or_else: str = "") -> NanoGPTError:
    """Return the error for a download that did not come to its end."""
    return NanoGPTError(
        f"the download of {name!r} of {model} broke off: {_first_line(error)}",
        hint=f"run it again{or_else and ', ' + or_else}: files that are complete are kept",
    )


def _refused(error: Exception, model: str, name: str) -> NanoGPTError:
    from huggingface_hub import errors

    status = _status(error)
    if isinstance(error, errors.GatedRepoError):
        return NanoGPTError(
            f"{model} is gated: its owner lets in only those who asked",
            hint=f"ask for access on the model's page, then {LOG_IN}",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return NanoGPTError(
            f"the hub has no model {model}, or it is private",
            hint=f"check the spelling; for a private model {LOG_IN}",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return NanoGPTError(
            f"{model}: the hub has the model but not that revision",
            hint="give a branch, tag or commit that the model's page lists",
        )
    if isinstance(error, errors.EntryNotFoundError):
        return NanoGPTError(
            f"{model} has no {name!r} on the hub",
            hint="its page lists the files: one that can be read may be downloaded by hand",
        )
    if status in (401, 403):
        return NanoGPTError(f"the hub refuses {name!r} of {model} (HTTP {status})", hint=LOG_IN)
    later = "try again later" if status == 429 or status >= 500 else LOCAL_WAY
    return NanoGPTError(f"the hub answered HTTP {status} for {name!r} of {model}", hint=later)


def _disk(error: OSError, model: str, name: str) -> NanoGPTError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _disk_full(model, name)
    if error.errno is None:  # the client's own check of a file's size
        return broken_off(model, name, error)
    where = f" at {error.filename!r}" if error.filename else ""
    return NanoGPTError(
        f"cannot write {name!r} of {model} to the hub's cache{where}: {error.strerror}",
        hint="set HF_HOME to a folder that can be written",
    )


def _disk_full(model: str, name: str) -> NanoGPTError:
    return NanoGPTError(
        f"no room on the disk for {name!r} of {model}",
        hint="free some space, or set HF_HOME to a folder on a larger disk",
    )


def _status(error: Exception) -> int:
    response = getattr(error, "response", None)
    return int(getattr(response, "status_code", 0))


def _is_network(error: BaseException) -> bool:
    return any(base.__module__.partition(".")[0] in NETWORK_MODULES for base in type(error).__mro__)


def _in_xet(error: BaseException) -> bool:
    """Return whether an error left the client's chunked downloads, which raise RuntimeErrors."""
    frames = walk_tb(error.__traceback__)
    return any(frame.f_code.co_name == "xet_get" for frame, _ in frames)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(". ") if lines else type(error).__name__
