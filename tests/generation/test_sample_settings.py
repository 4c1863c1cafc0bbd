"""Settings as rows and digests have them."""

from __future__ import annotations

import pytest

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.sampling import DEFAULTS


def test_a_default_that_is_given_changes_nothing() -> None:
    given = SampleSettings(filters=dict(DEFAULTS))
    assert SampleSettings().as_dict(weights="x") == given.as_dict(weights="x")
    assert DEFAULTS.items() <= SampleSettings().as_dict().items()


@pytest.mark.parametrize(
    ("stride", "rng", "message"),
    [
        (0, "per-sample", "--window-stride 0: it must be at least 1"),
        (2, "nanogpt", "--rng nanogpt is sample.py's own loop, which has no --window-stride"),
    ],
)
def test_a_window_stride_that_cannot_be(stride: int, rng: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        SampleSettings(window_stride=stride, rng=rng)
    assert caught.value.message == message
