"""What a meta.pkl may hold, and what it must never do."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path

import pytest
import tokenizers
from token_tables import ALPHABET, char_meta, write_meta, zoo_folder

from nanogpt_cli.errors import TokenizerError
from nanogpt_cli.tokenizers.meta import Meta, read_meta

TOKENS = dict(enumerate(ALPHABET))
STOI = {token: number for number, token in TOKENS.items()}


class Hostile:
    """Its pickle asks for a call that leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.write_text, (self.mark, "run")


class Plain:
    """An object like any other."""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nanogpts_own(tmp_path: Path, protocol: int) -> None:
    path = write_meta(tmp_path / "meta.pkl", char_meta(ALPHABET), protocol)
    assert read_meta(path) == Meta(TOKENS)


@pytest.mark.parametrize(
    "value",
    [
        {"stoi": STOI},
        {"itos": TOKENS},
        {"itos": list(ALPHABET)},
        {"itos": tuple(ALPHABET), "stoi": STOI},
        {"char_to_idx": STOI, "idx_to_char": TOKENS},
        {"index2word": TOKENS, "word2index": STOI, "word2count": dict.fromkeys(ALPHABET, 7)},
        {"word2count": dict.fromkeys(ALPHABET, 7), "index2word": TOKENS, "word2index": STOI},
        {"chars": list(ALPHABET), "char2int": STOI, "special": ["a", "b"]},
        {"chars": list(ALPHABET), "vocab_size": 8, "train_tokens": 12},
        {"vocab_size": 8, "stoi": STOI, "itos": {}},
        {"vocab_size": 3, "stoi": STOI, "tokenizer": "char"},
        (STOI, TOKENS),
        [TOKENS, STOI],
        STOI,
        TOKENS,
        list(ALPHABET),
    ],
)
def test_tables_by_name_or_shape(tmp_path: Path, value: object) -> None:
    assert read_meta(write_meta(tmp_path / "meta.pkl", value)) == Meta(TOKENS)


@pytest.mark.parametrize(
    "value",
    [
        {"vocab_size": 50257},
        {"vocab_size": 65, "train_tokens": 1},
        {"train_tokens": 0},
        {"vocab_size": 8, "stoi": {}, "itos": {}},
        {"char_to_idx": {}, "idx_to_char": []},
        {},
        [],
    ],
)
def test_no_table(tmp_path: Path, value: object) -> None:
    assert read_meta(write_meta(tmp_path / "meta.pkl", value)) == Meta({})


@pytest.mark.parametrize("name", ["gpt2", "tiktoken", "GPT-2", "r50k_base"])
@pytest.mark.parametrize("key", ["tokenizer", "encoding", "tokenizer_type"])
def test_gpt2_by_name(tmp_path: Path, key: str, name: str) -> None:
    path = write_meta(tmp_path / "meta.pkl", {"vocab_size": 50257, key: name})
    assert read_meta(path) == Meta({}, is_gpt2=True)


def refused(tmp_path: Path, value: object) -> str:
    path = write_meta(tmp_path / "meta.pkl", value)
    with pytest.raises(TokenizerError) as caught:
        read_meta(path)
    assert caught.value.exit_code == 1
    prefix = f"{path}: "
    assert caught.value.message.startswith(prefix)
    return caught.value.message.removeprefix(prefix)


@pytest.mark.parametrize("number", [-1, True, 1 << 24, 1 << 80])
@pytest.mark.parametrize("key", ["stoi", "char_to_idx"])
def test_ids_that_cannot_be_meant(tmp_path: Path, key: str, number: int) -> None:
    message = refused(tmp_path, {key: {"a": 0, "b": number}})
    assert message == f"the id of 'b' is {number!r}: ids are integers from 0 to 16777215"


@pytest.mark.parametrize("number", [-1, True, 1 << 24])
def test_ids_of_itos_that_cannot_be_meant(tmp_path: Path, number: int) -> None:
    message = refused(tmp_path, {"itos": {0: "a", number: "b"}})
    assert message == f"the id of 'b' is {number!r}: ids are integers from 0 to 16777215"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"stoi": {"a": 0, "b": 1}, "itos": {0: "b", 1: "a"}},
            "its tables do not agree: 'a' has id 0, and id 0 is 'b'",
        ),
        (
            {"stoi": {"a": 0, "b": 2}, "itos": ["a", "b"]},
            "its tables do not agree: 'b' has id 2, and id 2 is missing",
        ),
        (
            {"stoi": STOI, "itos": list(ALPHABET[:-1])},
            "its tables do not agree: 8 different tokens have 7 ids",
        ),
        (
            {"char2id": {"a": 0, "b": 1}, "id2char": {0: "b", 1: "a"}},
            "its tables do not agree: 'a' has id 0, and id 0 is 'b'",
        ),
        ({"stoi": {"a": 0, "A": 0}}, "its tables do not agree: 2 different tokens have 1 ids"),
        ({"chars": ["a", "a"]}, "its tables do not agree: 1 different tokens have 2 ids"),
        ({"stoi": {"a": 0.0}}, "its stoi is no dict of strings to integers"),
        ({"stoi": ["a"]}, "its stoi is no dict of strings to integers"),
        (
            {"itos": {"0": "a"}},
            "its itos is no list of strings and no dict of integers to strings",
        ),
        (
            {"one": {"a": 0}, "two": {"b": 0}, "three": ["c"]},
            "no two of its tables 'one', 'two', 'three' belong together",
        ),
        (
            {"tokenizer": "cl100k_base"},
            "it has no table and names 'cl100k_base': only gpt2 is known by name",
        ),
        ({"tokenizer": 5}, "its tokenizer is a int: it must be a name"),
        ("text", "it holds a str: it must be a dict of tables"),
        (None, "it holds a NoneType: it must be a dict of tables"),
    ],
)
def test_contradictions(tmp_path: Path, value: object, message: str) -> None:
    assert refused(tmp_path, value) == message


def test_objects_are_named_and_never_made(tmp_path: Path) -> None:
    message = refused(tmp_path, Plain())
    assert message == "it holds an object of class test_meta.Plain: it must be a dict of tables"
    message = refused(tmp_path, {"vocab_size": 5, "tokenizer": Plain()})
    assert message == "its tokenizer is an object of class test_meta.Plain: it must be a name"
    path = write_meta(tmp_path / "meta.pkl", {**char_meta(ALPHABET), "more": Plain()})
    assert read_meta(path) == Meta(TOKENS)


def test_zero_bytes(tmp_path: Path) -> None:
    path = tmp_path / "meta.pkl"
    path.touch()
    with pytest.raises(TokenizerError) as caught:
        read_meta(path)
    assert caught.value.message == f"{path} is empty: it must be a pickled table of tokens"


@pytest.mark.parametrize(
    "data",
    [
        b"this is a text file\nwith two lines\n",
        b"<!DOCTYPE html>",
        b"\x80\x04",
        pickle.dumps(char_meta(ALPHABET))[:-10],
        pickle.dumps(char_meta(ALPHABET)) + b"more",
        b"\x00" * 100,
    ],
)
def test_no_pickle(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "meta.pkl"
    path.write_bytes(data)
    with pytest.raises(TokenizerError) as caught:
        read_meta(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert caught.value.hint is not None
    assert "--meta" in caught.value.hint


@pytest.mark.parametrize("whole", [False, True])
def test_nothing_runs(tmp_path: Path, whole: bool) -> None:
    mark = tmp_path / "mark"
    hostile = Hostile(mark)
    message = refused(tmp_path, hostile if whole else {**char_meta(ALPHABET), "x": hostile})
    assert "write_text" in message or "getattr" in message
    assert not mark.exists()


def test_the_hostile_file_is_hostile(tmp_path: Path) -> None:
    path = write_meta(tmp_path / "meta.pkl", Hostile(tmp_path / "mark"))
    pickle.load(io.BytesIO(path.read_bytes()))
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("whole", [False, True])
def test_pickled_tokenizer_is_refused_by_name(tmp_path: Path, whole: bool) -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    message = refused(tmp_path, tokenizer if whole else {"vocab_size": 9, "tokenizer": tokenizer})
    assert "tokenizers.Tokenizer" in message


@pytest.mark.parametrize("kind", ["folder", "missing", "pipe"])
def test_only_regular_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "meta.pkl"
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(TokenizerError, match="is no regular file"):
        read_meta(path)


@pytest.mark.real
def test_real_meta() -> None:
    meta = read_meta(zoo_folder("nanogpt-char") / "meta.pkl")
    assert sorted(meta.tokens) == list(range(62))
    assert "".join(meta.tokens[number] for number in range(62)) == "".join(
        sorted(meta.tokens.values())
    )
    assert meta.tokens[0] == "\n"


def test_a_text_in_place_of_a_table_is_called_one(tmp_path: Path) -> None:
    path = tmp_path / "meta.pkl"
    path.write_text("hello")
    with pytest.raises(TokenizerError, match=r"meta\.pkl: it is text, and no pickle$"):
        read_meta(path)
