"""Which tokenizer belongs to a checkpoint: where it is looked for, and whether it fits.

`locate_tokenizer` reads as little as decides the question and imports nothing heavy;
`load_tokenizer` builds what it found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from nanogpt_cli.errors import TokenizerError, UsageError, did_you_mean
from nanogpt_cli.tokenizers import TOKENIZERS, char, gpt2
from nanogpt_cli.tokenizers.base import Found, Tokenizer, TokenizerKind, TokenizerMissingError
from nanogpt_cli.tokenizers.files import is_file, is_folder, read_head

MOST_PADDING = 127
"""Rows of a model beyond its tokenizer's ids that padding explains; more is a misfit."""

_WEIGHTS = (".pt", ".pth", ".ckpt", ".safetensors")
_NO_MODEL = re.compile(r"optim|schedul|scaler|rng_state|training_args|-\d+-of-\d+")
"""What a trainer leaves beside a model, and the shards of one."""

_HINT = (
    "name the table with --meta FILE or --tokenizer PATH, or give --tokenizer ids: "
    "numbers in and out"
)
_HINT_AFTER_A_NAME = (
    "leave --tokenizer out to look beside the checkpoint, or name the table with --meta FILE, "
    "or give --tokenizer ids"
)


def find_tokenizer(
    *,
    vocab_size: int,
    near: Path | None = None,
    dataset: object = None,
    tokenizer: str | None = None,
    meta: Path | None = None,
) -> tuple[Tokenizer, tuple[str, ...]]:
    """Return the tokenizer of a checkpoint, checked against its model, and notes for the user.

    Args:
        vocab_size: how many ids the model has.
        near: the folder that the checkpoint lies in, if it lies in one.
        dataset: what the checkpoint's configuration calls its dataset; not trusted.
        tokenizer: a name in TOKENIZERS, a folder, or a file of a known kind.
        meta: a `meta.pkl` by another name or place.

    Raises:
        TokenizerMissingError: none is found.
        TokenizerError: the one found is damaged or does not fit the model.
        UsageError: `tokenizer` and `meta` contradict each other, or name nothing.
    """
    try:
        found = locate_tokenizer(
            vocab_size=vocab_size, near=near, dataset=dataset, tokenizer=tokenizer, meta=meta
        )
        notes = found.notes + check_fit(found, vocab_size)
        return load_tokenizer(found, vocab_size), notes
    except TokenizerError as error:
        error.hint = error.hint or _HINT
        raise


def locate_tokenizer(
    *,
    vocab_size: int,
    near: Path | None = None,
    dataset: object = None,
    tokenizer: str | None = None,
    meta: Path | None = None,
) -> Found:
    """Return which tokenizer a checkpoint has, unloaded; arguments as in `find_tokenizer`.

    One that was only found, in a folder of several checkpoints, may belong to another of them: if
    it does not fit, it is passed over, unless nothing fits: then `check_fit` refuses it.

    Raises:
        TokenizerMissingError: none is found.
        TokenizerError: the one found is damaged.
        UsageError: `tokenizer` and `meta` contradict each other, or name nothing.
    """
    try:
        return _locate(vocab_size, near, dataset, tokenizer, meta)
    except TokenizerError as error:
        error.hint = error.hint or _HINT
        raise


def _locate(
    vocab_size: int, near: Path | None, dataset: object, tokenizer: str | None, meta: Path | None
) -> Found:
    if meta is not None:
        if tokenizer not in (None, char.KIND.name):
            raise UsageError(
                f"--tokenizer {tokenizer!r} and --meta contradict each other",
                "leave one of them out: --meta is the table of --tokenizer char",
            )
        return _look_at(meta, (char.KIND,), "--meta", "a meta.pkl, or a folder with one")
    kinds = {kind.name: kind for kind in TOKENIZERS}
    if tokenizer is None:
        return _look_everywhere(TOKENIZERS, vocab_size, near, dataset)
    if tokenizer not in kinds:
        names = f"a path, or {', '.join(kinds)}"
        meant = did_you_mean(tokenizer, kinds, f"give {names}")
        return _look_at(Path(tokenizer), TOKENIZERS, "--tokenizer", names, meant)
    if kinds[tokenizer].kept_in:
        return _look_everywhere((kinds[tokenizer],), None, near, dataset)
    return _examine_given(kinds[tokenizer], None)


def load_tokenizer(found: Found, vocab_size: int) -> Tokenizer:
    """Return the tokenizer that was found, for a model of `vocab_size` ids.

    Raises:
        TokenizerError: its files are damaged.
    """
    kind = next(kind for kind in TOKENIZERS if kind.name == found.name)
    return kind.load(found, vocab_size)


def check_fit(found: Found, vocab_size: int) -> tuple[str, ...]:
    """Return a note where the model has padding rows; nothing where the sizes are equal.

    Raises:
        TokenizerError: the table is larger than the model, or smaller by 128 ids or more.
    """
    if found.n_vocab is None or found.n_vocab == vocab_size:
        return ()
    if not _fits(found, vocab_size):
        raise TokenizerError(
            f"{_sizes(found, vocab_size)}: they do not belong together",
            _HINT if found.path else _HINT_AFTER_A_NAME,
        )
    if vocab_size - found.n_vocab == 1:
        return (f"id {found.n_vocab} is padding and is never drawn",)
    return (f"ids {found.n_vocab} to {vocab_size - 1} are padding and are never drawn",)


def _fits(found: Found, vocab_size: int) -> bool:
    return found.n_vocab is None or 0 <= vocab_size - found.n_vocab <= MOST_PADDING


def _sizes(found: Found, vocab_size: int) -> str:
    source = f"{found.path} ({found.name})" if found.path else f"the {found.name} tokenizer"
    return f"{source} has {found.n_vocab} ids and the model has {vocab_size}"


def _holds_several(folder: Path) -> bool:
    """Return whether a folder has several files that can each be a model, by their names."""
    try:
        names = [entry.name.lower() for entry in folder.iterdir()]
    except OSError:
        return False
    weights = [name for name in names if name.endswith(_WEIGHTS) and not _NO_MODEL.search(name)]
    return len(weights) > 1


def _look_everywhere(
    kinds: tuple[TokenizerKind, ...], vocab_size: int | None, near: Path | None, dataset: object
) -> Found:
    """Look beside the checkpoint, then in `data/`, then at the size if `vocab_size` is given."""
    looked_in: list[str] = []
    notes: list[str] = []
    misfit: Found | None = None
    is_shared = near is not None and _holds_several(near)
    for kind, folder, path in _places(kinds, near, dataset):
        if path is None:
            looked_in += [str(folder / name) for name in kind.kept_in]
            continue
        found = kind.examine(path)
        if found is None:
            looked_in.append(f"{path} (no table in it)")
            notes.append(f"{path} holds no table of tokens and was passed over")
        elif vocab_size is None or _fits(found, vocab_size) or not is_shared:
            return replace(found, looked_in=tuple(looked_in), notes=(*notes, *found.notes))
        else:
            misfit = misfit or found
            looked_in.append(f"{path} ({found.n_vocab} ids)")
            notes.append(f"{_sizes(found, vocab_size)}: it was passed over")
    if vocab_size is not None and 0 <= vocab_size - gpt2.N_VOCAB <= MOST_PADDING:
        return Found("gpt2", None, gpt2.N_VOCAB, tuple(looked_in), tuple(notes))
    if misfit is not None:
        return misfit
    wanted = "tokenizer" if len(kinds) > 1 else f"{kinds[0].name} tokenizer"
    size = "" if vocab_size is None else f" for the model's {vocab_size} ids"
    places = ", ".join(looked_in) or "no folder: the checkpoint lies in none"
    raise TokenizerMissingError(
        f"no {wanted} found{size}; looked for {places}", _HINT, tuple(looked_in)
    )


def _places(
    kinds: tuple[TokenizerKind, ...], near: Path | None, dataset: object
) -> Iterator[tuple[TokenizerKind, Path, Path | None]]:
    """Yield each kind, the folder where it may lie, and its path if it lies there."""
    here = Path.cwd()
    folder = None if near is None else here / near
    for kind in kinds:
        if folder is not None and kind.kept_in:
            yield kind, folder, kind.locate(folder)
    name = _sane_dataset(dataset)
    if name is None or char.KIND not in kinds:
        return
    parents = [] if folder is None else [folder.resolve(), *folder.resolve().parents]
    for parent in dict.fromkeys([here, *parents]):
        data = parent / "data" / name
        yield char.KIND, data, char.KIND.locate(data)


def _sane_dataset(dataset: object) -> PurePosixPath | None:
    """Return a dataset's name if it stays inside `data/`; a file may say anything."""
    if not isinstance(dataset, str) or not dataset or any(sign in dataset for sign in "\0\\:"):
        return None
    name = PurePosixPath(dataset)
    return None if name.is_absolute() or ".." in name.parts or not name.parts else name


def _look_at(
    path: Path,
    kinds: tuple[TokenizerKind, ...],
    option: str,
    accepted: str,
    meant: str | None = None,
) -> Found:
    """Return what a path given by the user is."""
    path = Path.cwd() / path
    if is_folder(path):
        for kind in kinds:
            table = kind.locate(path)
            if table is not None:
                return _examine_given(kind, table)
        kept = ", ".join(name for kind in kinds for name in kind.kept_in)
        raise TokenizerError(f"{path} has no tokenizer in it: looked for {kept}", _HINT)
    if not is_file(path):
        raise UsageError(
            f"nothing that {option} can read lies at {path}", meant or f"give {accepted}"
        )
    if len(kinds) == 1:
        return _examine_given(kinds[0], path)
    head = read_head(path)
    for kind in kinds:
        if kind.sniff(path, head):
            return _examine_given(kind, path)
    raise TokenizerError(f"{path} is no tokenizer of a kind known here", f"give {accepted}")


def _examine_given(kind: TokenizerKind, path: Path | None) -> Found:
    """Return what lies where the user pointed, which must decide the question."""
    found = kind.examine(path)
    if found is None:
        raise TokenizerError(f"{path} holds no table of tokens", _HINT)
    return found
