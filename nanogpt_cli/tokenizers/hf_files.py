"""The files of a Hugging Face tokenizer, read and checked: tables and tokens added to them.

Standard library only; `hf_library` builds what encodes from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.tokenizers.base import END_OF_TEXT
from nanogpt_cli.tokenizers.files import is_file, read_bytes, read_json_object
from nanogpt_cli.tokenizers.ranks import MOST_IDS


@dataclass(frozen=True)
class AddedToken:
    """A token that is matched in a text before anything else.

    Args:
        number: its id.
        special: whether `special=False` makes it plain text.
        flags: how it is matched: `lstrip`, `rstrip`, `normalized`, `single_word`.
    """

    number: int
    special: bool
    flags: Mapping[str, bool]


@dataclass(frozen=True)
class HfFiles:
    """A Hugging Face tokenizer on disk.

    Args:
        path: `tokenizer.json` or `vocab.json`.
        pipeline: the whole of `tokenizer.json`, or None where there are tables only.
        vocab: token to id, without added tokens.
        merges: of `merges.txt`, in order; empty where `pipeline` has them.
        added: added tokens by their text.
        end_of_text: id of the end-of-text token, or None.
        add_prefix_space: whether a text gets a space in front.
    """

    path: Path
    pipeline: dict[str, object] | None
    vocab: dict[str, int]
    merges: list[tuple[str, str]]
    added: dict[str, AddedToken]
    end_of_text: int | None
    add_prefix_space: bool

    @property
    def n_vocab(self) -> int:
        """One more than the highest id."""
        numbers = [*self.vocab.values(), *(token.number for token in self.added.values())]
        return max(numbers) + 1


def read_hf(path: Path) -> HfFiles:
    """Read the tokenizer whose `tokenizer.json` or `vocab.json` is `path`.

    Raises:
        TokenizerError: a file is missing or damaged, or an id cannot be meant.
    """
    content = read_json_object(path)
    settings = _read_optional(path.parent / "tokenizer_config.json")
    pipeline = content if "model" in content and not isinstance(content["model"], int) else None
    vocab = _check_vocab(content if pipeline is None else _vocab_of(content, path), path)
    merges = read_merges(path.parent / "merges.txt") if pipeline is None else []
    added = _added_tokens(path.parent, pipeline or {}, settings, vocab)
    if not vocab and not added:
        raise TokenizerError(f"{path} has no tokens")
    return HfFiles(
        path=path,
        pipeline=pipeline,
        vocab=vocab,
        merges=merges,
        added=added,
        end_of_text=_find_end_of_text(path.parent, settings, vocab, added),
        add_prefix_space=settings.get("add_prefix_space") is True,
    )


def read_merges(path: Path) -> list[tuple[str, str]]:
    """Return the pairs of a `merges.txt`, in order.

    Raises:
        TokenizerError: it is missing, no UTF-8, or a line is no pair.
    """
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path} is no UTF-8: {error}") from error
    pairs = []
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.rstrip("\r").split(" ")
        if words == [""] or line.startswith("#version"):
            continue
        if len(words) != 2 or not all(words):
            raise TokenizerError(f"{path}, line {number}: {line[:40]!r} is no pair of tokens")
        pairs.append((words[0], words[1]))
    return pairs


def _read_optional(path: Path) -> dict[str, object]:
    return read_json_object(path) if is_file(path) else {}


def _vocab_of(content: dict[str, object], path: Path) -> object:
    """Return the table inside a `tokenizer.json`; a unigram model lists [token, score]."""
    model = content["model"]
    if not isinstance(model, dict):
        raise TokenizerError(f"{path}: its model is no object")
    vocab = model.get("vocab")
    if not isinstance(vocab, list):
        return vocab
    if not all(isinstance(row, list) and row and isinstance(row[0], str) for row in vocab):
        raise TokenizerError(f"{path}: its vocab is no list of tokens and scores")
    return {row[0]: number for number, row in enumerate(vocab)}


def _check_vocab(vocab: object, path: Path) -> dict[str, int]:
    if not isinstance(vocab, dict):
        raise TokenizerError(f"{path}: its vocab is no object of tokens and ids")
    for token, number in vocab.items():
        _check_id(number, token, path)
    if len(set(vocab.values())) != len(vocab):
        raise TokenizerError(f"{path}: two tokens have one id")
    return vocab


def _check_id(number: object, token: object, path: Path) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < MOST_IDS:
        raise TokenizerError(
            f"{path}: the id of {token!r} is {number!r}: ids are integers from 0 to {MOST_IDS - 1}"
        )
    return number


def _added_tokens(
    folder: Path, pipeline: dict[str, object], settings: dict[str, object], vocab: dict[str, int]
) -> dict[str, AddedToken]:
    """Return the added tokens of every file that may name some; the later ones say more."""
    added: dict[str, AddedToken] = {}
    path = folder / "added_tokens.json"
    for token, number in _read_optional(path).items():
        added[token] = AddedToken(_check_id(number, token, path), False, {})
    for names in (settings, _read_optional(folder / "special_tokens_map.json")):
        for token, flags in _special_names(names):
            if token in added or token in vocab:
                number = added[token].number if token in added else vocab[token]
                added[token] = AddedToken(number, True, flags)
    if END_OF_TEXT in vocab and not pipeline:
        added.setdefault(END_OF_TEXT, AddedToken(vocab[END_OF_TEXT], True, {}))
    by_id = settings.get("added_tokens_decoder")
    for key, entry in by_id.items() if isinstance(by_id, dict) else ():
        number = int(key) if key.isdecimal() and len(key) <= 9 else key
        added.update([_read_added(entry, number, folder / "tokenizer_config.json")])
    listed = pipeline.get("added_tokens")
    for entry in listed if isinstance(listed, list) else ():
        number = entry.get("id") if isinstance(entry, dict) else None
        added.update([_read_added(entry, number, folder / "tokenizer.json")])
    return added


def _special_names(named: dict[str, object]) -> Iterator[tuple[str, dict[str, bool]]]:
    """Yield the tokens that a file gives a role, such as `eos_token`, and how they match."""
    for role, value in named.items():
        if not role.endswith(("_token", "_special_tokens")):
            continue
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, str):
                yield entry, {}
            elif isinstance(entry, dict) and isinstance(entry.get("content"), str):
                yield entry["content"], _flags(entry)


def _flags(entry: dict[str, object]) -> dict[str, bool]:
    names = ("lstrip", "rstrip", "normalized", "single_word")
    return {name: value for name in names if isinstance(value := entry.get(name), bool)}


def _read_added(entry: object, number: object, path: Path) -> tuple[str, AddedToken]:
    if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
        raise TokenizerError(f"{path}: the added token {number!r} has no content")
    token = entry["content"]
    special = entry.get("special") is True
    return token, AddedToken(_check_id(number, token, path), special, _flags(entry))


def _find_end_of_text(
    folder: Path, settings: dict[str, object], vocab: dict[str, int], added: dict[str, AddedToken]
) -> int | None:
    """Return the id of the token that ends a text, as the folder's files name it."""
    ids = vocab | {token: entry.number for token, entry in added.items()}
    for named in (settings, _read_optional(folder / "special_tokens_map.json")):
        token = named.get("eos_token")
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str) and token in ids:
            return ids[token]
    number = _read_optional(folder / "config.json").get("eos_token_id")
    if isinstance(number, list) and number:
        number = number[0]
    if type(number) is int and number in ids.values():
        return number
    return ids.get(END_OF_TEXT)
