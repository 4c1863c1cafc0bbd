"""GPT-2's byte-pair encoding, from the ranks inside the package: nothing is ever fetched."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.tokenizers.base import Found, Tokenizer, TokenizerKind
from nanogpt_cli.tokenizers.files import read_bytes
from nanogpt_cli.tokenizers.ranks import split_ranks

RANKS_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
"""Of the unpacked ranks; the value that tiktoken pins for the same file."""

END_OF_TEXT_ID = 50256

N_VOCAB = 50257

RANKS_PATH = Path(__file__).parent.parent / "assets" / "gpt2.tiktoken.gz"


def unpack_ranks(packed: bytes) -> bytes:
    """Return the `.tiktoken` text of GPT-2's ranks.

    Raises:
        TokenizerError: `packed` is damaged, with the hash it should have and the one it has.
    """
    hint = "the installation is damaged: install nanogpt-cli again"
    try:
        text = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error) as error:
        raise TokenizerError(f"the bundled GPT-2 ranks do not unpack: {error}", hint) from error
    found = hashlib.sha256(text).hexdigest()
    if found != RANKS_SHA256:
        raise TokenizerError(
            f"the bundled GPT-2 ranks have sha256 {found}: it must be {RANKS_SHA256}", hint
        )
    return text


def load_gpt2() -> Tokenizer:
    """Return GPT-2's tokenizer, built from the bundled ranks.

    Raises:
        TokenizerError: the bundled file is missing or damaged.
    """
    from nanogpt_cli.tokenizers.bpe import RankTokenizer

    text = unpack_ranks(read_bytes(RANKS_PATH))
    return RankTokenizer("gpt2", "bundled", split_ranks(text), END_OF_TEXT_ID)


def _examine(path: Path | None) -> Found:
    return Found("gpt2", path, N_VOCAB)


def _load(found: Found, vocab_size: int) -> Tokenizer:  # noqa: ARG001
    return load_gpt2()


KIND = TokenizerKind(
    name="gpt2",
    summary="GPT-2's byte-pair encoding, bundled",
    kept_in=(),
    examine=_examine,
    load=_load,
)
