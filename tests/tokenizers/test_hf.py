"""Hugging Face tokenizers, against transformers and against the bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from token_tables import (
    SMALL_RANKS,
    gpt2_ranks,
    gpt2_tokenizer,
    spell,
    write_hf,
    zoo_folder,
)
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from transformers import GPT2Tokenizer, PreTrainedTokenizerFast

from nanogpt_cli.errors import TokenizerError, UsageError
from nanogpt_cli.tokenizers import hf
from nanogpt_cli.tokenizers.base import Tokenizer, start_id
from nanogpt_cli.tokenizers.hf_pieces import GLYPHS

END = {"<|endoftext|>": 261}

TEXTS = ["low lower newest", "the widest thé", "hello  world\n", "über 中文 😀", "a<|endoftext|>b"]


def load(folder: Path) -> Tokenizer:
    path = hf.KIND.locate(folder)
    assert path is not None
    found = hf.KIND.examine(path)
    assert found is not None
    tokenizer = hf.KIND.load(found, 0)
    assert tokenizer.n_vocab == found.n_vocab
    return tokenizer


def added(content: str, *, special: bool = True) -> dict[str, object]:
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {"content": content, "special": special, **flags}


@cache
def small() -> tuple[Tokenizer, Any]:
    with TemporaryDirectory() as folder:
        write_hf(Path(folder), SMALL_RANKS, END)
        return load(Path(folder)), GPT2Tokenizer.from_pretrained(folder)


@cache
def gpt2_both() -> tuple[Tokenizer, Any]:
    with TemporaryDirectory() as folder:
        write_hf(Path(folder), gpt2_ranks(), {"<|endoftext|>": 50256})
        return load(Path(folder)), GPT2Tokenizer.from_pretrained(folder)


@settings(max_examples=200, deadline=None)
@given(st.text() | st.text(alphabet=st.sampled_from(list("the \n\té<|>'s1"))))
def test_equals_transformers(text: str) -> None:
    ours, theirs = small()
    assert ours.encode(text) == theirs(text)["input_ids"]
    assert ours.decode(ours.encode(text)) == text


@settings(max_examples=200, deadline=None)
@given(st.text() | st.lists(st.sampled_from([*TEXTS, "<|endoftext|>", "   "])).map("".join))
def test_gpt2s_files_encode_as_the_bundled_ranks_and_as_transformers(text: str) -> None:
    ours, theirs = gpt2_both()
    assert ours.encode(text) == gpt2_tokenizer().encode(text) == theirs(text)["input_ids"]
    plain = gpt2_tokenizer().encode(text, special=False)
    assert ours.encode(text, special=False) == plain


def test_gpt2s_files_have_the_bundled_tokens() -> None:
    ours, _ = gpt2_both()
    assert ours.end_of_text == 50256
    assert ours.known_ids() == range(50257)
    wanted = [gpt2_tokenizer().token_bytes(token) for token in range(50257)]
    assert [ours.token_bytes(token) for token in range(50257)] == wanted


def test_attributes(tmp_path: Path) -> None:
    tokenizer = load(write_hf(tmp_path, SMALL_RANKS, END))
    assert tokenizer.name == "hf"
    assert tokenizer.source == str(tmp_path / "vocab.json")
    assert tokenizer.n_vocab == 262
    assert tokenizer.known_ids() == range(262)
    assert tokenizer.separator == b""
    assert tokenizer.is_bpe
    assert start_id(tokenizer) == 261


def test_tokens_are_bytes_and_never_glyphs(tmp_path: Path) -> None:
    tokenizer = load(write_hf(tmp_path, SMALL_RANKS, END))
    assert [tokenizer.token_bytes(rank) for rank in SMALL_RANKS.values()] == list(SMALL_RANKS)
    assert tokenizer.token_bytes(261) == b"<|endoftext|>"
    assert sorted(GLYPHS.values()) == list(range(256))


def test_decoding_equals_the_librarys(tmp_path: Path) -> None:
    ours = load(write_hf(tmp_path, SMALL_RANKS, END))
    theirs = GPT2Tokenizer.from_pretrained(tmp_path)
    for ids in ([258, 256, 259, 260], [195, 169, 195], [240, 159], [65, 200, 65], [261, 65]):
        assert ours.decode(ids) == theirs.decode(ids)


def test_added_tokens_of_every_file(tmp_path: Path) -> None:
    write_hf(
        tmp_path,
        SMALL_RANKS,
        END,
        added_tokens={"<pad>": 262, "<sep>": 263},
        special_tokens_map={"pad_token": "<pad>", "bos_token": added("<|endoftext|>")},
        tokenizer_config={"added_tokens_decoder": {"264": added("<user>", special=False)}},
    )
    tokenizer = load(tmp_path)
    assert tokenizer.n_vocab == 265
    text = "the<pad>the<sep><user><|endoftext|>"
    ids = tokenizer.encode(text)
    assert ids == [257, 262, 257, 263, 264, 261]
    assert tokenizer.decode(ids) == text
    plain = tokenizer.encode(text, special=False)
    assert set(plain) >= {263, 264}
    assert not {261, 262} & set(plain)
    assert tokenizer.decode(plain) == text


def test_added_token_after_gpt2s_vocabulary_keeps_its_text(tmp_path: Path) -> None:
    write_hf(tmp_path, gpt2_ranks(), {"<|endoftext|>": 50256}, added_tokens={"<|user|>": 50257})
    tokenizer = load(tmp_path)
    assert tokenizer.n_vocab == 50258
    assert tokenizer.token_bytes(50257) == b"<|user|>"
    assert tokenizer.encode("hello<|user|> world") == [31373, 50257, 995]
    theirs = GPT2Tokenizer.from_pretrained(tmp_path)
    assert theirs("hello<|user|> world")["input_ids"] == [31373, 50257, 995]


@pytest.mark.parametrize(
    ("files", "end"),
    [
        ({}, 261),
        ({"tokenizer_config": {"eos_token": "</s>"}}, 262),
        ({"tokenizer_config": {"eos_token": added("</s>")}}, 262),
        ({"special_tokens_map": {"eos_token": "</s>"}}, 262),
        ({"tokenizer_config": {"eos_token": "<gone>"}, "config": {"eos_token_id": 262}}, 262),
        ({"config": {"eos_token_id": [262, 5]}}, 262),
        ({"config": {"eos_token_id": 50256}}, 261),
        ({"config": {"eos_token_id": None}}, 261),
        ({"config": {"eos_token_id": True}}, 261),
    ],
)
def test_end_of_text(tmp_path: Path, files: dict[str, object], end: int) -> None:
    tokenizer = load(write_hf(tmp_path, SMALL_RANKS, END | {"</s>": 262}, **files))
    assert tokenizer.end_of_text == end


def test_no_end_of_text(tmp_path: Path) -> None:
    tokenizer = load(write_hf(tmp_path, SMALL_RANKS, {}))
    assert tokenizer.end_of_text is None
    assert start_id(tokenizer) == 10


def test_prefix_space_of_the_configuration(tmp_path: Path) -> None:
    write_hf(tmp_path, SMALL_RANKS, END, tokenizer_config={"add_prefix_space": True})
    theirs = GPT2Tokenizer.from_pretrained(tmp_path)
    assert load(tmp_path).encode("the the") == theirs("the the")["input_ids"] == [258, 258]


def test_blanks_that_an_added_token_takes_along(tmp_path: Path) -> None:
    flags = {"lstrip": True, "rstrip": True}
    decoder = {"262": {**added("<both>"), **flags}, "263": {**added("<left>"), "lstrip": True}}
    write_hf(tmp_path, SMALL_RANKS, END, tokenizer_config={"added_tokens_decoder": decoder})
    theirs = GPT2Tokenizer.from_pretrained(tmp_path)
    ids = load(tmp_path).encode("a <both> a <left> a")
    assert ids == theirs("a <both> a <left> a")["input_ids"] == [97, 262, 97, 263, 32, 97]


def test_merges_of_number_signs_are_no_comments(tmp_path: Path) -> None:
    tokenizer = load(write_hf(tmp_path, SMALL_RANKS | {b"##": 261}, {}))
    assert tokenizer.encode("##") == [261]


def test_bytes_without_a_token_are_named_and_not_dropped(tmp_path: Path) -> None:
    ranks = {bytes([byte]): place for place, byte in enumerate(b"\n abc")}
    decoder = {"6": added("<u>", special=False)}
    config = {"added_tokens_decoder": decoder}
    tokenizer = load(write_hf(tmp_path, ranks, {"<|endoftext|>": 5}, tokenizer_config=config))
    assert tokenizer.encode("a<u>", special=False) == [2, 6]
    assert tokenizer.encode("ab c<|endoftext|>") == [2, 3, 1, 4, 5]
    with pytest.raises(UsageError, match=r"^2 characters of .*: 'x' U\+0078, 'é' U\+00E9$"):
        tokenizer.encode("xaéx")
    with pytest.raises(UsageError, match=r"U\+003C"):
        tokenizer.encode("<|endoftext|>", special=False)


def test_lone_surrogates(tmp_path: Path) -> None:
    tokenizer = load(write_hf(tmp_path, SMALL_RANKS, END))
    assert tokenizer.encode("a\udc80") == tokenizer.encode("a\ufffd")


def test_missing_id(tmp_path: Path) -> None:
    tokenizer = load(write_hf(tmp_path, SMALL_RANKS, END))
    with pytest.raises(TokenizerError, match="no token has id 262"):
        tokenizer.token_bytes(262)


def test_holes(tmp_path: Path) -> None:
    tokenizer = load(write_hf(tmp_path, SMALL_RANKS, {"<|endoftext|>": 300}))
    assert tokenizer.n_vocab == 301
    assert list(tokenizer.known_ids()) == [*range(261), 300]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("vocab.json", "{", "vocab.json is no JSON"),
        ("vocab.json", "[]", "vocab.json holds a JSON list: it must be an object"),
        ("vocab.json", "{}", "vocab.json has no tokens"),
        ("vocab.json", '{"a": -1}', "the id of 'a' is -1: ids are integers from 0 to 16777215"),
        ("vocab.json", '{"a": true}', "the id of 'a' is True"),
        ("vocab.json", '{"a": "0"}', "the id of 'a' is '0'"),
        ("vocab.json", '{"a": 0, "b": 0}', "two tokens have one id"),
        ("vocab.json", '{"\\ud800": 0}', "no tokenizer that works"),
        ("vocab.json", "[" * 100_000, "vocab.json is no JSON"),
        ("merges.txt", "#version: 0.2\na b c\n", "merges.txt, line 2: 'a b c' is no pair"),
        ("merges.txt", "t h\n\nx\n", "merges.txt, line 3: 'x' is no pair"),
        ("merges.txt", "t \n", "merges.txt, line 1: 't ' is no pair"),
        ("merges.txt", "中 文\n", "no tokenizer that works"),
        ("added_tokens.json", '{"x": null}', "the id of 'x' is None"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {}}}', "'x' has no content"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"-1": {"content": "x"}}}', "'-1'"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    write_hf(tmp_path, SMALL_RANKS, END)
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(TokenizerError) as caught:
        load(tmp_path)
    assert message in caught.value.message
    assert str(tmp_path) in caught.value.message


def test_merges_that_are_no_utf8(tmp_path: Path) -> None:
    write_hf(tmp_path, SMALL_RANKS, END)
    (tmp_path / "merges.txt").write_bytes(b"\xff \xfe\n")
    with pytest.raises(TokenizerError, match=r"merges\.txt is no UTF-8"):
        load(tmp_path)


def test_merges_with_windows_line_ends(tmp_path: Path) -> None:
    write_hf(tmp_path, SMALL_RANKS, END)
    path = tmp_path / "merges.txt"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert load(tmp_path).encode("the the") == [257, 258]


def pipeline(folder: Path, edit: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """Write a byte-level tokenizer.json, edited."""
    vocab = {spell(token): rank for token, rank in SMALL_RANKS.items()} | END
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ã", "©"), ("Ċ", "Ċ")]
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<|endoftext|>"])
    content = json.loads(library.to_str())
    if edit is not None:
        edit(content)
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_pipeline(tmp_path: Path) -> None:
    tokenizer = load(pipeline(tmp_path))
    assert tokenizer.source == str(tmp_path / "tokenizer.json")
    assert tokenizer.end_of_text == 261
    assert tokenizer.encode("the the\n\n<|endoftext|>") == [257, 258, 260, 261]
    assert [tokenizer.token_bytes(rank) for rank in SMALL_RANKS.values()] == list(SMALL_RANKS)
    make: Any = PreTrainedTokenizerFast
    theirs = make(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text in TEXTS:
        assert tokenizer.encode(text) == theirs(text)["input_ids"]


def test_pipeline_wins_over_tables(tmp_path: Path) -> None:
    write_hf(tmp_path, {b"x": 0}, {})
    assert load(pipeline(tmp_path)).n_vocab == 262


def test_an_unknown_token_stands_for_bytes_without_one(tmp_path: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        content["model"]["unk_token"] = "<|endoftext|>"
        content["model"]["vocab"].pop("z")

    assert load(pipeline(tmp_path, edit)).encode("the z") == [257, 32, 261]


def test_templates_truncation_and_padding_are_off(tmp_path: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        content["truncation"] = {
            **{"max_length": 2, "strategy": "LongestFirst"},
            **{"stride": 0, "direction": "Right"},
        }
        content["padding"] = {
            **{"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None},
            **{"pad_id": 0, "pad_type_id": 0, "pad_token": "x"},
        }
        content["post_processor"] = {
            **{"type": "TemplateProcessing", "pair": []},
            "single": [
                {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "special_tokens": {
                "<|endoftext|>": {
                    **{"id": "<|endoftext|>", "ids": [261]},
                    "tokens": ["<|endoftext|>"],
                }
            },
        }

    assert load(pipeline(tmp_path, edit)).encode("the the the") == [257, 258, 258]


def test_added_token_that_the_configuration_alone_names(tmp_path: Path) -> None:
    decoder = {"262": added("<pad>")}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    tokenizer = load(pipeline(tmp_path))
    assert tokenizer.n_vocab == 263
    assert tokenizer.encode("the<pad>") == [257, 262]


def test_added_token_whose_id_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / "added_tokens.json").write_text('{"<pad>": 400}')
    with pytest.raises(TokenizerError) as caught:
        load(pipeline(tmp_path))
    assert "the added token '<pad>' should have id 400, and comes out as 262" in (
        caught.value.message
    )


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda content: content["model"].update(type="Nonsense"), "no tokenizer that works"),
        (lambda content: content["model"].update(continuing_subword_prefix="xxx"), "no tokenizer"),
        (lambda content: content["decoder"].update(type={}), "no tokenizer that works"),
        (lambda content: content.update(model=[]), "its model is no object"),
        (lambda content: content["model"].update(vocab=5), "its vocab is no object"),
        (lambda content: content["model"].update(vocab=[5]), "no list of tokens and scores"),
        (lambda content: content.update(added_tokens=[5]), "added token None has no content"),
        (
            lambda content: content.update(pre_tokenizer=None, decoder={"type": "Fuse"}),
            "is of a kind not known here: model 'BPE', decoder 'Fuse'",
        ),
        (
            lambda content: content.update(pre_tokenizer=None, decoder=None),
            "is of a kind not known here: model 'BPE', decoder 'none'",
        ),
        (
            lambda content: content.update(
                model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
                **{"pre_tokenizer": None, "decoder": {"type": "Fuse"}, "added_tokens": []},
            ),
            "is of a kind not known here: model 'WordLevel', decoder 'Fuse'",
        ),
    ],
)
def test_damaged_pipeline(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    with pytest.raises(TokenizerError) as caught:
        load(pipeline(tmp_path, edit))
    assert message in caught.value.message


def save(library: tokenizers.Tokenizer, folder: Path) -> Tokenizer:
    library.save(str(folder / "tokenizer.json"))
    return load(folder)


def test_word_piece(tmp_path: Path) -> None:
    vocab = {"[UNK]": 0, "low": 1, "##er": 2, "new": 3, "##est": 4}
    library = tokenizers.Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.decoder = decoders.WordPiece()
    tokenizer = save(library, tmp_path)
    assert tokenizer.encode("lower newest") == [1, 2, 3, 4]
    assert tokenizer.decode([1, 2, 3, 4]) == " lower newest"


def test_marked_blanks_with_bytes_to_fall_back_on(tmp_path: Path) -> None:
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁": 256, "a": 257, "▁a": 258}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("▁", "a")], byte_fallback=True))
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer = save(library, tmp_path)
    ids = tokenizer.encode("a aé")
    assert ids == [258, 258, 0xC3, 0xA9]
    assert tokenizer.decode(ids) == library.decode(ids) == " a aé"


def test_blanks_that_the_normalizer_alone_marks(tmp_path: Path) -> None:
    vocab = {"▁": 0, "a": 1, "▁a": 2, "<unk>": 3}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("▁", "a")], unk_token="<unk>"))
    library.normalizer = normalizers.Replace(" ", "▁")
    library.decoder = decoders.Fuse()
    tokenizer = save(library, tmp_path)
    assert tokenizer.encode("a a") == [1, 2]
    assert tokenizer.decode([1, 2]) == "a a"
    assert tokenizer.encode("\n") == [3]
    assert start_id(tokenizer) == 0


@pytest.mark.parametrize("mark", ["▁", "_"])
def test_unigram(tmp_path: Path, mark: str) -> None:
    rows = [("<unk>", 0.0), (f"{mark}lo", -1.0), ("w", -1.0), (mark, -2.0)]
    library = tokenizers.Tokenizer(models.Unigram(rows, unk_id=0))
    library.pre_tokenizer = pre_tokenizers.Metaspace(replacement=mark)
    library.decoder = decoders.Metaspace(replacement=mark)
    tokenizer = save(library, tmp_path)
    assert tokenizer.encode("low low") == [1, 2, 1, 2]
    assert tokenizer.decode([1, 2, 1, 2]) == " low low"
    assert tokenizer.n_vocab == 4


def test_word_ends_that_are_marked(tmp_path: Path) -> None:
    library = tokenizers.Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(vocab_size=40, end_of_word_suffix="</w>", show_progress=False)
    library.train_from_iterator(["low lower lowest"] * 5, trainer)
    tokenizer = save(library, tmp_path)
    assert tokenizer.decode(tokenizer.encode("lower low")) == "lower low "


def test_words(tmp_path: Path) -> None:
    library = tokenizers.Tokenizer(models.WordLevel({"the": 0, "cat": 1}, unk_token="the"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = save(library, tmp_path)
    assert tokenizer.separator == b" "
    assert not tokenizer.is_bpe
    assert tokenizer.decode(tokenizer.encode("cat the")) == "cat the"


@pytest.mark.real
def test_real_folder() -> None:
    folder = zoo_folder("hf-tiny-21")
    tokenizer = load(folder)
    theirs = GPT2Tokenizer.from_pretrained(folder, clean_up_tokenization_spaces=False)
    assert tokenizer.n_vocab == 21
    assert tokenizer.end_of_text == 20
    assert tokenizer.encode("lowest<|endoftext|> low") == [0, 1, 2, 3, 5, 6, 20, 14]
    assert tokenizer.token_bytes(16) == b" lowest"
    assert tokenizer.token_bytes(20) == b"<|endoftext|>"
    for text in ("lower newer wider", " low  lower", "<unk>low", "lowest <|endoftext|>"):
        assert tokenizer.encode(text) == theirs(text)["input_ids"]
    with pytest.raises(UsageError, match=r"'h' U\+0068, ',' U\+002C$"):
        tokenizer.encode("hello, world")
