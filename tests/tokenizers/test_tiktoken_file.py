"""Files of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from token_tables import SMALL_RANKS, gpt2_ranks, write_ranks

from nanogpt_cli.errors import TokenizerError, UsageError
from nanogpt_cli.tokenizers import tiktoken_file
from nanogpt_cli.tokenizers.base import Tokenizer, start_id
from nanogpt_cli.tokenizers.ranks import join_ranks, parse_ranks


def load(path: Path) -> Tokenizer:
    found = tiktoken_file.KIND.examine(path)
    assert found is not None
    tokenizer = tiktoken_file.KIND.load(found, 0)
    assert tokenizer.n_vocab == found.n_vocab
    return tokenizer


def test_small_table(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "demo.tiktoken", SMALL_RANKS)
    tokenizer = load(path)
    assert tokenizer.name == "tiktoken"
    assert tokenizer.source == str(path)
    assert tokenizer.n_vocab == 261
    assert tokenizer.known_ids() == range(261)
    assert tokenizer.end_of_text is None
    assert tokenizer.is_bpe
    assert tokenizer.encode("the thé\n\n") == [257, 32, 256, 259, 260]
    assert tokenizer.decode([257, 258, 260]) == "the the\n\n"
    assert tokenizer.token_bytes(259) == b"\xc3\xa9"
    assert start_id(tokenizer) == 10


def test_without_end_of_text_its_name_is_text(tmp_path: Path) -> None:
    tokenizer = load(write_ranks(tmp_path / "demo.tiktoken", SMALL_RANKS))
    assert tokenizer.encode("<|endoftext|>") == list(b"<|endoftext|>")


@pytest.mark.parametrize("rewrite", [bytes, lambda text: text.replace(b"\n", b"\r\n") + b"\r\n"])
def test_gpt2s_ranks_have_end_of_text(tmp_path: Path, rewrite: object) -> None:
    assert callable(rewrite)
    path = tmp_path / "any.tiktoken"
    path.write_bytes(rewrite(join_ranks(gpt2_ranks())))
    tokenizer = load(path)
    assert tokenizer.end_of_text == 50256
    assert tokenizer.n_vocab == 50257
    assert tokenizer.encode("hello world<|endoftext|>") == [31373, 995, 50256]
    assert start_id(tokenizer) == 50256


def test_as_many_ranks_as_gpt2_are_not_gpt2s(tmp_path: Path) -> None:
    ranks = dict(gpt2_ranks())
    swapped = list(ranks)[-2:]
    ranks[swapped[0]], ranks[swapped[1]] = ranks[swapped[1]], ranks[swapped[0]]
    tokenizer = load(write_ranks(tmp_path / "any.tiktoken", ranks))
    assert tokenizer.end_of_text is None
    assert tokenizer.n_vocab == 50256


def test_parsing_undoes_joining() -> None:
    assert parse_ranks(join_ranks(gpt2_ranks()), "here") == gpt2_ranks()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"YQ== 0\nYg==\n", "line 2: 'Yg==' is not base64, a space and a rank"),
        (b"YQ== 0\n\nYg== 1 2\n", "line 3: 'Yg== 1 2' is not base64, a space and a rank"),
        (b"Y 0\n", "line 1: 'Y' is no base64"),
        (b"Y!Q== 0\n", "line 1: 'Y!Q==' is no base64"),
        (b"YQ== 0\nYg== -1\n", "line 2: rank '-1' is no number from 0 to 16777215"),
        (b"YQ== x\n", "line 1: rank 'x' is no number from 0 to 16777215"),
        (b"YQ== 16777216\n", "line 1: rank '16777216' is no number from 0 to 16777215"),
        (b"YQ== " + b"9" * 5000, f"line 1: rank '{'9' * 40}' is no number from 0 to 16777215"),
        (b"YQ== 0\nYg== 1\nYw== 0\n", "line 3: rank 0 is on line 1 too"),
        (b"YQ== 0\nYg== 1\nYQ== 2\n", "line 3: token b'a' is on line 1 too"),
        (b"= 0\n", "line 1: '=' is no base64"),
        (b"\xff\xfe 0\n", "line 1: '\\\\xff\\\\xfe' is no base64"),
    ],
)
def test_malformed(text: bytes, message: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        parse_ranks(text, "a.tiktoken")
    assert caught.value.message == f"a.tiktoken, {message}"


@pytest.mark.parametrize("text", [b"", b"\n\n"])
def test_empty(text: bytes) -> None:
    with pytest.raises(TokenizerError, match=r"^a\.tiktoken holds no ranks$"):
        parse_ranks(text, "a.tiktoken")


def test_bytes_without_a_token(tmp_path: Path) -> None:
    ranks = {bytes([byte]): place for place, byte in enumerate(b"\n abcdet")} | {b"ab": 8}
    tokenizer = load(write_ranks(tmp_path / "few.tiktoken", ranks))
    assert tokenizer.encode("abc a") == [8, 4, 1, 2]
    with pytest.raises(UsageError) as caught:
        tokenizer.encode("abz é!z")
    assert caught.value.message == (
        "3 characters of the prompt cannot be spelled with the 9 tokens of "
        f"{tmp_path / 'few.tiktoken'}: 'z' U+007A, 'é' U+00E9, '!' U+0021"
    )


def test_holes_in_the_ranks(tmp_path: Path) -> None:
    tokenizer = load(write_ranks(tmp_path / "holes.tiktoken", SMALL_RANKS | {b"zz": 300}))
    assert tokenizer.n_vocab == 301
    assert list(tokenizer.known_ids()) == [*range(261), 300]
    assert tokenizer.encode("zz") == [300]
    with pytest.raises(TokenizerError, match="no token has id 299"):
        tokenizer.token_bytes(299)
