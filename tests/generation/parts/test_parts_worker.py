"""One worker's parts: the bytes of the local engine, kept and made again as they should be."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import CACHE
from model_files import build, save_meta, save_nanogpt
from ray_extra import needs_ray

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.batch.prompts import PromptReader
from nanogpt_cli.generation.batch.samples import SampleRow, sample_rows
from nanogpt_cli.generation.parts.job import PartReport, PartsJob, Recipe, read_report
from nanogpt_cli.generation.parts.plan import Lines, Part
from nanogpt_cli.generation.parts.worker import PartWorker
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.generation.steps.choose import StepChoice
from nanogpt_cli.generation.steps.library import find_compiler
from nanogpt_cli.output import to_json

pytestmark = needs_ray

PROMPTS: list[dict[str, Any]] = [
    {"prompt": "A", "id": "é", "note": 1},
    {"prompt": 5},
    {"prompt": "HELLO", "seed": 5},
    {"prompt": "THIS IS A PROMPT THAT IS TOO LONG"},
    {"prompt": "A", "id": "é"},
    {"prompt": "B"},
]
SETTINGS = SampleSettings(max_new_tokens=6, num_samples=2)


class Folder:
    """A checkpoint, prompts and an output; and what the local engine makes of them."""

    def __init__(self, path: Path) -> None:
        save_meta(path)
        self.checkpoint = save_nanogpt(path / "ckpt.pt", build())
        self.prompts = path / "prompts.jsonl"
        self.output = path / "rows"
        self.output.mkdir()
        self.write(PROMPTS)

    def write(self, prompts: list[dict[str, Any]]) -> None:
        self.prompts.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))

    @property
    def parts(self) -> tuple[Part, ...]:
        with self.prompts.open("rb") as stream:
            return Lines(stream, "prompts").split(4)

    def job(self, **changes: Any) -> PartsJob:
        recipe = Recipe(
            checkpoint=str(self.checkpoint),
            n_head=None,
            offline=True,
            tokenizer=None,
            meta=None,
            folder=Path.cwd(),
            device="cpu",
            dtype="float32",
            quantize=None,
            compile=False,
            threads=1,
            cache=Path(CACHE.name, "nanogpt"),
        )
        job = PartsJob(
            recipe=recipe,
            settings=SETTINGS,
            prompts=str(self.prompts),
            is_json=True,
            output=str(self.output),
            batch_size=None,
            identity=self.session.identity,
            step="eager",
        )
        in_recipe = {key: changes.pop(key) for key in list(changes) if hasattr(recipe, key)}
        return dataclasses.replace(job, recipe=dataclasses.replace(recipe, **in_recipe), **changes)

    @property
    def session(self) -> Session:
        return Session(open_checkpoint(str(self.checkpoint)), choice=StepChoice(compile=False))

    @property
    def expected(self) -> bytes:
        with self.prompts.open("rb") as stream:
            rows = list(sample_rows(self.session, PromptReader(stream, "prompts"), SETTINGS))
        return "".join(to_json(row) + "\n" for row in rows).encode()

    @property
    def written(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.output.iterdir()))

    def make(self, *, resume: bool = False, **changes: Any) -> list[PartReport]:
        """Make all parts, the last first, and pass the reports on as they are sent."""
        worker = PartWorker(self.job(**changes), to_json)
        reports = []
        for part in reversed(self.parts):
            there = resume and (self.output / part.name).exists()
            fields = {name: [value] for name, value in dataclasses.asdict(part).items()}
            (text,) = worker({**fields, "there": [there]})["report"]
            reports.append(read_report(text))
        return reports[::-1]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_parts_are_the_local_file(folder: Folder) -> None:
    first, last = folder.make()
    assert folder.written == folder.expected
    entry = first.entry
    assert entry is not None
    data = (folder.output / entry.name).read_bytes()
    assert dataclasses.asdict(entry) == {
        "name": "part-000000000000.jsonl",
        "first_row": 0,
        "prompts": 4,
        "rows": 7,
        "failed": 1,
        "new_tokens": 36,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    assert (first.made, first.kept, first.cut_prompts, first.passed_over) == (7, 0, 1, ["note"])
    assert first.first_error == (1, "'prompt' is a number: it must be text")
    assert first.finish_reasons == {"length": 6}
    assert (last.made, last.first_error, last.step) == (4, None, "eager")


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def without_a_row(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:1] + lines[2:])


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (lambda data: data, 7),
        (lambda data: data + b'{"schema"', 7),
        (cut, 4),
        (without_a_row, 0),
        (lambda _data: b"", 0),
    ],
    ids=["whole", "torn", "cut", "hole", "empty"],
)
def test_a_part_that_is_there_is_kept_or_made_whole(
    folder: Folder, damage: Callable[[bytes], bytes], kept: int
) -> None:
    before = folder.make()
    part = folder.output / folder.parts[0].name
    whole, found = part.read_bytes(), damage(part.read_bytes())
    part.write_bytes(found)
    time = part.stat().st_mtime_ns
    first, last = folder.make(resume=True)
    assert folder.written == folder.expected
    assert (first.entry, last.entry) == (before[0].entry, before[1].entry)
    assert (first.kept, first.made, last.kept, last.made) == (kept, 7 - kept, 4, 0)
    assert (part.stat().st_mtime_ns == time) == (found == whole)
    assert (first.step, last.step) == (None if kept == 7 else "eager", None)


def test_more_alternatives_than_there_are_ids_are_kept_too(folder: Folder) -> None:
    settings = dataclasses.replace(SETTINGS, logprobs=1000)
    folder.make(settings=settings)
    first, last = folder.make(resume=True, settings=settings)
    assert (first.kept, first.made, last.kept, last.made) == (7, 0, 4, 0)


def test_a_byte_order_mark_within_the_file_is_of_its_row(folder: Folder) -> None:
    lines = folder.prompts.read_bytes().splitlines(keepends=True)
    lines[4] = b"\xef\xbb\xbf" + lines[4]
    folder.prompts.write_bytes(b"".join(lines))
    folder.make()
    assert folder.written == folder.expected
    assert b'"error": {' in folder.written.splitlines()[7]


def test_a_worker_goes_to_the_folder_and_takes_its_threads(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, other = torch.get_num_threads(), tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    try:
        folder.make(checkpoint="ckpt.pt", folder=tmp_path, threads=threads + 1)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert folder.written == folder.expected


def test_what_a_worker_notes_is_told_once(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    first, last = folder.make(compile=True, cache=tmp_path / "cache")
    assert first.notes == []
    (note,) = last.notes
    assert note.startswith("the step could not be compiled, so it runs uncompiled: ")


def test_prompts_that_were_added_are_made(folder: Folder) -> None:
    folder.make()
    folder.write([*PROMPTS, {"prompt": "C"}])
    _, last = folder.make(resume=True)
    assert (last.kept, last.made) == (4, 2)
    assert folder.written == folder.expected


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([*PROMPTS[:1], {"prompt": "Z"}, *PROMPTS[2:]], "row 1 is in"),
        (PROMPTS[:3], "has 2 rows that the prompts have not"),
    ],
)
def test_other_prompts_are_refused(
    folder: Folder, prompts: list[dict[str, Any]], message: str
) -> None:
    folder.make()
    before = folder.written
    folder.write(prompts)
    with pytest.raises(NanoGPTError, match=message) as caught:
        folder.make(resume=True)
    assert caught.value.exit_code == 2
    assert folder.written == before


def test_a_checkpoint_that_is_not_there_is_told(folder: Folder, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.pt")
    with pytest.raises(
        NanoGPTError, match=r"a worker on .* cannot open the checkpoint: no such"
    ) as e:
        folder.make(checkpoint=gone)
    assert "on every machine" in (e.value.hint or "")
    assert e.value.exit_code == 1


def test_another_checkpoint_is_told(folder: Folder) -> None:
    job = folder.job()
    save_nanogpt(folder.checkpoint, build(1))
    report = PartWorker(job, to_json).report(folder.parts[0], there=False)
    assert report.error is not None
    assert "has other weights than this machine" in report.error[0]
    assert folder.written == b""


def test_prompts_that_change_meanwhile_are_told(folder: Folder) -> None:
    parts, job = folder.parts, folder.job()
    folder.write(PROMPTS[:2])
    report = PartWorker(job, to_json).report(parts[0], there=False)
    assert report.error is not None
    assert "changed while its rows were made" in report.error[0]
    folder.write([*PROMPTS[:3], {"prompt": "SHORTER"}])
    report = PartWorker(job, to_json).report(parts[0], there=False)
    assert report.error is not None
    assert "changed while its rows were made" in report.error[0]
    folder.prompts.unlink()
    report = PartWorker(job, to_json).report(parts[0], there=False)
    assert report.error is not None
    assert "cannot read the prompts: no file of prompts" in report.error[0]


def test_an_output_that_is_not_there_is_told(folder: Folder) -> None:
    shutil.rmtree(folder.output)
    with pytest.raises(NanoGPTError, match=r"cannot write .*: no such file"):
        folder.make()


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
def test_a_step_of_another_kind_is_refused(folder: Folder) -> None:
    folder.make(step="compiled", compile=True)
    shutil.rmtree(folder.output)
    folder.output.mkdir()
    with pytest.raises(NanoGPTError, match="has no compiled step"):
        folder.make(step="compiled")
    assert folder.written == b""


def test_rows_are_spelled_by_the_caller(folder: Folder) -> None:
    def shout(row: SampleRow) -> str:
        return f"{row.row} \ud800"

    PartWorker(folder.job(), shout).make(folder.parts[1], there=False)
    assert folder.written.decode() == "4 \ufffd\n" * 2 + "5 \ufffd\n" * 2
