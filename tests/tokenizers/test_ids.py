"""Token ids as text."""

from __future__ import annotations

import pytest

from nanogpt_cli.errors import TokenizerError, UsageError
from nanogpt_cli.tokenizers.base import start_id
from nanogpt_cli.tokenizers.ids import IdsTokenizer


@pytest.mark.parametrize("text", ["5 7 2", "  5\n7\t2 \n"])
def test_encode(text: str) -> None:
    assert IdsTokenizer(10).encode(text) == [5, 7, 2]


def test_decode() -> None:
    tokenizer = IdsTokenizer(10)
    assert tokenizer.decode([5, 7, 2]) == "5 7 2"
    assert tokenizer.decode([]) == ""
    assert tokenizer.token_bytes(5) == b"5"
    assert tokenizer.separator == b" "
    assert tokenizer.known_ids() == range(10)
    assert tokenizer.end_of_text is None
    assert not tokenizer.is_bpe
    assert start_id(tokenizer) == 0


@pytest.mark.parametrize("word", ["x", "-1", "1.0", "+3", "1_0", "٣", "0x1", "9" * 5000])
def test_no_id(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        IdsTokenizer(10).encode(f"5 7 {word} 2")
    assert caught.value.message == f"word 3 of the prompt, {word[:40]!r}, is no token id"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("token", [-1, 10])
def test_missing_id(token: int) -> None:
    with pytest.raises(TokenizerError, match="has ids 0 to 9"):
        IdsTokenizer(10).token_bytes(token)
