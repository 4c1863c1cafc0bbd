"""Where prompts come from, what they become, and what is said about them."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.generation import prompt as module
from nanogpt_cli.generation.prompt import Prompt, PromptText, encode_prompt, read_prompt
from nanogpt_cli.tokenizers.base import Tokenizer
from nanogpt_cli.tokenizers.char import CharTokenizer
from nanogpt_cli.tokenizers.gpt2 import KIND as GPT2
from nanogpt_cli.tokenizers.ids import IdsTokenizer
from nanogpt_cli.tokenizers.search import find_tokenizer


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "wb") as writer:
        yield reader, writer


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    assert GPT2.name == "gpt2"
    return find_tokenizer(vocab_size=50257, tokenizer="gpt2")[0]


def encode(text: str, tokenizer: Tokenizer, *, given: bool = True, **options: int) -> Prompt:
    sizes = {"vocab_size": 50257, "block_size": 16, "special": True, **options}
    return encode_prompt(PromptText(text, given=given), tokenizer, **sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["123", "True", "-x", " a ", "", "[red]", "FILE", "file:x"])
def test_a_prompt_is_the_text_it_is(text: str) -> None:
    assert read_prompt(text, None) == PromptText(text)


def test_a_lone_surrogate_becomes_a_replacement_mark_with_a_note() -> None:
    read = read_prompt("a\udcffb", None)
    assert read.text == "a\ufffdb"
    assert len(read.notes) == 1


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"two\nlines\n", "two\nlines\n"),
        (b"\xef\xbb\xbfmark\n", "mark\n"),
        (b"crlf\r\n", "crlf\r\n"),
        ("utf-16 é".encode("utf-16"), "utf-16 é"),
        ("utf-32 é".encode("utf-32"), "utf-32 é"),
        (b"\x00\x00\xfe\xff" + "utf-32 é".encode("utf-32-be"), "utf-32 é"),
        (b"", ""),
    ],
)
def test_a_prompt_file_loses_a_bom_and_nothing_else(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(data)
    assert read_prompt(f"FILE:{path}", None) == PromptText(text)
    with path.open("rb") as stdin:
        assert read_prompt("-", stdin) == PromptText(text)


def test_bytes_that_are_no_utf8_are_replaced_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes(b"caf\xe9!")
    read = read_prompt(f"FILE:{path}", None)
    assert read.text == "caf\ufffd!"
    assert read.notes == (f"{str(path)!r} is not UTF-8 at byte 3: such bytes became U+FFFD",)


def test_a_missing_prompt_file_is_named_in_full(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_prompt(f"FILE:{tmp_path}/none", None)
    assert caught.value.message == f"no prompt file at '{tmp_path}/none'"
    with pytest.raises(NanoGPTError, match="Is a directory") as directory:
        read_prompt(f"FILE:{tmp_path}", None)
    assert directory.value.exit_code == 1


def test_a_pipe_with_text_is_the_prompt(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    writer.write("héllo\n".encode())
    writer.close()
    assert read_prompt(None, reader) == PromptText("héllo\n")


def test_a_closed_empty_pipe_means_a_newline(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    writer.close()
    assert read_prompt(None, reader) == PromptText("\n", given=False)


def test_a_pipe_that_sends_nothing_is_not_waited_for(
    pipe: tuple[BinaryIO, BinaryIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIPE_PATIENCE_SECONDS", 0.01)
    read = read_prompt(None, pipe[0])
    assert (read.text, read.given, len(read.notes)) == ("\n", False, 1)


def test_a_socket_is_read_like_a_pipe() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall("héllo\n".encode())
        theirs.shutdown(socket.SHUT_WR)
        with ours.makefile("rb") as stdin:
            assert read_prompt(None, stdin) == PromptText("héllo\n")


def test_what_is_typed_into_a_terminal_is_no_prompt() -> None:
    ours, theirs = os.openpty()
    with os.fdopen(ours, "wb") as writer, os.fdopen(theirs, "rb") as terminal:
        writer.write(b"typed\n\x04")
        writer.flush()
        assert read_prompt(None, terminal) == PromptText("\n", given=False)


def test_an_explicit_prompt_leaves_stdin_alone(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    assert read_prompt("text", pipe[0]) == PromptText("text")


@pytest.mark.parametrize("content", [b"", b"from a file\n"])
def test_a_file_as_stdin_counts_where_it_holds_something(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "stdin"
    path.write_bytes(content)
    with path.open("rb") as stdin:
        expected = PromptText(content.decode()) if content else PromptText("\n", given=False)
        assert read_prompt(None, stdin) == expected


def test_a_stdin_that_cannot_be_read_is_no_prompt_unless_asked_for(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    with os.fdopen(descriptor, "rb") as stdin:
        assert read_prompt(None, stdin) == PromptText("\n", given=False)
        with pytest.raises(NanoGPTError) as caught:
            read_prompt("-", stdin)
    assert caught.value.message == "cannot read standard input: Bad file descriptor"
    assert caught.value.hint == "give the text: --prompt TEXT"


@pytest.mark.parametrize("stdin", [None, io.BytesIO(b"no descriptor")])
def test_no_stdin_means_a_newline(stdin: BinaryIO | None) -> None:
    assert read_prompt(None, stdin) == PromptText("\n", given=False)
    with Path(os.devnull).open("rb") as nothing:
        assert read_prompt(None, nothing) == PromptText("\n", given=False)


def test_end_of_text_in_a_prompt_is_the_token_unless_refused(gpt2: Tokenizer) -> None:
    assert encode("a<|endoftext|>", gpt2).ids == (64, 50256)
    plain = encode("a<|endoftext|>", gpt2, special=False).ids
    assert 50256 not in plain
    assert gpt2.decode(plain) == "a<|endoftext|>"


def test_an_empty_prompt_starts_from_end_of_text_which_is_not_echoed(gpt2: Tokenizer) -> None:
    assert encode("", gpt2) == Prompt("", (50256,))


def test_a_trailing_space_is_noted_and_a_trailing_newline_is_not(gpt2: Tokenizer) -> None:
    assert encode("Hello ", gpt2).notes == (
        "the prompt ends in a space, which these models seldom saw: text goes better without it",
    )
    assert encode("Hello ", gpt2).text == "Hello "
    assert encode("Hello ", gpt2).ids[-1] == 220
    assert encode("Hello\n", gpt2).notes == ()
    assert encode("Hello", gpt2).notes == ()


def test_a_prompt_beyond_block_size_is_noted(gpt2: Tokenizer) -> None:
    assert encode("a" + " a" * 16, gpt2).notes == (
        "the prompt has 17 tokens and the model sees the last 16 of them",
    )


def test_a_prompt_that_fills_block_size_is_not_noted(gpt2: Tokenizer) -> None:
    assert encode("a" + " a" * 15, gpt2).notes == ()


def test_the_models_last_id_is_one_that_it_has(gpt2: Tokenizer) -> None:
    assert encode("hello", gpt2, vocab_size=31374).ids == (31373,)
    with pytest.raises(NanoGPTError, match="31373 ids end at 31372"):
        encode("hello", gpt2, vocab_size=31373)


def test_a_table_of_characters_knows_spaces_and_refuses_what_it_lacks() -> None:
    letters = CharTokenizer({0: " ", 1: "a"}, "the table")
    assert encode("a ", letters, vocab_size=2) == Prompt("a ", (1, 0))
    with pytest.raises(UsageError, match="U\\+00E9"):
        encode("é", letters, vocab_size=2)


def test_an_id_that_the_model_lacks_is_named_with_its_text(gpt2: Tokenizer) -> None:
    with pytest.raises(NanoGPTError) as caught:
        encode("hello world", gpt2, vocab_size=995)
    assert caught.value.message == (
        "the prompt holds id 31373 ('hello'), and the model's 995 ids end at 994"
    )
    assert caught.value.exit_code == 1


def test_the_default_newline_gives_way_where_it_cannot_be_spelled() -> None:
    ids = IdsTokenizer(10)
    default = encode("\n", ids, given=False, vocab_size=10)
    assert (default.text, default.ids) == ("", (0,))
    assert len(default.notes) == 1
