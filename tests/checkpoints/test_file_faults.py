"""What is said of a file that cannot be read to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanogpt_cli.checkpoints.files import DAMAGED, errors_name
from nanogpt_cli.errors import CheckpointError


@pytest.mark.parametrize(("hint", "told"), [("fetch it anew", "fetch it anew"), (None, DAMAGED)])
def test_what_goes_wrong_names_the_file_and_says_what_to_do(hint: str | None, told: str) -> None:
    with pytest.raises(CheckpointError) as caught, errors_name(Path("a.pt")):
        raise CheckpointError("it ends too soon", hint)
    assert (caught.value.message, caught.value.hint) == (
        "cannot read 'a.pt': it ends too soon",
        told,
    )


def test_a_failure_of_the_system_keeps_its_reason() -> None:
    with pytest.raises(CheckpointError) as caught, errors_name(Path("a.pt")):
        raise PermissionError(13, "Permission denied", "a.pt")
    assert caught.value.message == "cannot read 'a.pt': Permission denied"
    assert isinstance(caught.value.__cause__, PermissionError)
