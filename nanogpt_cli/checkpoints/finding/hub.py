"""Models from the Hugging Face hub: exactly the files that we read, through its own client.

The client brings its cache, its progress bar (on a terminal only) and its access token. What it
raises leaves here as one NanoGPTError a cause, never as a traceback of the network stack.
"""

from __future__ import annotations

import logging
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.checkpoints.finding import hub_errors
from nanogpt_cli.checkpoints.hugging_face.config import CONFIG_NAME, gpt2_settings, read_hf_config
from nanogpt_cli.checkpoints.hugging_face.folder import FOREIGN, INDEX_SUFFIX, WEIGHTS, read_index
from nanogpt_cli.errors import CheckpointError, name_some

TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)

CANDIDATES = tuple(name + suffix for name in WEIGHTS for suffix in ("", INDEX_SUFFIX))
"""Where weights may lie, in the order of preference."""

READ_SECONDS = 10
ANSWER_SECONDS = 25
"""How long the hub may take to say that it has a model: one read, and all of it (name lookup,
several addresses to try). After that there is no network as far as a user can tell."""

COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Fetched:
    """A model in the hub's cache.

    Args:
        folder: a Hugging Face folder, shared with every other user of the cache.
        commit: the revision that was resolved.
        notes: what a user should hear, such as a cached copy used without asking the hub.
    """

    folder: Path
    commit: str
    notes: tuple[str, ...] = ()


def fetch(repo_id: str, revision: str | None = None, *, offline: bool = False) -> Fetched:
    """Bring a GPT-2 from the hub into its cache, or find it there.

    config.json comes first, so a model of another type costs no download of weights. A file that
    is cut off is never kept under its name.

    Args:
        repo_id: "owner/name".
        revision: branch, tag or commit; None is the main branch.
        offline: use the cache alone, as HF_HUB_OFFLINE=1 does.

    Raises:
        CheckpointError: another architecture, or no weights that we read.
        NanoGPTError: no network, no such model or revision, no access, a download that broke off,
            or a cache that cannot be written.
    """
    model = _Model(repo_id, revision)
    with _quiet():
        if offline or _client_is_offline():
            return _offline(model)
        if revision is not None and COMMIT.fullmatch(revision):
            folder = _cached_folder(model)
            if folder is not None and _lacking(folder) is None:
                return Fetched(folder, revision)
        return _online(model)


@dataclass(frozen=True)
class _Model:
    repo_id: str
    revision: str | None

    def __str__(self) -> str:
        return repr(f"{self.repo_id}@{self.revision}" if self.revision else self.repo_id)

    def download(self, name: str, revision: str | None) -> Path | None:
        """Return the path of one file in the cache, downloaded if need be, or None if absent."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        try:
            return Path(
                hf_hub_download(self.repo_id, name, revision=revision, etag_timeout=READ_SECONDS)
            )
        except Exception as error:
            if isinstance(error, EntryNotFoundError) and not isinstance(
                error, LocalEntryNotFoundError
            ):
                return None
            explained = hub_errors.explain(error, str(self), name)
            if explained is None:
                raise
            raise explained from error


def _client_is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the client's log, and turn its warning of a full disk into an error."""
    from huggingface_hub.utils.logging import get_verbosity, set_verbosity

    level = get_verbosity()
    set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=hub_errors.FULL_DISK)
            yield
    finally:
        set_verbosity(level)


def _online(model: _Model) -> Fetched:
    try:
        _ask(model)
    except Exception as error:
        if hub_errors.is_unreachable(error):
            return _without_network(model, error)
        explained = hub_errors.explain(error, str(model), CONFIG_NAME)
        if explained is None:
            raise
        raise explained from error
    config = model.download(CONFIG_NAME, model.revision)
    if config is None:
        raise _lacks(model, CONFIG_NAME)
    folder, commit = config.parent, config.parent.name
    _check_config(model, folder)
    _download_weights(model, folder, commit)
    for name in TOKENIZER_FILES:
        _download_once(model, name, commit)
    return Fetched(folder, commit)


def _ask(model: _Model) -> None:
    """Ask the hub for the model once, without the client's minutes of retries."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError

    url = hf_hub_url(model.repo_id, CONFIG_NAME, revision=model.revision)
    failures: list[Exception] = []

    def ask() -> None:
        try:
            answer = get_hf_file_metadata(url, timeout=READ_SECONDS)
            if not answer.commit_hash:
                failures.append(ConnectionError("what answers is not the hub"))
        except EntryNotFoundError:
            pass
        except Exception as error:
            failures.append(error)

    # A thread, because looking up a name and trying each of its addresses has no other bound.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if thread.is_alive():
        raise TimeoutError(f"no answer in {ANSWER_SECONDS} s")
    if failures:
        raise failures[0]


def _check_config(model: _Model, folder: Path) -> None:
    config = read_hf_config(folder)
    if config is None:
        raise CheckpointError(
            f"{model} has a {CONFIG_NAME} that is not a model's",
            "look at its page on the hub: only models of GPT-2's kind can be read",
        )
    try:
        gpt2_settings(config)
    except CheckpointError as error:
        raise CheckpointError(f"cannot use {model}: {error.message}", error.hint) from error


def _download_weights(model: _Model, folder: Path, commit: str) -> None:
    for name in CANDIDATES:
        if not _download_once(model, name, commit):
            continue
        shards = read_index(folder / name) if name.endswith(INDEX_SUFFIX) else {}
        for shard in sorted(set(shards.values())):
            if not _download_once(model, shard, commit):
                raise _lacks(model, shard)
        return
    raise _lacks(model, "weights that are read here")


def _download_once(model: _Model, name: str, commit: str) -> bool:
    """Bring a file of a commit into the cache; False if the commit lacks it."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(model.repo_id, name, revision=commit)
    if cached is not None:
        return isinstance(cached, str)  # else the client's mark that the commit lacks the file
    return model.download(name, commit) is not None


def _lacks(model: _Model, what: str) -> CheckpointError:
    names = _list_files(model)
    foreign = [name for name in names if name in FOREIGN]
    found = f": it has {name_some(foreign or names)}" if names else ""
    return CheckpointError(
        f"{model} on the hub has no {what}{found}",
        hint=f"a model needs {CONFIG_NAME} and {' or '.join(WEIGHTS)}; "
        "a single checkpoint can be downloaded by hand and named by its path",
    )


def _list_files(model: _Model) -> list[str]:
    """Return the names of the model's files, for an error's text; none where that fails too."""
    from huggingface_hub import HfApi

    try:
        info = HfApi().model_info(model.repo_id, revision=model.revision, timeout=READ_SECONDS)
    except Exception:
        return []
    return [sibling.rfilename for sibling in info.siblings or []]


def _offline(model: _Model) -> Fetched:
    folder = _cached_folder(model)
    lacking = CONFIG_NAME if folder is None else _lacking(folder)
    if folder is None or lacking is not None:
        raise hub_errors.not_cached(str(model), lacking or CONFIG_NAME)
    _check_config(model, folder)
    return Fetched(folder, folder.name)


def _without_network(model: _Model, error: Exception) -> Fetched:
    folder = _cached_folder(model)
    if folder is None or _lacking(folder) is not None:
        raise hub_errors.unreachable(str(model), error) from error
    _check_config(model, folder)
    note = f"the hub cannot be reached: using the cached copy of {model}, commit {folder.name[:7]}"
    return Fetched(folder, folder.name, (note,))


def _cached_folder(model: _Model) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(model.repo_id, CONFIG_NAME, revision=model.revision)
    except HFValidationError:  # no cache can hold such a name; whoever asks the hub is told why
        return None
    return Path(config).parent if isinstance(config, str) else None


def _lacking(folder: Path) -> str | None:
    """Return the first file that a cached model still needs, or None if it is complete."""
    for name in CANDIDATES:
        if not (folder / name).is_file():
            continue
        shards = read_index(folder / name) if name.endswith(INDEX_SUFFIX) else {}
        return next((s for s in sorted(set(shards.values())) if not (folder / s).is_file()), None)
    return WEIGHTS[0]
