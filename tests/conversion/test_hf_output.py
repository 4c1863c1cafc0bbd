"""The output `hf`: what transformers makes of the folder, its tokenizer included."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conversion_files import build_gpt2, load_hf, load_pt, same_tensors, save_gpt2, to
from model_files import ALPHABET, build, save_meta, save_nanogpt

from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.conversion.hf_folder import widest
from nanogpt_cli.errors import CheckpointError, UsageError
from nanogpt_cli.tokenizers.search import find_tokenizer

library: Any = transformers


@pytest.fixture
def said() -> Any:
    """Collect what transformers logs, which it keeps from pytest's own handler."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Handler()
    library.utils.logging.get_logger().addHandler(handler)
    yield lines
    library.utils.logging.get_logger().removeHandler(handler)


@pytest.mark.parametrize("config", [{}, {"bias": False}, {"tied_head": False}], ids=str)
def test_transformers_loads_it_without_a_word(
    tmp_path: Path, config: dict[str, Any], said: list[str]
) -> None:
    to(save_nanogpt(tmp_path / "ckpt.pt", build(**config)), tmp_path / "hf")
    model, found = library.GPT2LMHeadModel.from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )
    assert not any(found.values())
    tied = config.get("tied_head", True)
    assert (model.lm_head.weight is model.transformer.wte.weight) is tied
    assert said == []


def test_config_json_says_everything(tmp_path: Path) -> None:
    model = build(bias=False, dropout=0.1, n_layer=1)
    to(save_nanogpt(tmp_path / "ckpt.pt", model.to(torch.bfloat16)), tmp_path / "hf")
    sizes = {"block_size": 16, "vocab_size": 65, "n_layer": 1, "n_head": 3, "n_embd": 24}
    assert json.loads((tmp_path / "hf" / "config.json").read_text()) == {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": 1,
        "n_head": 3,
        "n_embd": 24,
        "n_positions": 16,
        "n_ctx": 16,
        "n_inner": None,
        "vocab_size": 65,
        "activation_function": "gelu",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "attn_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "resid_pdrop": 0.1,
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": "bfloat16",
        "dtype": "bfloat16",
        "nanogpt": {"bias": False, "activation": "gelu", "sizes": sizes},
    }
    loaded = library.GPT2LMHeadModel.from_pretrained(tmp_path / "hf")
    assert loaded.dtype == torch.bfloat16


@pytest.mark.parametrize(("ours", "theirs"), [("gelu", "gelu"), ("gelu_tanh", "gelu_new")])
def test_config_json_names_the_activation_as_transformers_does(
    tmp_path: Path, ours: str, theirs: str
) -> None:
    model = build(activation=ours, n_layer=1)
    to(save_nanogpt(tmp_path / "c.pt", model, nanogpt_cli={"activation": ours}), tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["activation_function"] == theirs


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_config_json_says_the_type_that_was_asked_for(tmp_path: Path, dtype: str) -> None:
    to(save_nanogpt(tmp_path / "ckpt.pt", build(n_layer=1)), tmp_path / "hf", dtype=dtype)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (config["dtype"], config["torch_dtype"]) == (dtype, dtype)
    assert {str(tensor.dtype) for tensor in load_hf(tmp_path / "hf").values()} == {f"torch.{dtype}"}


@pytest.mark.parametrize(
    ("dtypes", "wide"),
    [
        (["float32", "float64"], "float64"),
        (["float16", "float32"], "float32"),
        (["float16", "bfloat16"], "float32"),
        (["bfloat16"], "bfloat16"),
    ],
)
def test_the_type_that_holds_every_value(dtypes: list[str], wide: str) -> None:
    assert widest(dtypes) == wide


def test_a_sources_own_special_ids_are_kept_where_the_vocabulary_has_them(tmp_path: Path) -> None:
    source = save_gpt2(tmp_path / "hf", build_gpt2(bos_token_id=7, eos_token_id=64))
    to(source, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (7, 64)
    (source / "config.json").write_text(json.dumps({**config, "eos_token_id": 65}))
    to(source, tmp_path / "again")
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (7, None)


def test_the_matrix_is_stored_once_and_no_mask_is(tmp_path: Path) -> None:
    to(save_nanogpt(tmp_path / "ckpt.pt", build(attention="manual")), tmp_path / "hf")
    names = set(load_hf(tmp_path / "hf"))
    assert "lm_head.weight" not in names
    assert len(names) == 2 + 12 * 2 + 2
    assert not any(name.endswith(".attn.bias") for name in names)


def test_types_may_differ_between_tensors(tmp_path: Path) -> None:
    model = build()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    del state["lm_head.weight"]
    for name in state:
        if ".ln_" not in name:
            state[name] = state[name].to(torch.bfloat16)
    source = save_nanogpt(tmp_path / "ckpt.pt", model, model=state)
    report = to(source, tmp_path / "hf")
    assert report.model.dtypes == ("bfloat16", "float32")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["dtype"] == "float32"
    to(tmp_path / "hf", tmp_path / "back.pt")
    found = load_pt(tmp_path / "back.pt")["model"]
    del found["lm_head.weight"]
    assert same_tensors(found, state)


def test_conversion_json_leaves_the_account_in_the_folder(tmp_path: Path) -> None:
    report = to(save_nanogpt(tmp_path / "ckpt.pt", build()), tmp_path / "hf")
    record = json.loads((tmp_path / "hf" / "conversion.json").read_text())
    assert record["schema"] == "nanogpt.conversion/1"
    assert str(tmp_path) not in json.dumps(record)
    assert record["source"]["path"] == "ckpt.pt"
    for file in record["files"]:
        data = (tmp_path / "hf" / file["name"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (
            file["size_bytes"],
            file["sha256"],
        )
    names = {path.name for path in (tmp_path / "hf").iterdir()}
    assert {file["name"] for file in record["files"]} == names - {"conversion.json"}
    assert report.verification is not None
    assert record["verification"]["logits"]["tolerance"] == report.verification.logits.tolerance
    turned = {row["name"] for row in record["tensors"] if row["transposed"]}
    assert len(turned) == 8
    assert {row["source"] for row in record["tensors"]} == {
        row["name"] for row in record["tensors"]
    }


def test_our_own_entry_brings_a_model_without_biases_back(tmp_path: Path) -> None:
    source = save_nanogpt(tmp_path / "ckpt.pt", build(bias=False))
    report = to(source, tmp_path / "hf")
    assert sum(row.source is None for row in report.tensors) == 2 * 6 + 1
    again = open_checkpoint(str(tmp_path / "hf"))
    assert again.config.bias is False
    assert load_model(again).config.bias is False


def test_biases_trained_elsewhere_outweigh_our_entry(tmp_path: Path) -> None:
    to(save_nanogpt(tmp_path / "ckpt.pt", build(bias=False)), tmp_path / "hf")
    model = library.GPT2LMHeadModel.from_pretrained(tmp_path / "hf")
    with torch.no_grad():
        model.transformer.ln_f.bias[3] = 0.5
    model.save_pretrained(tmp_path / "tuned")
    assert json.loads((tmp_path / "tuned" / "config.json").read_text())["nanogpt"]["bias"] is False
    again = open_checkpoint(str(tmp_path / "tuned"))
    assert again.config.bias is True
    assert again.notes == (
        "config.json says bias false, but 'transformer.ln_f.bias' is not zero: biases are used",
    )
    report = to(tmp_path / "tuned", tmp_path / "tuned.pt")
    assert report.model.bias is True


def test_gpt2s_tokenizer_goes_along_from_the_package(tmp_path: Path) -> None:
    source = save_nanogpt(tmp_path / "ckpt.pt", build(vocab_size=50304, n_embd=6, n_layer=1))
    report = to(source, tmp_path / "hf", trim_vocab=True)
    assert report.tokenizer == "gpt2"
    assert report.left_out == ("47 rows of the vocabulary that the tokenizer lacks",)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (config["vocab_size"], config["bos_token_id"], config["eos_token_id"]) == (
        50257,
        50256,
        50256,
    )
    tokenizer = library.AutoTokenizer.from_pretrained(tmp_path / "hf")
    text = "hello world 0 00 000 0000<|endoftext|>"
    expected = [31373, 995, 657, 3571, 12877, 17643, 50256]
    assert tokenizer(text)["input_ids"] == expected
    assert (len(tokenizer), tokenizer.model_max_length) == (50257, 16)
    generation = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == 50256


def test_a_table_of_characters_goes_along_with_a_plain_word(tmp_path: Path) -> None:
    save_meta(tmp_path)
    source = save_nanogpt(tmp_path / "ckpt.pt", build())
    report = to(source, tmp_path / "hf")
    assert (tmp_path / "hf" / "meta.pkl").read_bytes() == (tmp_path / "meta.pkl").read_bytes()
    assert report.tokenizer == "char"
    assert any("transformers has no tokenizer" in note for note in report.notes)


def test_the_tokenizer_of_a_folder_goes_along_with_its_added_tokens(tmp_path: Path) -> None:
    to(save_nanogpt(tmp_path / "c.pt", build(vocab_size=50257, n_embd=6)), tmp_path / "first")
    tokenizer = library.AutoTokenizer.from_pretrained(tmp_path / "first")
    tokenizer.add_tokens(["<|user|>", "<|bot|>"])
    save_gpt2(tmp_path / "hf", build_gpt2(vocab_size=50259, n_embd=6, n_head=1))
    tokenizer.save_pretrained(tmp_path / "hf")
    report = to(tmp_path / "hf", tmp_path / "out")
    assert report.model.vocab_size == 50259
    again = library.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert again("a<|bot|>b")["input_ids"] == tokenizer("a<|bot|>b")["input_ids"]
    assert 50258 in again("a<|bot|>b")["input_ids"]
    there = tmp_path / "elsewhere"
    there.mkdir()
    to(tmp_path / "out", there / "gpt2.pt")
    found, _ = find_tokenizer(vocab_size=50259, near=there)
    assert found.token_bytes(50258) == b"<|bot|>"


def test_the_demos_ranks_become_tables_that_transformers_loads(tmp_path: Path) -> None:
    report = to("demo", tmp_path / "hf")
    assert report.tokenizer == "tiktoken"
    tokenizer = library.AutoTokenizer.from_pretrained(tmp_path / "hf")
    demo = open_checkpoint("demo")
    own, _ = find_tokenizer(vocab_size=demo.config.vocab_size, near=demo.folder)
    for text in ("First Citizen:\nBefore we proceed", "Zoë 日本 \U0001f600\n\n  x"):
        assert tokenizer(text)["input_ids"] == own.encode(text)
        assert tokenizer.decode(own.encode(text)) == text
    assert (len(tokenizer), tokenizer.eos_token_id) == (own.n_vocab, own.end_of_text)


def test_no_tokenizer_is_a_note_and_no_failure(tmp_path: Path) -> None:
    report = to(save_nanogpt(tmp_path / "ckpt.pt", build()), tmp_path / "hf", weights_only=True)
    assert report.tokenizer is None
    note, told = report.notes
    assert told == "--weights-only has no effect: hf holds weights alone"
    assert note.startswith("no tokenizer is known for this model, so none goes along: no tokenizer")


def test_a_tokenizer_travels_beside_a_file_only_where_it_would_not_be_found(
    tmp_path: Path,
) -> None:
    save_meta(tmp_path)
    source = save_nanogpt(tmp_path / "ckpt.pt", build())
    assert [file.name for file in to(source, tmp_path / "a.pt").files] == ["a.pt"]
    there = tmp_path / "there"
    there.mkdir()
    names = [file.name for file in to(source, there / "a.pt").files]
    assert names == ["a.pt", "meta.pkl"]
    assert (there / "meta.pkl").read_bytes() == (tmp_path / "meta.pkl").read_bytes()
    names = [file.name for file in to(source, there / "b.safetensors").files]
    assert names == ["b.safetensors"]


def test_another_models_table_is_not_overwritten(tmp_path: Path) -> None:
    save_meta(tmp_path / "in")
    source = save_nanogpt(tmp_path / "in" / "ckpt.pt", build())
    other = save_meta(tmp_path / "out", ALPHABET[::-1])
    before = other.read_bytes()
    with pytest.raises(UsageError, match=r"meta\.pkl' exists already"):
        to(source, tmp_path / "out" / "ckpt.pt")
    assert other.read_bytes() == before
    assert not (tmp_path / "out" / "ckpt.pt").exists()


def test_gpt2s_own_tables_do_not_litter_a_folder(tmp_path: Path) -> None:
    to(save_nanogpt(tmp_path / "c.pt", build(vocab_size=50257, n_embd=6)), tmp_path / "hf")
    there = tmp_path / "there"
    there.mkdir()
    to(tmp_path / "hf", there / "gpt2.pt")
    assert [path.name for path in there.iterdir()] == ["gpt2.pt"]


def test_tables_of_gpt2s_size_with_other_ids_go_along(tmp_path: Path) -> None:
    to(save_nanogpt(tmp_path / "c.pt", build(vocab_size=50257, n_embd=6)), tmp_path / "hf")
    vocab = json.loads((tmp_path / "hf" / "vocab.json").read_text())
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (tmp_path / "hf" / "vocab.json").write_text(json.dumps(vocab))
    there = tmp_path / "there"
    there.mkdir()
    to(tmp_path / "hf", there / "gpt2.pt")
    assert json.loads((there / "vocab.json").read_text()) == vocab


def test_what_a_tokenizer_json_holds_already_stays_behind(tmp_path: Path) -> None:
    source = save_nanogpt(tmp_path / "in" / "ckpt.pt", build())
    vocab = {letter: number for number, letter in enumerate(ALPHABET)}
    files: dict[str, object] = {
        "tokenizer.json": {"model": {"type": "BPE", "vocab": vocab, "merges": []}},
        "tokenizer_config.json": {"eos_token": "A"},
        "vocab.json": vocab,
        "merges.txt": [],
    }
    for name, content in files.items():
        (tmp_path / "in" / name).write_text(json.dumps(content))
    there = tmp_path / "there"
    there.mkdir()
    to(source, there / "x.safetensors")
    names = sorted(path.name for path in there.iterdir())
    assert names == ["tokenizer.json", "tokenizer_config.json", "x.safetensors"]


def test_a_flag_that_changes_half_precision_is_refused_only_there(tmp_path: Path) -> None:
    source = save_gpt2(tmp_path / "hf", build_gpt2(reorder_and_upcast_attn=True), torch.float16)
    with pytest.raises(CheckpointError, match="has reorder_and_upcast_attn True") as caught:
        to(source, tmp_path / "gpt2.pt")
    assert caught.value.exit_code == 1
    to(source, tmp_path / "gpt2.pt", dtype="float32")
    assert load_pt(tmp_path / "gpt2.pt")["model_args"]["n_layer"] == 2
