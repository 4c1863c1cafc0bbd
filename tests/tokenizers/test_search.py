"""Which tokenizer belongs to a checkpoint."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from token_tables import (
    ALPHABET,
    SMALL_RANKS,
    char_meta,
    write_hf,
    write_meta,
    write_ranks,
    zoo_folder,
)

from nanogpt_cli.errors import TokenizerError, UsageError
from nanogpt_cli.tokenizers.base import Found, TokenizerMissingError
from nanogpt_cli.tokenizers.search import (
    check_fit,
    find_tokenizer,
    load_tokenizer,
    locate_tokenizer,
)

END = {"<|endoftext|>": 261}

LIGHT = """
import sys
from pathlib import Path
from nanogpt_cli.tokenizers.search import locate_tokenizer

for size, near in [(8, "char"), (262, "hf"), (261, "ranks"), (50257, "none")]:
    print(locate_tokenizer(vocab_size=size, near=Path(near)).name)
heavy = {"torch", "numpy", "tiktoken", "tokenizers", "transformers", "regex"}
print(sorted(heavy & set(sys.modules)))
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder that has no `data/` and is not the checkpoint's."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.fixture
def near(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / "out"
    folder.mkdir(parents=True)
    return folder


def test_order_beside_the_checkpoint(near: Path) -> None:
    write_ranks(near / "demo.tiktoken", SMALL_RANKS)
    assert locate_tokenizer(vocab_size=300, near=near).name == "tiktoken"
    write_hf(near, SMALL_RANKS, END)
    found = locate_tokenizer(vocab_size=300, near=near)
    assert (found.name, found.path, found.n_vocab) == ("hf", near / "vocab.json", 262)
    write_meta(near / "meta.pkl", char_meta(ALPHABET))
    found = locate_tokenizer(vocab_size=300, near=near)
    assert found == Found("char", near / "meta.pkl", 8)


def test_beside_wins_over_data(near: Path) -> None:
    write_meta(near.parent / "data" / "set" / "meta.pkl", char_meta("ab"))
    write_ranks(near / "demo.tiktoken", SMALL_RANKS)
    assert locate_tokenizer(vocab_size=261, near=near, dataset="set").name == "tiktoken"


def test_vocab_without_merges_is_none(near: Path) -> None:
    write_hf(near, SMALL_RANKS, END)
    (near / "merges.txt").unlink()
    with pytest.raises(TokenizerMissingError):
        locate_tokenizer(vocab_size=262, near=near)


def test_two_files_of_ranks_are_none(near: Path) -> None:
    write_ranks(near / "one.tiktoken", SMALL_RANKS)
    write_ranks(near / "two.tiktoken", SMALL_RANKS)
    with pytest.raises(TokenizerMissingError, match=r"\*\.tiktoken \(a single one\)"):
        locate_tokenizer(vocab_size=261, near=near)


@pytest.mark.parametrize("up", [0, 1, 2])
def test_data_folder_of_a_parent(near: Path, up: int) -> None:
    folder = [near, *near.parents][up]
    path = write_meta(folder / "data" / "shakespeare" / "meta.pkl", char_meta(ALPHABET))
    found = locate_tokenizer(vocab_size=8, near=near, dataset="shakespeare")
    assert (found.name, found.path, found.n_vocab) == ("char", path.resolve(), 8)


def test_data_folder_of_the_working_directory_comes_first(near: Path, tmp_path: Path) -> None:
    path = write_meta(tmp_path / "cwd" / "data" / "a" / "b" / "meta.pkl", char_meta(ALPHABET))
    write_meta(near.parent / "data" / "a" / "b" / "meta.pkl", char_meta("ab"))
    assert locate_tokenizer(vocab_size=8, near=near, dataset="a/b").path == path
    assert locate_tokenizer(vocab_size=8, near=None, dataset="a/b").path == path


def test_folder_may_be_relative(near: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_meta(near.parent / "data" / "set" / "meta.pkl", char_meta(ALPHABET))
    monkeypatch.chdir(near.parent.parent)
    assert locate_tokenizer(vocab_size=8, near=Path("project/out"), dataset="set").path == path


@pytest.mark.parametrize(
    "dataset",
    [
        "../secret",
        "set/../../secret",
        "..",
        "",
        ".",
        "/",
        "a\0b",
        "..\\secret",
        "C:secret",
        "x" * 5000,
        None,
        5,
        b"secret",
        ["secret"],
    ],
)
def test_dataset_that_leads_elsewhere_is_not_followed(near: Path, dataset: object) -> None:
    write_meta(near.parent / "secret" / "meta.pkl", char_meta(ALPHABET))
    write_meta(near.parent / "data" / "meta.pkl", char_meta(ALPHABET))
    (near.parent / "data" / "set").mkdir()
    with pytest.raises(TokenizerMissingError):
        locate_tokenizer(vocab_size=8, near=near, dataset=dataset)


def test_absolute_dataset_is_not_followed(near: Path, tmp_path: Path) -> None:
    write_meta(tmp_path / "secret" / "meta.pkl", char_meta(ALPHABET))
    with pytest.raises(TokenizerMissingError):
        locate_tokenizer(vocab_size=8, near=near, dataset=str(tmp_path / "secret"))


@pytest.mark.parametrize("vocab_size", [50257, 50304, 50258, 50384])
def test_gpt2_by_size(near: Path, vocab_size: int) -> None:
    found = locate_tokenizer(vocab_size=vocab_size, near=near, dataset="openwebtext")
    assert (found.name, found.path, found.n_vocab) == ("gpt2", None, 50257)


def test_notes_of_padding(near: Path) -> None:
    tokenizer, notes = find_tokenizer(vocab_size=50304, near=near)
    assert tokenizer.name == "gpt2"
    assert notes == ("ids 50257 to 50303 are padding and are never drawn",)
    assert find_tokenizer(vocab_size=50257, near=near)[1] == ()
    write_meta(near / "meta.pkl", char_meta(ALPHABET))
    _, notes = find_tokenizer(vocab_size=9, near=near)
    assert notes == ("id 8 is padding and is never drawn",)


@pytest.mark.parametrize("vocab_size", [65, 1500, 50256, 50385, 100277])
def test_never_gpt2_by_guess(near: Path, tmp_path: Path, vocab_size: int) -> None:
    with pytest.raises(TokenizerMissingError) as caught:
        find_tokenizer(vocab_size=vocab_size, near=near, dataset="set")
    error = caught.value
    assert error.exit_code == 1
    assert f"no tokenizer found for the model's {vocab_size} ids; looked for " in error.message
    for place in (
        near / "meta.pkl",
        near / "tokenizer.json",
        near / "vocab.json + merges.txt",
        tmp_path / "cwd" / "data" / "set" / "meta.pkl",
        near.resolve() / "data" / "set" / "meta.pkl",
        near.resolve().parent / "data" / "set" / "meta.pkl",
    ):
        assert str(place) in error.message
        assert str(place) in error.looked_in
    assert error.hint is not None
    assert "--meta FILE" in error.hint


def test_nowhere_to_look() -> None:
    with pytest.raises(TokenizerMissingError, match="the checkpoint lies in none"):
        locate_tokenizer(vocab_size=65)


@pytest.mark.parametrize("vocab_size", [50257, 7, 8 + 128])
def test_misfit_names_both_sizes_and_the_path(near: Path, vocab_size: int) -> None:
    path = write_meta(near / "meta.pkl", char_meta(ALPHABET))
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer(vocab_size=vocab_size, near=near)
    assert caught.value.message == (
        f"{path} (char) has 8 ids and the model has {vocab_size}: they do not belong together"
    )
    assert caught.value.exit_code == 1
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("name the table with --meta FILE")


def test_beside_several_checkpoints_a_table_that_does_not_fit_is_passed_over(near: Path) -> None:
    for name in ("ckpt.pt", "other.pt"):
        (near / name).touch()
    meta = write_meta(near / "meta.pkl", char_meta(ALPHABET))
    told = f"{meta} (char) has 8 ids and the model has %d: it was passed over"
    tokenizer, notes = find_tokenizer(vocab_size=50257, near=near)
    assert (tokenizer.name, notes) == ("gpt2", (told % 50257,))
    write_hf(near, SMALL_RANKS, END)
    found = locate_tokenizer(vocab_size=262, near=near)
    assert (found.name, found.notes) == ("hf", (told % 262,))
    assert found.looked_in[0] == f"{meta} (8 ids)"
    assert locate_tokenizer(vocab_size=8, near=near).notes == ()


@pytest.mark.parametrize("given", [{"tokenizer": "char"}, {"meta": Path("meta.pkl")}])
def test_a_table_that_was_named_and_does_not_fit_is_an_error(
    near: Path, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_meta(near / "meta.pkl", char_meta(ALPHABET))
    monkeypatch.chdir(near)
    with pytest.raises(TokenizerError, match="has 8 ids and the model has 50257"):
        find_tokenizer(vocab_size=50257, near=near, **given)


@pytest.mark.parametrize("beside", ["optimizer.pt", "training_args.pt", "rng_state_0.pth", "x.txt"])
def test_what_a_trainer_leaves_is_no_other_checkpoint(near: Path, beside: str) -> None:
    for name in ("ckpt.pt", beside):
        (near / name).touch()
    write_meta(near / "meta.pkl", char_meta(ALPHABET))
    with pytest.raises(TokenizerError, match="has 8 ids and the model has 50257"):
        find_tokenizer(vocab_size=50257, near=near)


def test_of_two_that_do_not_fit_the_first_is_told(near: Path) -> None:
    for name in ("a.pt", "b.safetensors"):
        (near / name).touch()
    meta = write_meta(near / "meta.pkl", char_meta(ALPHABET))
    write_hf(near, SMALL_RANKS, END)
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer(vocab_size=500, near=near)
    assert caught.value.message.startswith(f"{meta} (char) has 8 ids and the model has 500")


def test_the_most_padding_that_fits(near: Path) -> None:
    write_meta(near / "meta.pkl", char_meta(ALPHABET))
    _, notes = find_tokenizer(vocab_size=8 + 127, near=near)
    assert notes == ("ids 8 to 134 are padding and are never drawn",)
    assert check_fit(Found("ids", None, None), 5) == ()


def test_a_table_is_as_large_as_its_highest_id(near: Path) -> None:
    write_meta(near / "meta.pkl", {"itos": {0: "a", 5: "b"}})
    assert locate_tokenizer(vocab_size=6, near=near).n_vocab == 6


def test_gpt2_that_does_not_fit() -> None:
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer(vocab_size=65, tokenizer="gpt2")
    assert caught.value.message == (
        "the gpt2 tokenizer has 50257 ids and the model has 65: they do not belong together"
    )
    assert caught.value.hint == (
        "leave --tokenizer out to look beside the checkpoint, or name the table with --meta FILE, "
        "or give --tokenizer ids"
    )


@pytest.mark.parametrize("name", ["gpt2", "ids"])
def test_by_name_whatever_lies_there(near: Path, name: str) -> None:
    (near / "meta.pkl").write_bytes(b"nonsense")
    tokenizer, notes = find_tokenizer(vocab_size=50257, near=near, tokenizer=name)
    assert (tokenizer.name, tokenizer.n_vocab, notes) == (name, 50257, ())


def test_by_kind(near: Path) -> None:
    write_meta(near / "meta.pkl", char_meta(ALPHABET))
    write_hf(near, SMALL_RANKS, END)
    write_ranks(near / "demo.tiktoken", SMALL_RANKS)
    for name, n_vocab in [("char", 8), ("hf", 262), ("tiktoken", 261)]:
        found = locate_tokenizer(vocab_size=5, near=near, tokenizer=name)
        assert (found.name, found.n_vocab) == (name, n_vocab)


def test_kind_that_is_not_there(near: Path) -> None:
    write_hf(near, SMALL_RANKS, END)
    with pytest.raises(TokenizerMissingError) as caught:
        locate_tokenizer(vocab_size=50257, near=near, tokenizer="char", dataset="set")
    assert caught.value.message.startswith("no char tokenizer found; looked for ")
    assert "tokenizer.json" not in caught.value.message


def test_path_of_any_kind(tmp_path: Path) -> None:
    meta = write_meta(tmp_path / "any.bin", char_meta(ALPHABET))
    ranks = write_ranks(tmp_path / "any.txt", SMALL_RANKS)
    folder = write_hf(tmp_path / "folder", SMALL_RANKS, END)
    spaced = folder / "any"
    spaced.write_bytes(b"\xef\xbb\xbf\r\n " + (folder / "vocab.json").read_bytes())
    for path, name, n_vocab in [
        (meta, "char", 8),
        (ranks, "tiktoken", 261),
        (folder, "hf", 262),
        (folder / "vocab.json", "hf", 262),
        (spaced, "hf", 262),
    ]:
        found = locate_tokenizer(vocab_size=5, tokenizer=str(path))
        assert (found.name, found.n_vocab) == (name, n_vocab)
        assert load_tokenizer(found, n_vocab).n_vocab == n_vocab


def test_relative_path(tmp_path: Path) -> None:
    write_meta(tmp_path / "meta.pkl", char_meta(ALPHABET))
    assert locate_tokenizer(vocab_size=8, tokenizer="../meta.pkl").n_vocab == 8
    assert locate_tokenizer(vocab_size=8, tokenizer="..").name == "char"


def test_meta_by_another_name(near: Path, tmp_path: Path) -> None:
    write_meta(near / "meta.pkl", char_meta("xyz"))
    path = write_meta(tmp_path / "table.bin", char_meta(ALPHABET))
    for name in (None, "char"):
        tokenizer, _ = find_tokenizer(vocab_size=8, near=near, meta=path, tokenizer=name)
        assert (tokenizer.source, tokenizer.n_vocab) == (str(path), 8)
    assert locate_tokenizer(vocab_size=3, meta=near).path == near / "meta.pkl"


def test_meta_and_another_tokenizer_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--tokenizer 'gpt2' and --meta contradict each other"):
        locate_tokenizer(vocab_size=8, meta=tmp_path, tokenizer="gpt2")


@pytest.mark.parametrize(
    ("option", "given"),
    [("--tokenizer", {"tokenizer": "gone"}), ("--meta", {"meta": Path("gone")})],
)
def test_path_that_is_not_there(tmp_path: Path, option: str, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        locate_tokenizer(vocab_size=8, **given)
    assert caught.value.message == (
        f"nothing that {option} can read lies at {tmp_path / 'cwd' / 'gone'}"
    )
    assert caught.value.exit_code == 2


def test_pipe_is_never_waited_for(near: Path) -> None:
    os.mkfifo(near / "meta.pkl")
    assert locate_tokenizer(vocab_size=50257, near=near).name == "gpt2"
    with pytest.raises(UsageError):
        locate_tokenizer(vocab_size=8, meta=near / "meta.pkl")


@pytest.mark.parametrize("data", [b"", b"some text\n", b"\x00\x01"])
def test_file_of_no_kind(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(TokenizerError, match="is no tokenizer of a kind known here"):
        locate_tokenizer(vocab_size=8, tokenizer=str(path))


@pytest.mark.parametrize("name", ["empty.pkl", "empty.json", "empty.tiktoken"])
def test_damaged_file_of_a_kind(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(TokenizerError, match=name.replace(".", r"\.")):
        locate_tokenizer(vocab_size=8, tokenizer=str(tmp_path / name))


def test_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    given: dict[str, Any]
    for given in ({"tokenizer": str(tmp_path / "empty")}, {"meta": tmp_path / "empty"}):
        with pytest.raises(TokenizerError, match=r"has no tokenizer in it: looked for meta\.pkl"):
            locate_tokenizer(vocab_size=8, **given)


@pytest.mark.parametrize("value", [{"vocab_size": 50257}, {"stoi": {}, "itos": {}}])
def test_meta_without_tables_leaves_the_question_open(near: Path, value: object) -> None:
    path = write_meta(near / "meta.pkl", value)
    tokenizer, notes = find_tokenizer(vocab_size=50257, near=near)
    assert tokenizer.name == "gpt2"
    assert notes == (f"{path} holds no table of tokens and was passed over",)
    with pytest.raises(TokenizerMissingError, match=r"meta\.pkl \(no table in it\)"):
        locate_tokenizer(vocab_size=65, near=near)
    with pytest.raises(TokenizerError, match="holds no table of tokens"):
        locate_tokenizer(vocab_size=50257, meta=path)


def test_meta_that_names_gpt2(near: Path) -> None:
    path = write_meta(near / "meta.pkl", {"vocab_size": 50257, "tokenizer": "gpt2"})
    found = locate_tokenizer(vocab_size=50304, near=near)
    assert (found.name, found.path, found.n_vocab) == ("gpt2", path, 50257)
    tokenizer, _ = find_tokenizer(vocab_size=50304, near=near)
    assert tokenizer.encode("hello world") == [31373, 995]


class Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.mark),)


def test_hostile_meta_stops_the_search_and_does_nothing(near: Path, tmp_path: Path) -> None:
    write_hf(near, SMALL_RANKS, END)
    (near / "meta.pkl").write_bytes(pickle.dumps({"stoi": {"a": 0}, "x": Hostile(tmp_path / "m")}))
    for look in (locate_tokenizer, find_tokenizer):
        with pytest.raises(TokenizerError) as caught:
            look(vocab_size=262, near=near)
        assert caught.value.exit_code == 1
        assert str(near / "meta.pkl") in caught.value.message
        assert "mkdir" in caught.value.message
    assert not (tmp_path / "m").exists()


def test_looking_imports_nothing_heavy(tmp_path: Path) -> None:
    write_meta(tmp_path / "char" / "meta.pkl", char_meta(ALPHABET))
    write_hf(tmp_path / "hf", SMALL_RANKS, END)
    (tmp_path / "ranks").mkdir()
    write_ranks(tmp_path / "ranks" / "demo.tiktoken", SMALL_RANKS)
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout) == ("", "char\nhf\ntiktoken\ngpt2\n[]\n")


def test_hf_folder_with_added_tokens_fits_by_its_rows(near: Path) -> None:
    write_hf(near, SMALL_RANKS, END, added_tokens={"<pad>": 262})
    tokenizer, notes = find_tokenizer(vocab_size=263, near=near)
    assert tokenizer.token_bytes(262) == b"<pad>"
    assert notes == ()
    with pytest.raises(TokenizerError, match="has 263 ids and the model has 262"):
        find_tokenizer(vocab_size=262, near=near)


def test_damaged_json_beside_the_checkpoint(near: Path) -> None:
    (near / "tokenizer.json").write_text(json.dumps({"no": "model"}))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        locate_tokenizer(vocab_size=50257, near=near)


@pytest.mark.parametrize("name", ["tokenizer.json", "meta.pkl", "x.tiktoken"])
def test_a_git_lfs_pointer_in_a_tables_place_is_told(near: Path, name: str) -> None:
    (near / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer(vocab_size=300, near=near)
    assert caught.value.message == f"{near / name}: it is a Git LFS pointer, not the table itself"
    assert caught.value.hint == "fetch it in its repository: git lfs install, then git lfs pull"


@pytest.mark.parametrize("text", ["", "{", '{"model": {"type": "BPE", "vocab": {"a": -1}}}'])
def test_a_damaged_table_is_told_with_the_way_round_it(near: Path, text: str) -> None:
    (near / "tokenizer.json").write_text(text)
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer(vocab_size=300, near=near)
    assert caught.value.hint is not None
    assert "--tokenizer ids" in caught.value.hint


@pytest.mark.real
def test_real_folders() -> None:
    for name, vocab_size, kind in [("nanogpt-char", 62, "char"), ("hf-tiny-21", 21, "hf")]:
        tokenizer, notes = find_tokenizer(
            vocab_size=vocab_size, near=zoo_folder(name), dataset="shakespeare_char"
        )
        assert (tokenizer.name, tokenizer.n_vocab, notes) == (kind, vocab_size, ())
    with pytest.raises(UsageError, match=r"'#' U\+0023, 'é' U\+00E9$"):
        find_tokenizer(vocab_size=62, near=zoo_folder("nanogpt-char"))[0].encode("A#é")
    with pytest.raises(TokenizerMissingError):
        find_tokenizer(vocab_size=10, near=zoo_folder("minGPT-adder"))
