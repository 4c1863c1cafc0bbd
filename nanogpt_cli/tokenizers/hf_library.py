"""A Hugging Face tokenizer, encoding by the `tokenizers` library. The heavy half of `hf`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.tokenizers.base import decode_ids, missing_id, replace_surrogates, require_bytes
from nanogpt_cli.tokenizers.hf_files import HfFiles
from nanogpt_cli.tokenizers.hf_pieces import BYTE_LEVEL, GLYPHS, Pieces, choose_pieces


class HfTokenizer:
    """A tokenizer as its folder describes it.

    A text gets no tokens that it does not hold: no template adds any at its ends.

    Raises:
        TokenizerError: the library cannot build it, or it is of a kind not known here.
    """

    name = "hf"

    def __init__(self, files: HfFiles) -> None:
        self.source = str(files.path)
        self.end_of_text = files.end_of_text
        pieces = _choose(files)
        self.separator = pieces.separator
        self.is_bpe = pieces.is_bpe
        self._to_bytes = pieces.to_bytes
        self._added = {entry.number: token for token, entry in files.added.items()}
        self._plain_added = [token for token, entry in files.added.items() if not entry.special]
        self._library = _build(files)
        self._pieces = {number: token for token, number in _numbered(self._library).items()}
        self._known = sorted(self._pieces)
        self.n_vocab = self._known[-1] + 1
        self._lacking = _lacking_bytes(files) if pieces.is_byte_level else frozenset()

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the ids of `text`.

        Raises:
            UsageError: characters that a byte-level table cannot spell, all of them listed.
            TokenizerError: the library fails on the text.
        """
        text, _ = replace_surrogates(text)
        if self._lacking:
            require_bytes(self, self._without_added(text, special), self._lacking)
        self._library.encode_special_tokens = not special
        with _telling(self.source):
            ids: list[int] = self._library.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`."""
        return decode_ids(self, ids)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token.

        Raises:
            TokenizerError: no such id.
        """
        if token in self._added:
            return replace_surrogates(self._added[token])[0].encode()
        if token not in self._pieces:
            raise missing_id(self, token)
        return self._to_bytes(self._pieces[token])

    def known_ids(self) -> Sequence[int]:
        """Return every id of the table, ascending."""
        whole = len(self._known) == self.n_vocab
        return range(self.n_vocab) if whole else self._known

    def _without_added(self, text: str, special: bool) -> str:
        for token in self._added.values() if special else self._plain_added:
            text = text.replace(token, "")
        return text


@contextmanager
def _telling(source: object) -> Iterator[None]:
    """Tell the library's failures, which have no type of their own, as errors of its file."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TokenizerError(f"{source} is no tokenizer that works: {error}") from error
        raise


def _choose(files: HfFiles) -> Pieces:
    return BYTE_LEVEL if files.pipeline is None else choose_pieces(files.pipeline, str(files.path))


def _build(files: HfFiles) -> tokenizers.Tokenizer:
    """Return the library's tokenizer, with every added token under the id its file gives."""
    with _telling(files.path):
        library = _build_tables(files) if files.pipeline is None else _build_pipeline(files)
        library.no_truncation()
        library.no_padding()
        for token, entry in sorted(files.added.items(), key=lambda item: item[1].number):
            flagged = tokenizers.AddedToken(token, special=entry.special, **entry.flags)
            (library.add_special_tokens if entry.special else library.add_tokens)([flagged])
    for token, entry in files.added.items():
        number = library.token_to_id(token)
        if number != entry.number:
            raise TokenizerError(
                f"{files.path}: the added token {token!r} should have id {entry.number}, "
                f"and comes out as {number}"
            )
    return library


def _build_tables(files: HfFiles) -> tokenizers.Tokenizer:
    vocab = files.vocab | {token: entry.number for token, entry in files.added.items()}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=files.merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=files.add_prefix_space)
    library.decoder = decoders.ByteLevel()
    return library


def _build_pipeline(files: HfFiles) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(files.pipeline))


def _numbered(library: tokenizers.Tokenizer) -> dict[str, int]:
    vocab: dict[str, int] = library.get_vocab(with_added_tokens=True)
    return vocab


def _lacking_bytes(files: HfFiles) -> frozenset[int]:
    """Return the bytes that the library would drop from a text without a word."""
    model = {} if files.pipeline is None else files.pipeline["model"]
    if isinstance(model, dict) and model.get("unk_token") is not None:
        return frozenset()
    return frozenset(byte for glyph, byte in GLYPHS.items() if glyph not in files.vocab)
