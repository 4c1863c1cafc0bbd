"""What a file is that no format knows, and what to do about it."""

from __future__ import annotations

from pathlib import Path

from nanogpt_cli.errors import CheckpointError


def explain(path: Path) -> CheckpointError:
    """Return the error that says what `path` is instead of a checkpoint."""
    return CheckpointError(f"{str(path)!r} is not a PyTorch checkpoint")
