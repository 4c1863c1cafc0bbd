"""Whatever the model, prompts and settings: a text is one text.

Streamed and whole, alone and in a batch, in shards and after an interruption: byte for byte.
"""

from __future__ import annotations

import base64
import functools
import json
import random
import tempfile
from dataclasses import replace
from pathlib import Path

from conftest import CACHE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_files import build, save_nanogpt

from nanogpt_cli import output
from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.generation.batch.prompts import PromptRow, Shard
from nanogpt_cli.generation.batch.row_file import RowFile
from nanogpt_cli.generation.batch.samples import sample_rows
from nanogpt_cli.generation.batch.written import Expected, Written
from nanogpt_cli.generation.prompt import PromptText
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.steps.choose import StepChoice

CASES = 500
PIECES = ["é", "€", "日", "本", "🙂", "th", "an", " a", "ab", " t", "日本", "é€", "an a"]
LETTERS = [*PIECES, "a", "b", " ", "\n", "\x1b", "z", "[b]"]
MODELS = 12


def write_ranks(path: Path) -> int:
    """Write a table of all bytes and some pieces of several, ends of characters among them."""
    tokens = [bytes([byte]) for byte in range(256)]
    for piece in PIECES:
        data = piece.encode()
        tokens += [data[:end] for end in range(2, len(data) + 1) if data[:end] not in tokens]
    lines = [base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)]
    path.write_bytes(b"".join(lines))
    return len(tokens)


@functools.cache
def sessions() -> list[Session]:
    """Models of random shapes over a vocabulary of bytes and their pieces."""
    random_shape, made = random.Random(5), []
    folder = Path(tempfile.mkdtemp(dir=CACHE.name))
    for number in range(MODELS):
        place = folder / str(number)
        place.mkdir()
        V = write_ranks(place / "pieces.tiktoken") + 1  # and an id that only pads
        n_head = random_shape.choice([1, 2, 3])
        model = build(
            number,
            block_size=random_shape.choice([5, 8, 16]),
            vocab_size=V,
            n_layer=random_shape.choice([1, 2]),
            n_head=n_head,
            n_embd=n_head * random_shape.choice([4, 7, 16]),
            bias=random_shape.random() < 0.5,
            spread=random_shape.choice([0.05, 0.3]),
        )
        opened = open_checkpoint(str(save_nanogpt(place / "ckpt.pt", model)))
        choice = StepChoice(compile=True, threads=1, folder=Path(CACHE.name, "nanogpt"))
        made.append(Session(opened, device="cpu", choice=choice))
    return made


SETTINGS = st.builds(
    SampleSettings,
    num_samples=st.integers(1, 3),
    max_new_tokens=st.sampled_from([0, 1, 7, 20]),
    filters=st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0, 0.7, 1.5]),
            "top_k": st.sampled_from([0, 1, 20, 200]),
            "top_p": st.sampled_from([1.0, 0.8]),
            "min_p": st.sampled_from([0.0, 0.05]),
            "repetition_penalty": st.sampled_from([1.0, 1.3]),
        }
    ),
    seed=st.integers(0, 2**64),
    stop=st.sampled_from([(), (), ("a",), ("é", "b "), ("日",), ("an",)]),
    ignore_eos=st.booleans(),
    logprobs=st.sampled_from([None, None, 0, 2]),
    window_stride=st.sampled_from([1, 1, 3]),
)
PROMPTS = st.lists(
    st.lists(st.sampled_from(LETTERS), max_size=30).map("".join), min_size=1, max_size=5
)


def lines_of(
    session: Session, rows: list[PromptRow], asked: SampleSettings, batch_size: int | None = None
) -> list[str]:
    made = sample_rows(session, rows, asked, batch_size=batch_size)
    return [output.to_json(row) + "\n" for row in made]


@given(
    model=st.integers(0, MODELS - 1),
    prompts=PROMPTS,
    asked=SETTINGS,
    batch_size=st.sampled_from([None, 1, 2, 3, 7]),
    shards=st.integers(2, 3),
    cut=st.floats(0, 1),
)
@settings(max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.data_too_large])
def test_a_text_is_one_text(
    model: int,
    prompts: list[str],
    asked: SampleSettings,
    batch_size: int | None,
    shards: int,
    cut: float,
) -> None:
    session = sessions()[model]
    rows = [PromptRow(number, prompt) for number, prompt in enumerate(prompts)]

    alone = [line for row in rows for line in lines_of(session, [row], asked)]
    whole = lines_of(session, rows, asked, batch_size)
    assert whole == alone

    for row in rows:
        check_streamed(session, row, asked, whole[row.row * asked.num_samples :])

    parts = [
        lines_of(session, [row for row in rows if Shard(index, shards).holds(row.row)], asked)
        for index in range(shards)
    ]
    merged = [
        line
        for row in rows
        for line in (parts[row.row % shards].pop(0) for _ in range(asked.num_samples))
    ]
    assert merged == whole

    data = "".join(whole).encode()
    assert resume(session, rows, asked, data[: round(cut * len(data))]) == data


def check_streamed(
    session: Session, row: PromptRow, asked: SampleSettings, lines: list[str]
) -> None:
    """The first sample's pieces, joined, are its ids decoded at once, cut at the first stop."""
    assert row.prompt is not None
    prompt = session.encode(PromptText(row.prompt), special=asked.special)
    one = replace(asked, num_samples=1)
    pieces = list(session.sample(prompt, one))
    report = session.report(prompt, one, pieces)
    unstopped = session.sample(prompt, replace(one, stop=()))
    text = session.tokenizer.decode([piece.id for piece in unstopped if piece.id is not None])
    found = [at for at in (text.find(stop) for stop in asked.stop) if at >= 0]
    assert report.text == (text[: min(found)] if found else text)
    row_of_batch = json.loads(lines[0])
    assert row_of_batch["text"] == report.text
    assert row_of_batch["ids"] == report.ids
    assert row_of_batch["finish_reason"] == report.finish_reason


def resume(session: Session, rows: list[PromptRow], asked: SampleSettings, begun: bytes) -> bytes:
    """Go on with a file that ends anywhere; return all of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.jsonl")
        path.write_bytes(begun)
        expected = Expected(
            settings=asked.as_dict(**session.identity),
            dtype=session.dtype_name,
            seed=asked.seed,
            num_samples=asked.num_samples,
            alternatives=asked.logprobs,
            shard=Shard(),
        )
        with RowFile(path, keep=True) as file:
            written = Written(path, expected)
            file.cut(written.size)
            for row in sample_rows(session, rows, asked, wanted=written.lacks):
                file.append(output.to_json(row) + "\n")
        return path.read_bytes()
