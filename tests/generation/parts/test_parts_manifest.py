"""What a folder of parts says of itself, and which runs may go on with it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.parts.manifest import Manifest, PartEntry, read_manifest
from nanogpt_cli.generation.settings import SampleSettings

MANIFEST = Manifest(
    complete=True,
    rows_per_part=64,
    num_samples=1,
    seed=1337,
    dtype="float32",
    alternatives=None,
    step="compiled",
    settings=SampleSettings(max_new_tokens=4).as_dict(weights="a"),
    prompts=3,
    rows=3,
    parts=(PartEntry("part-000000000000.jsonl", 0, 3, 3, 0, 12, 99, "ab"),),
)


def test_it_is_read_as_it_was_written() -> None:
    text = MANIFEST.to_json()
    assert json.loads(text)["schema"] == "nanogpt.parts/1"
    found = read_manifest(text.encode(), "m")
    assert found == MANIFEST
    found.check(MANIFEST, "rows")
    with_more = json.dumps({**json.loads(text), "of a later version": 1})
    assert read_manifest(with_more.encode(), "m") == MANIFEST


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 7}, "seed 1337 then, 7 now"),
        ({"num_samples": 2}, "num_samples 1 then, 2 now"),
        ({"dtype": "bfloat16"}, "dtype 'float32' then, 'bfloat16' now"),
        ({"alternatives": 2}, "alternatives None then, 2 now"),
        ({"step": "eager"}, "step 'compiled' then, 'eager' now"),
        ({"settings": SampleSettings(max_new_tokens=5).as_dict()}, "max_new_tokens 4 then, 5 now"),
        (
            {"settings": SampleSettings(max_new_tokens=4).as_dict(weights="b")},
            "the weights or the tokenizer are not the same",
        ),
    ],
    ids=str,
)
def test_other_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        MANIFEST.check(replace(MANIFEST, **changes), "rows")
    assert caught.value.message == f"'rows' was made with other settings: {message}"


def test_a_step_that_is_not_known_yet_is_no_difference() -> None:
    MANIFEST.check(replace(MANIFEST, step=None), "rows")
    replace(MANIFEST, step=None).check(MANIFEST, "rows")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"schema": "other", "parts": []}',
        b'{"schema": "nanogpt.parts/1", "parts": [{}]}',
        MANIFEST.to_json().replace(": 64", ": 0").encode(),
        MANIFEST.to_json().replace(": 64", ': "64"').encode(),
    ],
)
def test_something_else_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="'m' is no manifest of a batch"):
        read_manifest(data, "m")
