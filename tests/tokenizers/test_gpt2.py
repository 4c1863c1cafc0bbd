"""GPT-2's encoding from the ranks inside the package."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from token_tables import gpt2_ranks, gpt2_tokenizer

from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.tokenizers import gpt2
from nanogpt_cli.tokenizers.base import replace_surrogates
from nanogpt_cli.tokenizers.bpe import RankTokenizer

PLAIN_SPLIT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

ALONE = """
import socket, sys

def refuse(*args, **kwargs):
    raise OSError("no network here")

socket.socket.connect = refuse
socket.create_connection = socket.getaddrinfo = refuse
from nanogpt_cli.tokenizers.gpt2 import load_gpt2

print(load_gpt2().encode(sys.argv[1]))
"""


@cache
def plain_gpt2() -> tiktoken.Encoding:
    return tiktoken.Encoding(
        "plain",
        pat_str=PLAIN_SPLIT,
        mergeable_ranks=gpt2_ranks(),
        special_tokens={"<|endoftext|>": 50256},
    )


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("hello world", [31373, 995]),
        ("0 00 000 0000", [15, 3571, 12877, 17643]),
        ("I'm he'd it's", [40, 1101, 339, 1549, 340, 338]),
        ("don't we'll they've you're", [9099, 470, 356, 1183, 484, 1053, 345, 821]),
        ("", []),
        ("\n", [198]),
        ("\n\n", [628]),
        (" ", [220]),
        ("<|endoftext|>", [50256]),
        ("a<|endoftext|>b", [64, 50256, 65]),
    ],
)
def test_known_vectors(text: str, ids: list[int]) -> None:
    assert gpt2_tokenizer().encode(text) == ids
    assert gpt2_tokenizer().decode(ids) == text


def test_attributes() -> None:
    tokenizer = gpt2_tokenizer()
    assert tokenizer.name == "gpt2"
    assert tokenizer.source == "bundled"
    assert tokenizer.n_vocab == 50257
    assert tokenizer.end_of_text == 50256
    assert tokenizer.separator == b""
    assert tokenizer.is_bpe
    assert tokenizer.known_ids() == range(50257)


def test_end_of_text_can_be_plain_text() -> None:
    ids = gpt2_tokenizer().encode("<|endoftext|>", special=False)
    assert 50256 not in ids
    assert gpt2_tokenizer().decode(ids) == "<|endoftext|>"


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_text_survives(text: str) -> None:
    tokenizer = gpt2_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from(list(" \t\n\u00a0\u2003a1!'s<|>é"))))
def test_split_is_gpt2s(text: str) -> None:
    assert gpt2_tokenizer().encode(text, special=False) == plain_gpt2().encode_ordinary(text)


@pytest.mark.parametrize("after", ["", "a", " a", " ", "<|endoftext|>", "<|endoftext|>a"])
@pytest.mark.parametrize("before", ["", "a", "a\t", "<|endoftext|>"])
@pytest.mark.parametrize("special", [True, False])
def test_long_blanks_encode_as_uncut(before: str, after: str, special: bool) -> None:
    text = before + "\n" * 60_000 + after
    allowed = {"<|endoftext|>"} if special else set()
    whole = plain_gpt2().encode(text, allowed_special=allowed, disallowed_special=())
    assert gpt2_tokenizer().encode(text, special=special) == whole


def test_blanks_without_end_do_not_end_the_process() -> None:
    ids = gpt2_tokenizer().encode("a" + " " * 1_200_000 + "b")
    assert ids == [64] + [220] * 1_199_999 + [275]


def test_lone_surrogates_are_replaced() -> None:
    assert replace_surrogates("a\ud800b\udcffc") == ("a\ufffdb\ufffdc", 2)
    assert replace_surrogates("a\U0001f600") == ("a\U0001f600", 0)
    assert gpt2_tokenizer().encode("a\ud800b") == gpt2_tokenizer().encode("a\ufffdb")


def test_half_a_character_is_one_replacement() -> None:
    ids = gpt2_tokenizer().encode("\U0001f600")
    assert b"".join(map(gpt2_tokenizer().token_bytes, ids)) == "\U0001f600".encode()
    assert gpt2_tokenizer().decode(ids[:1]) == "\ufffd"


@pytest.mark.parametrize("token", [-1, 50257, 2**70])
def test_missing_id(token: int) -> None:
    with pytest.raises(TokenizerError) as caught:
        gpt2_tokenizer().token_bytes(token)
    assert caught.value.message == f"no token has id {token}: bundled has ids 0 to 50256"


def test_another_hash_is_refused_with_both() -> None:
    text = gzip.decompress(gpt2.RANKS_PATH.read_bytes())
    with pytest.raises(TokenizerError) as caught:
        gpt2.unpack_ranks(gzip.compress(text.replace(b"IQ== 0", b"IQ== 1")))
    assert gpt2.RANKS_SHA256 in caught.value.message
    assert "have sha256 " in caught.value.message
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("cut", [0, 10, 1000])
def test_damaged_asset(cut: int) -> None:
    with pytest.raises(TokenizerError, match=r"do not unpack|have sha256"):
        gpt2.unpack_ranks(gpt2.RANKS_PATH.read_bytes()[:cut])


def test_licence_lies_beside_the_ranks() -> None:
    text = (gpt2.RANKS_PATH.parent / "gpt2.tiktoken.LICENSE.txt").read_text(encoding="utf-8")
    assert "MIT" in text
    assert gpt2.RANKS_SHA256 in text


def test_nothing_is_fetched_and_no_cache_touched(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TIKTOKEN_CACHE_DIR": "/nonexistent\n/place",
        "DATA_GYM_CACHE_DIR": "/nonexistent",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", ALONE, "hello world"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[31373, 995]\n", "", 0)
    assert list(tmp_path.iterdir()) == []


def test_table_without_end_of_text_has_no_special_token() -> None:
    tokenizer = RankTokenizer(
        "tiktoken", "here", {bytes([byte]): byte for byte in range(256)}, None
    )
    assert tokenizer.encode("<|endoftext|>") == list(b"<|endoftext|>")
    text = "a" + " " * 1_200_000 + "<|endoftext|>"
    assert tokenizer.encode(text) == list(text.encode())
