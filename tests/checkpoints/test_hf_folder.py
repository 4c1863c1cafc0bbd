"""Hugging Face folders as transformers writes them, and folders that are damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.checkpoints.contents import TensorInfo
from nanogpt_cli.checkpoints.hugging_face.folder import HuggingFaceFolder, is_plain_name
from nanogpt_cli.errors import CheckpointError

ZOO = Path(os.environ.get("NANOGPT_ZOO", Path(__file__).resolve().parents[3] / "shared" / "zoo"))
FORMAT = HuggingFaceFolder()
CONFIG = {"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 4, "n_positions": 8}

Save = Callable[[Any, Path], None]


def model(cls: Any = GPT2LMHeadModel, **settings: Any) -> Any:
    """Return a small random GPT-2 of transformers', biases and norms drawn too."""
    torch.manual_seed(5)
    sizes: dict[str, Any] = {"n_layer": 3, "n_head": 5, "n_embd": 40, "n_positions": 16}
    made = cls(GPT2Config(vocab_size=29, **sizes, **settings)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def logits(made: Any, idx: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor
    with torch.no_grad():
        if isinstance(made, GPT2Model):
            out = made(idx).last_hidden_state @ made.wte.weight.T
            return out
        out = made(idx).logits
        return out


def save_safetensors(made: Any, folder: Path) -> None:
    made.save_pretrained(folder)


def save_sharded(made: Any, folder: Path) -> None:
    made.save_pretrained(folder, max_shard_size="40KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    assert not (folder / "model.safetensors").exists()


def save_bin(made: Any, folder: Path, *, zipped: bool = True) -> None:
    made.config.save_pretrained(folder)
    torch.save(
        made.state_dict(),
        folder / "pytorch_model.bin",
        _use_new_zipfile_serialization=zipped,
    )


def save_old_bin(made: Any, folder: Path) -> None:
    save_bin(made, folder, zipped=False)


def save_bin_shards(made: Any, folder: Path) -> None:
    made.config.save_pretrained(folder)
    state = dict(made.state_dict())
    names = sorted(state)
    halves = {"one.bin": names[::2], "two.bin": names[1::2]}
    for file, keys in halves.items():
        torch.save({key: state[key].clone() for key in keys}, folder / file)
    weight_map = {key: file for file, keys in halves.items() for key in keys}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


SAVES: list[Save] = [save_safetensors, save_sharded, save_bin, save_old_bin, save_bin_shards]


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (GPT2LMHeadModel, {}),
        (GPT2LMHeadModel, {"tie_word_embeddings": False, "activation_function": "gelu"}),
        (GPT2Model, {}),
    ],
)
def test_every_variant_gives_the_logits_of_transformers(
    tmp_path: Path, save: Save, cls: Any, settings: dict[str, Any]
) -> None:
    made = model(cls, **settings)
    save(made, tmp_path)
    assert FORMAT.sniff(tmp_path)
    ours = load_model(open_checkpoint(str(tmp_path))).eval()
    idx = torch.randint(29, (2, 16), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        got, _ = ours(idx, idx)
    # float32 sums in another order, over three layers, for logits of a few units.
    torch.testing.assert_close(got, logits(made, idx), atol=1e-4, rtol=0)


def test_a_head_at_the_embeddings_place_in_another_file_is_its_own(tmp_path: Path) -> None:
    made = model(tie_word_embeddings=False)
    made.config.save_pretrained(tmp_path)
    state = {name.removeprefix("transformer."): each for name, each in made.state_dict().items()}
    wte, head = "wte.weight", "lm_head.weight"
    files = {"one.bin": [wte], "two.bin": [head], "rest.bin": [*state.keys() - {wte, head}]}
    for file, keys in files.items():
        torch.save({key: state[key] for key in keys}, tmp_path / file)
    weight_map = {key: file for file, keys in files.items() for key in keys}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    architecture = open_checkpoint(str(tmp_path)).architecture
    embedding = architecture.weights["transformer.wte.weight"].info
    own = architecture.weights[head].info
    assert (embedding.storage, embedding.offset) == (own.storage, own.offset)
    assert architecture.tying == "untied"


def test_what_a_single_file_is_described_as(tmp_path: Path) -> None:
    save_safetensors(model(), tmp_path)
    contents = FORMAT.describe(tmp_path)
    assert (contents.path, contents.format) == (tmp_path, "huggingface")
    assert contents.container == "Hugging Face folder, model.safetensors, safetensors"
    assert contents.files == (tmp_path / "model.safetensors",)
    assert contents.metadata == {"format": "pt"}
    assert contents.hf_config == json.loads((tmp_path / "config.json").read_text())
    assert isinstance(contents.root, dict)
    assert contents.root["transformer.wte.weight"].shape == (29, 40)


def test_what_shards_are_described_as(tmp_path: Path) -> None:
    made = model()
    save_sharded(made, tmp_path)
    contents = FORMAT.describe(tmp_path)
    files = tuple(sorted(tmp_path.glob("model-*.safetensors")))
    assert contents.files == files
    assert contents.container == f"Hugging Face folder, {len(files)} shards, safetensors"
    assert isinstance(contents.root, dict)
    expected = dict(made.named_parameters())
    assert set(contents.root) == set(expected)
    for name, info in contents.root.items():
        assert isinstance(info, TensorInfo)
        assert info.path in files
        with info.path.open("rb") as file:
            file.seek(info.offset)
            stored = torch.frombuffer(bytearray(file.read(info.nbytes)), dtype=torch.float32)
        assert torch.equal(stored.reshape(info.shape), expected[name].detach())


def test_safetensors_win_over_bin(tmp_path: Path) -> None:
    save_bin(model(), tmp_path)
    save_safetensors(model(), tmp_path)
    assert FORMAT.describe(tmp_path).files == (tmp_path / "model.safetensors",)


def test_weights_under_a_wrong_name_are_read_by_content(tmp_path: Path) -> None:
    save_safetensors(model(), tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    assert FORMAT.describe(tmp_path).files == (tmp_path / "pytorch_model.bin",)


def folder_with(folder: Path, **files: str | bytes | dict[str, object]) -> Path:
    """Write config.json and the given files; "__" in a name stands for a dot."""
    for name, content in {"config__json": dict[str, object](CONFIG), **files}.items():
        path = folder / name.replace("__", ".")
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def index(weight_map: object) -> dict[str, object]:
    return {"weight_map": weight_map}


def refusal(folder: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        FORMAT.describe(folder)
    assert caught.value.exit_code == 1
    return caught.value


def shards(folder: Path, **shard_tensors: list[str]) -> None:
    for file, keys in shard_tensors.items():
        save_file({key: torch.zeros(2) for key in keys}, folder / f"{file}.safetensors")


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "C:x",
        "..",
        ".",
        "",
        "x\0y",
        "./x",
        "x/",
        3,
        None,
        ["x"],
    ],
)
def test_a_shard_name_must_be_plain(tmp_path: Path, name: object) -> None:
    assert not is_plain_name(name)
    folder_with(tmp_path, model__safetensors__index__json=index({"w": name}))
    message = refusal(tmp_path).message
    assert f"puts tensor 'w' in {name!r}: a shard must be a plain file name" in message


@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "a b", "ünï.bin", "..x"])
def test_plain_names(name: str) -> None:
    assert is_plain_name(name)


@pytest.mark.parametrize("weight_map", [None, {}, [], "x"])
def test_an_index_without_a_map(tmp_path: Path, weight_map: object) -> None:
    folder_with(tmp_path, model__safetensors__index__json=index(weight_map))
    assert refusal(tmp_path).message.endswith("model.safetensors.index.json' has no weight_map")


def test_missing_shards_are_named(tmp_path: Path) -> None:
    weight_map = {f"w{i}": f"part-{i}.safetensors" for i in range(7)}
    folder_with(tmp_path, model__safetensors__index__json=index(weight_map))
    save_file({"w3": torch.zeros(2)}, tmp_path / "part-3.safetensors")
    assert refusal(tmp_path).message == (
        f"{str(tmp_path)!r} lacks 6 of 7 shards: 'part-0.safetensors', 'part-1.safetensors', "
        "'part-2.safetensors', 'part-4.safetensors', 'part-5.safetensors' and 1 more"
    )


def test_a_tensor_that_is_not_in_its_shard(tmp_path: Path) -> None:
    weight_map = {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}
    folder_with(tmp_path, model__safetensors__index__json=index(weight_map))
    shards(tmp_path, one=["a"], two=["b", "c"])
    shard = str(tmp_path / "one.safetensors")
    assert refusal(tmp_path).message == f"shard {shard!r} lacks 1 tensors: 'b'"


def test_a_tensor_that_the_index_does_not_know(tmp_path: Path) -> None:
    weight_map = {"a": "one.safetensors", "c": "two.safetensors"}
    folder_with(tmp_path, model__safetensors__index__json=index(weight_map))
    shards(tmp_path, one=["a"], two=["a", "c"])
    shard = str(tmp_path / "two.safetensors")
    assert refusal(tmp_path).message == f"shard {shard!r} holds beyond the index 1 tensors: 'a'"


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("tf_model__h5", "TensorFlow"),
        ("model__ckpt__index", "TensorFlow"),
        ("flax_model__msgpack", "Flax"),
        ("model__onnx", "ONNX"),
    ],
)
def test_other_frameworks_weights_are_named(tmp_path: Path, name: str, framework: str) -> None:
    folder_with(tmp_path, **{name: b"x"})
    assert FORMAT.sniff(tmp_path)
    file = name.replace("__", ".")
    error = refusal(tmp_path)
    assert error.message == (
        f"{str(tmp_path)!r} has {framework} weights alone ({file}): "
        "only model.safetensors and pytorch_model.bin are read"
    )
    assert error.hint is not None
    assert error.hint.startswith("transformers 4 turns it into safetensors: ")


def test_a_folder_without_weights_or_of_another_kind(tmp_path: Path) -> None:
    assert not FORMAT.sniff(tmp_path / "nothing")
    assert not FORMAT.sniff(folder_with(tmp_path))
    assert refusal(tmp_path).message == f"{str(tmp_path)!r} has config.json and no weights"
    folder_with(tmp_path, config__json={"model": {"n_layer": 3}}, model__safetensors=b"x")
    assert not FORMAT.sniff(tmp_path)
    assert refusal(tmp_path).message == f"{str(tmp_path)!r} has no Hugging Face config.json"


def test_a_damaged_config_beside_weights_is_told_as_such(tmp_path: Path) -> None:
    folder_with(tmp_path, config__json="{", model__safetensors=b"x")
    assert FORMAT.sniff(tmp_path)
    assert "config.json' is not valid JSON" in refusal(tmp_path).message


@pytest.mark.parametrize("name", ["model__safetensors", "pytorch_model__bin"])
def test_a_pointer_instead_of_weights_is_recognised(tmp_path: Path, name: str) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
    folder_with(tmp_path, **{name: pointer})
    assert FORMAT.sniff(tmp_path)
    message = refusal(tmp_path).message
    assert str(tmp_path / name.replace("__", ".")) in message
    assert "LFS" in message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "gptj"}, "config.json has model_type 'gptj': "),
        ({"n_inner": 128}, "config.json has n_inner 128: "),
        ({"scale_attn_by_inverse_layer_idx": True}, "config.json has scale_attn_by_inverse_layer"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config ('gptq')"),
    ],
)
def test_what_config_json_says_of_another_model_is_heard(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    save_safetensors(model(), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(str(tmp_path))
    assert said in caught.value.message


@pytest.mark.real
@pytest.mark.skipif(not ZOO.is_dir(), reason="the folder of real files is absent")
def test_a_real_model_without_prefix_and_head() -> None:
    ours = load_model(open_checkpoint(str(ZOO / "hf-tiny-21"))).eval()
    with torch.no_grad():
        last = ours(torch.tensor([[1, 5, 7, 2, 11]]))[0][0, -1]
    expected = torch.tensor([0.036003, 0.024518, 0.040265, -0.039836])
    torch.testing.assert_close(last[:4], expected, atol=1e-6, rtol=0)  # printed digits
    assert last.argmax() == 2
    assert abs(last.logsumexp(0) - 3.037626) < 1e-6


@pytest.mark.real
@pytest.mark.skipif(not ZOO.is_dir(), reason="the folder of real files is absent")
def test_a_real_model_in_the_old_torch_format() -> None:
    checkpoint = open_checkpoint(str(ZOO / "hf-legacy-bin"))
    assert checkpoint.contents.container.startswith("Hugging Face folder, pytorch_model.bin, ")
    ours = load_model(checkpoint)
    assert (ours.config.n_layer, ours.config.n_embd, ours.config.block_size) == (2, 2, 1024)
    masks = checkpoint.architecture.masks
    assert {name.rpartition(".")[2] for name in masks} == {"bias", "masked_bias"}
    assert {info.shape for name, info in masks.items() if name.endswith("attn.bias")} == {
        (1, 1, 1024, 1024)
    }
