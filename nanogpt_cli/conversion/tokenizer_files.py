"""The tokenizer that travels with a model: which files, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.checkpoints.finding.hub import TOKENIZER_FILES
from nanogpt_cli.conversion.merges import (
    find_merges,
    merges_txt,
    spell,
    tokenizer_config,
    vocab_json,
)
from nanogpt_cli.conversion.report import Target
from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.tokenizers.base import END_OF_TEXT, Found
from nanogpt_cli.tokenizers.files import read_bytes
from nanogpt_cli.tokenizers.gpt2 import END_OF_TEXT_ID, RANKS_PATH, unpack_ranks
from nanogpt_cli.tokenizers.hf_files import read_hf
from nanogpt_cli.tokenizers.ranks import parse_ranks, split_ranks
from nanogpt_cli.tokenizers.search import check_fit, load_tokenizer, locate_tokenizer

UNKNOWN = "no tokenizer is known for this model, so none goes along"


@dataclass(frozen=True)
class TravellingTokenizer:
    """What goes along with a converted model.

    Args:
        kind: its entry in TOKENIZERS, or None where none is known.
        n_vocab: one more than its highest id, or None.
        end_of_text: id of the end-of-text token, or None; looked up for transformers alone.
        files: names and contents of what is written beside the weights.
        notes: what a user should hear.
    """

    kind: str | None = None
    n_vocab: int | None = None
    end_of_text: int | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def find_source_tokenizer(
    checkpoint: Checkpoint, *, tokenizer: str | None = None, meta: Path | None = None
) -> tuple[Found | None, tuple[str, ...]]:
    """Return the tokenizer of a checkpoint, or None, and notes.

    One that is missing, damaged or does not fit is a note, unless the user named it.

    Raises:
        NanoGPTError: the one that was named cannot be used.
    """
    vocab_size = checkpoint.config.vocab_size
    try:
        found = locate_tokenizer(
            vocab_size=vocab_size,
            near=checkpoint.folder,
            dataset=checkpoint.train_config.get("dataset"),
            tokenizer=tokenizer,
            meta=meta,
        )
        check_fit(found, vocab_size)
    except TokenizerError as error:
        if tokenizer is not None or meta is not None:
            raise
        return None, (f"{UNKNOWN}: {error.message}",)
    return found, found.notes


def plan_tokenizer(
    found: Found | None, checkpoint: Checkpoint, target: Target, output: Path
) -> TravellingTokenizer:
    """Return what of a tokenizer goes along to `output`.

    A Hugging Face folder gets what transformers loads; any other output gets the files it would
    not be found without.

    Raises:
        TokenizerError: the tokenizer's files are damaged.
    """
    if found is None:
        return TravellingTokenizer()
    if found.n_vocab is None:
        return TravellingTokenizer(found.name)
    if target == "hf":
        known = TravellingTokenizer(found.name, found.n_vocab, _end_of_text(found))
        return _for_transformers(known, found, checkpoint.config.block_size)
    known = TravellingTokenizer(found.name, found.n_vocab)
    dataset = checkpoint.train_config.get("dataset")
    if _is_found_there(found, output.parent, checkpoint.config.vocab_size, dataset):
        return known
    files = _needed_files(found)
    there = {name: output.parent / name for name in files}
    lacking = {
        name: content
        for name, content in files.items()
        if not (there[name].is_file() and there[name].read_bytes() == content)
    }
    return replace(known, files=lacking)


def _end_of_text(found: Found) -> int | None:
    if found.name == "gpt2":
        return END_OF_TEXT_ID
    if found.name == "hf" and found.path is not None:
        return read_hf(found.path).end_of_text
    return load_tokenizer(found, found.n_vocab or 0).end_of_text


def _for_transformers(
    known: TravellingTokenizer, found: Found, block_size: int
) -> TravellingTokenizer:
    ranks = _ranks(found)
    if ranks is None:
        files = _own_files(found)
        if found.name != "char":
            return replace(known, files=files)
        note = (
            "transformers has no tokenizer for a table of characters: meta.pkl goes along, and "
            "nanogpt reads it"
        )
        return replace(known, files=files, notes=(note,))
    merges = find_merges(ranks)
    if merges is None:
        note = "transformers cannot load this table of ranks, which is no product of merges"
        return replace(known, files=_own_files(found), notes=(note,))
    return replace(
        known,
        files={
            "vocab.json": vocab_json(ranks, known.end_of_text),
            "merges.txt": merges_txt(merges),
            "tokenizer_config.json": tokenizer_config(
                block_size, has_end_of_text=known.end_of_text is not None
            ),
        },
    )


def _ranks(found: Found) -> dict[bytes, int] | None:
    """Return the byte-pair ranks of a tokenizer that is made of them."""
    if found.name == "gpt2":
        return _gpt2_ranks()
    if found.name == "tiktoken":
        assert found.path is not None, "a file of ranks is known by its path"
        return parse_ranks(read_bytes(found.path), str(found.path))
    return None


def _gpt2_ranks() -> dict[bytes, int]:
    return split_ranks(unpack_ranks(read_bytes(RANKS_PATH)))


def _own_files(found: Found) -> dict[str, bytes]:
    """Return the files that a tokenizer is kept in, as they are."""
    if found.path is None:
        return {}
    if found.name == "char" or (found.name == "gpt2" and found.path.suffix == ".pkl"):
        return {"meta.pkl": read_bytes(found.path)}
    if found.name == "hf":
        paths = [found.path.parent / name for name in TOKENIZER_FILES]
        return {path.name: read_bytes(path) for path in paths if path.is_file()}
    return {found.path.name: read_bytes(found.path)}


def _needed_files(found: Found) -> dict[str, bytes]:
    """Return the files that a tokenizer is read from: tokenizer.json holds vocab and merges."""
    files = _own_files(found)
    if "tokenizer.json" in files:
        return {name: files[name] for name in files if name not in ("vocab.json", "merges.txt")}
    return files


def _is_found_there(found: Found, folder: Path, vocab_size: int, dataset: object) -> bool:
    """Return whether a checkpoint in `folder` would be given this tokenizer anyway."""
    try:
        there = locate_tokenizer(vocab_size=vocab_size, near=folder, dataset=dataset)
    except TokenizerError:
        return False
    if there.name == "gpt2" and (found.name == "gpt2" or _is_gpt2s(found)):
        return True
    if there.path is None or found.path is None:
        return False
    return there.path.resolve() == found.path.resolve()


def _is_gpt2s(found: Found) -> bool:
    """Return whether a Hugging Face tokenizer has GPT-2's own tokens under GPT-2's ids."""
    if found.name != "hf" or found.path is None:
        return False
    files = read_hf(found.path)
    tokens = files.vocab | {token: added.number for token, added in files.added.items()}
    expected = {spell(token): rank for token, rank in _gpt2_ranks().items()}
    return tokens == expected | {END_OF_TEXT: END_OF_TEXT_ID}
