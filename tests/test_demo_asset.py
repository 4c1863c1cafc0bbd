"""The model in the box is what its card says."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import torch
from torch.nn import functional as F

from nanogpt_cli.model import GPT, GPTConfig

DEMO = Path(str(files("nanogpt_cli") / "assets" / "demo"))
TEXT = Path(__file__).resolve().parents[1] / "benchmarks" / "demo" / "tinyshakespeare.txt"
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MAX_CHECKPOINT_BYTES = 4_000_000
SCORED_CHARACTERS = 8_000
MAX_NATS_PER_CHARACTER = 1.65

with_text = pytest.mark.skipif(not TEXT.exists(), reason="the text is only in a checkout")


@pytest.fixture(scope="module")
def checkpoint() -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(DEMO / "ckpt.pt", weights_only=True)
    return loaded


@pytest.fixture(scope="module")
def ranks() -> dict[bytes, int]:
    lines = (DEMO / "demo.tiktoken").read_bytes().splitlines()  # tiktoken's loader would cache it
    pairs = [line.split() for line in lines]
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


@pytest.fixture(scope="module")
def encoding(ranks: dict[bytes, int]) -> tiktoken.Encoding:
    return tiktoken.Encoding("demo", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})


@pytest.fixture(scope="module")
def model(checkpoint: dict[str, Any]) -> GPT:
    model = GPT(GPTConfig(**checkpoint["model_args"]))
    model.load_state_dict(checkpoint["model"])
    return model.eval()


@pytest.fixture(scope="module")
def card() -> str:
    return (DEMO / "CARD.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def held() -> str:
    text = TEXT.read_text(encoding="utf-8")
    return text[len(text) * 9 // 10 :]


def test_the_file_is_small() -> None:
    assert (DEMO / "ckpt.pt").stat().st_size <= MAX_CHECKPOINT_BYTES


def test_one_rank_file_lies_beside_the_checkpoint() -> None:
    assert [path.name for path in DEMO.glob("*.tiktoken")] == ["demo.tiktoken"]


def test_the_file_is_a_stock_checkpoint(checkpoint: dict[str, Any]) -> None:
    assert list(checkpoint) == ["model", "model_args", "iter_num", "best_val_loss", "config"]
    assert sorted(checkpoint["model_args"]) == sorted(
        ["n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size", "dropout"]
    )
    assert checkpoint["iter_num"] == checkpoint["config"]["max_iters"]
    assert checkpoint["config"]["dataset"] == "tinyshakespeare"
    assert {type(value) for value in checkpoint["config"].values()} <= {str, int, float, bool}


def test_tensors_have_the_names_and_shapes_of_the_model(
    checkpoint: dict[str, Any], model: GPT
) -> None:
    stored = {name: tuple(tensor.shape) for name, tensor in checkpoint["model"].items()}
    assert stored == {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def test_tensors_are_finite_float16(checkpoint: dict[str, Any]) -> None:
    tensors = checkpoint["model"].values()
    assert {tensor.dtype for tensor in tensors} == {torch.float16}
    assert all(tensor.isfinite().all() for tensor in tensors)


def test_the_head_shares_the_embedding_s_storage(checkpoint: dict[str, Any]) -> None:
    head = checkpoint["model"]["lm_head.weight"]
    assert head.data_ptr() == checkpoint["model"]["transformer.wte.weight"].data_ptr()


def test_ranks_are_contiguous_and_fill_the_vocabulary(
    ranks: dict[bytes, int], checkpoint: dict[str, Any]
) -> None:
    assert sorted(ranks.values()) == list(range(checkpoint["model_args"]["vocab_size"]))
    assert {bytes([value]) for value in range(256)} <= set(ranks)


@pytest.mark.parametrize(
    "text", ["KING:\nTo be, or not?\n\n", "naïve 日本語 \U0001f600", "\x00\x7f\r\n\t ", ""]
)
def test_any_text_comes_back(encoding: tiktoken.Encoding, text: str) -> None:
    assert encoding.decode(encoding.encode(text)) == text


def test_the_card_names_these_very_files(card: str) -> None:
    for name in ("ckpt.pt", "demo.tiktoken"):
        data = (DEMO / name).read_bytes()
        assert f"| `{name}` | {len(data):,} | {hashlib.sha256(data).hexdigest()} |" in card


@with_text
def test_the_card_s_figure_is_the_checkpoint_s(
    card: str, checkpoint: dict[str, Any], encoding: tiktoken.Encoding, held: str
) -> None:
    figure = checkpoint["best_val_loss"] * len(encoding.encode(held)) / len(held)
    assert re.findall(r"\*\*(\d\.\d+) nats per character\*\*", card) == [f"{figure:.4f}"]


@with_text
def test_unseen_text_is_no_surprise(model: GPT, encoding: tiktoken.Encoding, held: str) -> None:
    """The start of the held tenth, windows moving by half a block, the first token unscored."""
    text = held[:SCORED_CHARACTERS]
    ids = torch.tensor(encoding.encode(text))
    size = model.config.block_size
    losses: list[float] = []
    for first in range(0, len(ids) - 1, size // 2):
        window = ids[first : first + size + 1]
        with torch.no_grad():
            logits, _ = model(window[None, :-1], window[None, 1:].contiguous())
        fresh = F.cross_entropy(logits[0], window[1:], reduction="none")[len(losses) - first :]
        losses.extend(fresh.tolist())
    assert len(losses) == len(ids) - 1
    assert sum(losses) / len(text) < MAX_NATS_PER_CHARACTER
