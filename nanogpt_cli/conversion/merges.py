"""From byte-pair ranks to the tables that transformers wants: vocab.json and merges.txt.

A table of ranks names each token; the pair of tokens that it was merged from is found by
encoding the token's own bytes with the ranks before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from nanogpt_cli.tokenizers.base import END_OF_TEXT
from nanogpt_cli.tokenizers.hf_pieces import GLYPHS

MERGES_VERSION = "#version: 0.2"
"""The first line of every merges.txt; readers pass over it."""

_GLYPH_OF = {byte: glyph for glyph, byte in GLYPHS.items()}


def spell(token: bytes) -> str:
    """Return a token in the byte-level alphabet, a character a byte."""
    return "".join(_GLYPH_OF[byte] for byte in token)


def find_merges(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]] | None:
    """Return the pair that each longer token was merged from, in the order of the merges.

    None where some token cannot be made of two earlier ones, so that no list of merges gives
    what the ranks give.
    """
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) == 1:
            continue
        parts = _parts_before(ranks, token, rank)
        if len(parts) != 2 or not all(part in ranks for part in parts):
            return None
        merges.append((parts[0], parts[1]))
    return merges


def _parts_before(ranks: Mapping[bytes, int], token: bytes, rank: int) -> list[bytes]:
    """Return `token` encoded with the ranks below `rank`: lowest first, leftmost among equals."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [
            (ranks.get(parts[i] + parts[i + 1], rank), i)
            for i in range(len(parts) - 1)
        ]  # fmt: skip
        lowest, at = min(pairs)
        if lowest >= rank:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def vocab_json(ranks: Mapping[bytes, int], end_of_text: int | None) -> bytes:
    """Return a vocab.json: every token in the byte-level alphabet, by id."""
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    vocab = {spell(token): rank for token, rank in ordered}
    if end_of_text is not None:
        vocab[END_OF_TEXT] = end_of_text
    return json.dumps(vocab, ensure_ascii=False).encode()


def merges_txt(merges: list[tuple[bytes, bytes]]) -> bytes:
    """Return a merges.txt: a pair a line, the first merge first."""
    lines = [MERGES_VERSION, *(f"{spell(left)} {spell(right)}" for left, right in merges)]
    return ("\n".join(lines) + "\n").encode()


def tokenizer_config(block_size: int, *, has_end_of_text: bool) -> bytes:
    """Return a tokenizer_config.json for GPT-2's kind of byte-pair encoding.

    Where there is no end-of-text token its roles are null, or transformers would add one, with
    an id that the model lacks.
    """
    role = END_OF_TEXT if has_end_of_text else None
    settings = {
        "tokenizer_class": "GPT2Tokenizer",
        "model_max_length": block_size,
        "add_prefix_space": False,
        "bos_token": role,
        "eos_token": role,
        "unk_token": role,
    }
    return (json.dumps(settings, indent=2) + "\n").encode()
