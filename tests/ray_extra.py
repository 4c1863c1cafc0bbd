"""Whether Ray Data is there; NANOGPT_NEED_RAY makes a missing one a failure instead of a skip."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

NEEDED = bool(os.environ.get("NANOGPT_NEED_RAY"))
THERE = find_spec("ray") is not None and find_spec("pyarrow") is not None

needs_ray = [
    pytest.mark.ray,
    pytest.mark.skipif(
        not (THERE or NEEDED), reason='needs Ray Data: pip install -c constraints.txt -e ".[ray]"'
    ),
]
