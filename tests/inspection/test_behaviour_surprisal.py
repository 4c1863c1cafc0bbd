"""Surprisal by hand, by training's loss, and by protocol.

CASES: perplexity is e to the mean over T - 1 tokens, 65.000 for zeros and 65 ids; one token has
none (129).
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from behaviour_subjects import IDS, subject, uniform
from model_files import build

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.generation.session import Session
from nanogpt_cli.inspection.behaviour import surprisal, windows
from nanogpt_cli.inspection.behaviour.subject import Subject, read_subject
from nanogpt_cli.inspection.behaviour.surprisal import measure
from nanogpt_cli.inspection.behaviour.text import read_tokens
from nanogpt_cli.inspection.behaviour.windows import Protocol, Window
from nanogpt_cli.model import GPT
from nanogpt_cli.tokenizers.char import CharTokenizer
from nanogpt_cli.tokenizers.search import find_tokenizer

LONG = [(7 * place * place + place) % 65 for place in range(75)]


def by_hand(model: GPT, ids: list[int], place: int, context: int) -> float:
    """Return the nats of ids[place] after at most `context` tokens, by the model alone."""
    before = torch.tensor([ids[max(0, place - context) : place]])
    with torch.no_grad():
        logits = model(before)[0][0, -1].double()
    return float(-logits.log_softmax(dim=-1)[ids[place]])


def test_zeros_give_the_size_of_the_vocabulary() -> None:
    report = measure(subject(uniform()))
    assert report.perplexity == pytest.approx(65, abs=1e-9)
    assert report.loss == pytest.approx(math.log(65), abs=1e-12)
    assert report.scored_tokens == len(IDS) - 1
    assert report.mean_entropy_bits == pytest.approx(math.log2(65), abs=1e-12)
    assert report.tokens is not None
    assert [token.bits for token in report.tokens[1:]] == pytest.approx([math.log2(65)] * 11)
    assert [token.rank for token in report.tokens[1:]] == [token + 1 for token in IDS[1:]]


def test_nothing_predicts_the_first_token() -> None:
    report = measure(subject())
    assert report.tokens is not None
    first = report.tokens[0]
    assert (first.id, first.bits, first.logprob, first.logit) == (3, None, None, None)
    assert (first.rank, first.entropy_bits) == (None, None)
    arrays = report.arrays()
    assert np.isnan(arrays["bits"][0])
    assert arrays["ranks"][0] == 0


def test_every_figure_by_hand() -> None:
    model = build()
    report = measure(subject(model))
    targets = torch.tensor([IDS])
    with torch.no_grad():
        logits, loss = model(targets[:, :-1], targets[:, 1:])
    assert loss is not None
    assert report.loss == pytest.approx(loss.item(), abs=1e-5)
    assert report.total_nats == pytest.approx(report.loss * 11)
    assert report.perplexity == pytest.approx(math.exp(report.loss))
    assert report.bits_per_token == pytest.approx(report.loss / math.log(2))
    assert report.protocol == "one window"
    assert report.windows == 1
    assert report.tokens is not None
    for place, token in enumerate(report.tokens[1:]):
        row = logits[0, place].double()
        chances = row.softmax(dim=-1)
        chance = chances[token.id].item()
        assert token.bits == pytest.approx(-math.log2(chance), abs=1e-4)
        assert token.logprob == pytest.approx(math.log(chance), abs=1e-4)
        assert token.logit == pytest.approx(row[token.id].item(), abs=1e-5)
        assert token.rank == 1 + int((row > row[token.id]).sum())
        expected = -sum(p * math.log2(p) for p in chances.tolist())
        assert token.entropy_bits == pytest.approx(expected, abs=1e-4)


def test_numbers_have_no_bytes() -> None:
    report = measure(subject())
    assert (report.scored_bytes, report.bits_per_byte) == (None, None)


def test_bytes_are_those_of_the_text() -> None:
    tokenizer, _ = find_tokenizer(
        vocab_size=50257, near=Path("/nowhere"), dataset=None, tokenizer="gpt2", meta=None
    )
    ids = tokenizer.encode("<|endoftext|>é b<|endoftext|> it")
    model = build(vocab_size=50257)
    report = measure(Subject("gpt2's table", model, tokenizer, ids))
    assert report.tokens is not None
    assert [token.label for token in report.tokens] == [
        *("<|endoftext|>", "é", "␣b", "<|endoftext|>", "␣it")
    ]
    assert [token.bits is None for token in report.tokens] == [True, *[False] * 4]
    assert report.scored_bytes == len("é b it".encode())
    assert report.bits_per_byte == pytest.approx(report.total_nats / math.log(2) / 7)


def test_the_space_before_a_word_is_a_byte_of_its_own() -> None:
    tokenizer = CharTokenizer(dict(enumerate(["the", "cat", "sat"])), "meta.pkl")
    report = measure(Subject("words", build(vocab_size=3), tokenizer, [0, 1, 2, 1]))
    assert report.scored_bytes == len(" cat sat cat")


@pytest.mark.parametrize(
    ("stride", "name", "count"), [(1, "sliding, stride 1", 59), (None, "sliding, stride 8", 9)]
)
def test_a_sliding_window_predicts_all_but_the_first(
    stride: int | None, name: str, count: int
) -> None:
    model = build()
    report = measure(subject(model, LONG), stride=stride)
    assert (report.protocol, report.windows, report.scored_tokens) == (name, count, 74)
    nats = -report.arrays()["logprobs"]
    for place in range(1, 75):
        step = stride or 8
        late = max(0, place - 16)  # the windows begin at multiples of the stride
        start = -(-late // step) * step
        assert nats[place] == pytest.approx(by_hand(model, LONG, place, place - start), abs=1e-4)


def test_disjoint_windows_are_the_mean_of_training_losses() -> None:
    model = build()
    report = measure(subject(model, LONG), stride=16)
    assert (report.protocol, report.windows) == ("disjoint windows", 4)
    assert report.scored_tokens == 64
    ids = torch.tensor(LONG)
    with torch.no_grad():
        loss = model(ids[:64].view(4, 16), ids[1:65].view(4, 16))[1]
    assert loss is not None
    assert report.loss == pytest.approx(loss.item(), abs=1e-5)
    assert report.tokens is not None
    assert [token.bits is None for token in report.tokens] == [
        place == 0 or place > 64 for place in range(75)
    ]


def test_many_windows_go_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    whole = measure(subject(ids=LONG), stride=1)
    monkeypatch.setattr(surprisal, "TOKENS_AT_ONCE", 16 * 10)
    monkeypatch.setattr("nanogpt_cli.inspection.behaviour.scoring.LOGITS_AT_ONCE", 65 * 3)
    parts = measure(
        subject(ids=LONG), stride=1, progress=lambda done, total: told.append((done, total))
    )
    assert parts.loss == pytest.approx(whole.loss, abs=1e-6)
    assert told == [(16, 74), (26, 74), (36, 74), (46, 74), (56, 74), (66, 74), (74, 74)]


def test_a_text_that_just_fits_is_one_window() -> None:
    assert Protocol(17, 16, 4).name == "one window"
    assert list(Protocol(17, 16, 4).windows()) == [Window(0, 16, 16)]
    assert Protocol(18, 16, 4).name == "sliding, stride 4"
    assert list(Protocol(18, 16, 4).windows()) == [Window(0, 16, 16), Window(4, 17, 1)]
    assert list(Protocol(18, 16, 16).windows()) == [Window(0, 16, 16)]
    assert Protocol(18, 16, 16).name == "disjoint windows"
    assert Protocol(99, 1).step == 1


@pytest.mark.parametrize("count", [2, 3, 15, 16, 17, 18, 31, 32, 33, 50])
@pytest.mark.parametrize("stride", [1, 2, 5, 15])
def test_sliding_windows_predict_each_token_once(count: int, stride: int) -> None:
    predicted: list[int] = []
    for window in Protocol(count, 16, stride).windows():
        assert window.stop - window.start <= 16
        predicted += range(window.stop - window.scored + 1, window.stop + 1)
    assert predicted == list(range(1, count))


def test_batches_are_the_windows_in_order() -> None:
    protocol = Protocol(75, 16, 8)
    batches = list(protocol.batches(48))
    assert [len(batch) for batch in batches] == [1, 3, 3, 1, 1]
    assert [window for batch in batches for window in batch] == list(protocol.windows())
    assert [len(batch) for batch in protocol.batches(1)] == [1] * 9


@pytest.mark.parametrize("stride", [0, -1, 17])
def test_a_stride_is_one_to_block_size(stride: int) -> None:
    with pytest.raises(UsageError, match=f"^--stride {stride}: it must be 1 to block_size, 16$"):
        measure(subject(), stride=stride)


def test_one_token_is_no_text() -> None:
    with pytest.raises(UsageError, match=r"^the text is one token"):
        measure(subject(ids=[3]))


def test_a_text_too_long_to_list_is_in_the_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surprisal, "MOST_LISTED", 74)
    report = measure(subject(ids=LONG))
    assert report.tokens is None
    assert np.isfinite(report.arrays()["bits"]).sum() == 74


def test_a_perplexity_beyond_all_numbers_is_none() -> None:
    model = build()
    with torch.no_grad():
        model.transformer.ln_f.weight.mul_(1e5)
    report = measure(subject(model))
    assert report.loss > 710
    assert report.perplexity is None


def test_logits_that_are_not_finite_name_the_tensor() -> None:
    model = build()
    with torch.no_grad():
        model.blocks[1].mlp.c_fc.weight[0, 0] = float("nan")
    with pytest.raises(NanoGPTError, match=r"first bad tensor is the weight .*h\.1\.mlp\.c_fc"):
        measure(subject(model))


def test_the_module_names_its_three_protocols() -> None:
    assert windows.__doc__ is not None
    assert all(name in windows.__doc__ for name in ("one window", "sliding", "disjoint windows"))


@pytest.fixture(scope="module")
def val_bin(zoo: Path) -> Subject:
    folder = zoo / "nanogpt-char"
    session = Session(open_checkpoint(str(folder / "ckpt.pt")), dtype="float32", device="cpu")
    tokens = read_tokens(folder / "val.bin", session.vocabulary)
    return read_subject(session, tokens, "nanogpt-char")


@pytest.mark.real
@pytest.mark.parametrize(
    ("stride", "name", "count", "scored", "loss"),
    [
        (1, "sliding, stride 1", 829, 892, 2.28523),
        (64, "disjoint windows", 13, 832, 2.22025),
    ],
)
def test_the_losses_of_a_real_file(
    val_bin: Subject, stride: int, name: str, count: int, scored: int, loss: float
) -> None:
    report = measure(val_bin, stride=stride)
    assert (report.protocol, report.windows, report.scored_tokens) == (name, count, scored)
    assert report.loss == pytest.approx(loss, abs=6e-6)
    assert report.scored_bytes == scored  # its characters are ASCII
    assert report.bits_per_byte == pytest.approx(report.bits_per_token)
