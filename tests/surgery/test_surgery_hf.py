"""Cropping Hugging Face folders and safetensors, against transformers and the reference library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from crop_files import raw
from model_files import build
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.errors import UsageError
from nanogpt_cli.surgery import CropReport, crop

WPE = "transformer.wpe.weight"


def reference(**config: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 3, "n_embd": 24, "vocab_size": 65, "n_positions": 16}
    settings = GPT2Config(**{**sizes, "n_ctx": 16, "bos_token_id": 0, "eos_token_id": 0, **config})
    model: Any = GPT2LMHeadModel(settings)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


def saved(folder: Path, **options: Any) -> tuple[Path, Any]:
    model = reference()
    model.save_pretrained(folder, **options)
    config = json.loads((folder / "config.json").read_text())
    config["n_ctx"] = 16
    (folder / "config.json").write_text(json.dumps(config))
    return folder, model


def run(path: Path, block_size: int, **options: Any) -> CropReport:
    return crop(open_checkpoint(str(path)), block_size, **options)


def assert_same_logits(folder: Path, model: Any, block_size: int) -> None:
    load: Any = GPT2LMHeadModel.from_pretrained
    loaded, info = load(folder, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert loaded.config.n_positions == block_size
    idx = torch.arange(block_size).unsqueeze(0)
    with torch.no_grad():
        # Where weights lie in memory decides how products are summed, to a few last bits.
        torch.testing.assert_close(
            loaded.eval()(idx).logits, model(idx).logits, atol=1e-6, rtol=1e-6
        )


def test_a_folder_beside_the_input_that_transformers_loads(tmp_path: Path) -> None:
    folder, model = saved(tmp_path / "small")
    (folder / "vocab.json").write_text('{"a": 0}')
    (folder / "README.md").write_text("a card")
    report = run(folder, 8)
    cropped = tmp_path / "small-8"
    assert report.output == str(cropped)
    assert_same_logits(cropped, model, 8)
    assert report.verification is not None
    assert report.verification.largest_difference == 0
    before = json.loads((folder / "config.json").read_text())
    after = json.loads((cropped / "config.json").read_text())
    assert after == {**before, "n_positions": 8, "n_ctx": 8}
    assert list(after) == list(before)
    for name in ("vocab.json", "README.md", "generation_config.json"):
        assert (cropped / name).read_bytes() == (folder / name).read_bytes()
    tensors = [load_file(each / "model.safetensors") for each in (folder, cropped)]
    assert list(tensors[0]) == list(tensors[1])
    for name, tensor in tensors[0].items():
        assert raw(tensors[1][name]) == raw(tensor[:8] if name == WPE else tensor), name
    with safe_open(cropped / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_the_stock_layout_without_prefix_and_head_and_with_masks(tmp_path: Path) -> None:
    folder, model = saved(tmp_path / "stock")
    state = {
        name.removeprefix("transformer."): tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    for layer in range(2):
        state[f"h.{layer}.attn.bias"] = torch.ones(16, 16).tril().view(1, 1, 16, 16)
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    report = run(folder, 8)
    after = load_file(tmp_path / "stock-8" / "model.safetensors")
    assert set(after) == set(state)
    assert torch.equal(after["h.1.attn.bias"], torch.ones(8, 8).tril().view(1, 1, 8, 8))
    assert after["wpe.weight"].shape == (8, 24)
    assert report.verification is not None
    assert report.verification.largest_difference == 0


def test_shards_keep_their_names_and_their_index(tmp_path: Path) -> None:
    folder, model = saved(tmp_path / "shards", max_shard_size="20KB")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    run(folder, 8)
    cropped = tmp_path / "shards-8"
    assert_same_logits(cropped, model, 8)
    after = json.loads((cropped / "model.safetensors.index.json").read_text())
    assert after["weight_map"] == index["weight_map"]
    assert after["metadata"]["total_size"] == index["metadata"]["total_size"] - 8 * 24 * 4


def test_weights_in_torchs_format(tmp_path: Path) -> None:
    folder, model = saved(tmp_path / "bin")
    (folder / "model.safetensors").unlink()
    state = model.state_dict()
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    report = run(folder, 8)
    assert any("output is a zip" in note for note in report.notes)
    after = torch.load(tmp_path / "bin-8" / "pytorch_model.bin", weights_only=True)
    assert list(after) == list(state)
    assert raw(after[WPE]) == raw(state[WPE][:8])
    assert_same_logits(tmp_path / "bin-8", model, 8)


def test_other_weights_and_training_state_stay_behind(tmp_path: Path) -> None:
    folder, model = saved(tmp_path / "trainer")
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    for name in ("optimizer.pt", "rng_state.pth", "tf_model.h5", "OLD.GGUF", ".hidden"):
        (folder / name).write_bytes(b"x")
    index = {"weight_map": {"wte.weight": "pytorch_model-00001-of-00002.bin"}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    (folder / "runs").mkdir()
    report = run(folder, 8)
    names = {path.name for path in (tmp_path / "trainer-8").iterdir()}
    assert names == {"config.json", "generation_config.json", "model.safetensors"}
    assert report.notes == (
        "not taken along, since they may be of the old size: 'OLD.GGUF', 'optimizer.pt', "
        "'pytorch_model.bin', 'pytorch_model.bin.index.json', 'rng_state.pth' and 2 more",
    )


def test_a_tied_head_stored_twice_goes_from_safetensors(tmp_path: Path) -> None:
    folder, model = saved(tmp_path / "twice")
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    run(folder, 8)
    after = load_file(tmp_path / "twice-8" / "model.safetensors")
    assert set(state) - set(after) == {"lm_head.weight"}
    assert_same_logits(tmp_path / "twice-8", model, 8)


def test_a_head_that_the_config_unties_stays_though_equal(tmp_path: Path) -> None:
    folder, model = saved(tmp_path / "untied")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    run(folder, 8)
    assert "lm_head.weight" in load_file(tmp_path / "untied-8" / "model.safetensors")
    assert_same_logits(tmp_path / "untied-8", model, 8)


def test_a_cast_is_written_into_the_config(tmp_path: Path) -> None:
    folder, model = saved(tmp_path / "small")
    run(folder, 8, dtype="bfloat16")
    cropped = tmp_path / "small-8"
    config = json.loads((cropped / "config.json").read_text())
    before = json.loads((folder / "config.json").read_text())
    assert {name for name in before if config[name] != before[name]} == {
        *("n_positions", "n_ctx"),
        "dtype" if "dtype" in before else "torch_dtype",
    }
    after = load_file(cropped / "model.safetensors")
    for name, tensor in after.items():
        whole = model.state_dict()[name]
        assert raw(tensor) == raw((whole[:8] if name == WPE else whole).bfloat16())


def test_the_size_that_it_has_gives_the_files_again(tmp_path: Path) -> None:
    folder, _ = saved(tmp_path / "small")
    (folder / "pytorch_model.bin").write_bytes(b"another")
    report = run(folder, 16)
    assert report.is_copy
    for path in folder.iterdir():
        assert (tmp_path / "small-16" / path.name).read_bytes() == path.read_bytes()


def test_a_snapshot_of_links_becomes_a_folder_of_files(tmp_path: Path) -> None:
    blobs, model = saved(tmp_path / "blobs")
    folder = tmp_path / "snapshot"
    folder.mkdir()
    for path in blobs.iterdir():
        (folder / path.name).symlink_to(path)
    run(folder, 8)
    assert_same_logits(tmp_path / "snapshot-8", model, 8)
    assert not any(path.is_symlink() for path in (tmp_path / "snapshot-8").iterdir())


def test_our_own_entry_of_the_config_follows(tmp_path: Path) -> None:
    folder, _ = saved(tmp_path / "ours")
    config = json.loads((folder / "config.json").read_text())
    own = {"activation": "gelu_tanh", "bias": True, "sizes": {"block_size": 16, "n_layer": 2}}
    (folder / "config.json").write_text(json.dumps({**config, "nanogpt": own}))
    run(folder, 8)
    after = json.loads((tmp_path / "ours-8" / "config.json").read_text())["nanogpt"]
    assert after == {**own, "sizes": {"block_size": 8, "n_layer": 2}}


def test_sizes_in_the_metadata_of_a_folders_weights_follow(tmp_path: Path) -> None:
    folder, _ = saved(tmp_path / "small")
    weights = folder / "model.safetensors"
    metadata = {"format": "pt", "block_size": "16", "n_layer": "2"}
    save_file(load_file(weights), weights, metadata)
    run(folder, 5)
    with safe_open(tmp_path / "small-5" / "model.safetensors", "pt") as file:
        assert file.metadata() == {**metadata, "block_size": "5"}


def test_a_replaced_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder, model = saved(tmp_path / "small")
    run(folder, 8)
    (tmp_path / "small-8" / "old.txt").write_text("old")
    with pytest.raises(UsageError, match="exists already"):
        run(folder, 8)
    run(folder, 8, force=True)
    assert not (tmp_path / "small-8" / "old.txt").exists()
    assert_same_logits(tmp_path / "small-8", model, 8)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small", "small-8"]


def nanogpts(path: Path, **metadata: str) -> tuple[Path, Any]:
    """Write one safetensors file with nanoGPT's names."""
    model = build(activation="gelu_tanh")
    state = {name: t for name, t in model.state_dict().items() if name != "lm_head.weight"}
    save_file(state, path, metadata or None)
    return path, model


def test_a_bare_safetensors_file_says_its_sizes(tmp_path: Path) -> None:
    metadata = {"format": "pt", "note": "mine", "n_head": "3", "activation": "gelu_tanh"}
    path, model = nanogpts(tmp_path / "model.safetensors", **metadata)
    report = run(path, 8)
    cropped = tmp_path / "model-8.safetensors"
    assert report.output == str(cropped)
    with safe_open(cropped, "pt") as file:
        assert file.metadata() == {
            **metadata,
            **{"n_layer": "2", "n_embd": "24", "vocab_size": "65", "block_size": "8"},
        }
    loaded = load_model(open_checkpoint(str(cropped))).eval()
    assert (loaded.config.block_size, loaded.config.activation) == (8, "gelu_tanh")
    idx = torch.arange(8).unsqueeze(0)
    with torch.no_grad():
        torch.testing.assert_close(loaded(idx)[0], model(idx)[0], atol=1e-6, rtol=1e-6)


def test_what_a_bare_file_does_not_say_is_not_made_up(tmp_path: Path) -> None:
    path, _ = nanogpts(tmp_path / "model.safetensors")
    run(path, 8)
    with safe_open(tmp_path / "model-8.safetensors", "pt") as file:
        assert set(file.metadata()) == {"format", "n_layer", "n_embd", "vocab_size", "block_size"}


def test_a_file_of_a_folder_takes_what_the_config_says_with_it(tmp_path: Path) -> None:
    folder, _ = saved(tmp_path / "small")
    run(folder / "model.safetensors", 8)
    beside = open_checkpoint(str(folder / "model-8.safetensors"))
    assert (beside.config.block_size, beside.config.n_head) == (8, 3)
    run(folder / "model.safetensors", 8, output=tmp_path / "alone.safetensors")
    alone = open_checkpoint(str(tmp_path / "alone.safetensors"))
    assert alone.config == beside.config
    assert alone.config.activation == "gelu_tanh"
