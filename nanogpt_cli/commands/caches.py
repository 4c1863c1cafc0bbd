"""Where the command keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Return $NANOGPT_CACHE, or `nanogpt` in the user's cache folder; None where there is none."""
    if os.environ.get("NANOGPT_CACHE"):
        return Path(os.environ["NANOGPT_CACHE"])
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"], "nanogpt")
    try:
        return Path.home() / ".cache" / "nanogpt"
    except RuntimeError:  # no HOME, and no entry for the user
        return None
