"""The age of a file's format, as far as what lies in it shows."""

from __future__ import annotations

from nanogpt_cli.checkpoints import Contents
from nanogpt_cli.checkpoints.torch_files.zips import read_directory

ZIP_AGES = (
    (".storage_alignment", "as torch 2.7 and newer write it"),
    ("byteorder", "as torch 2.1 to 2.6 write it"),
    ("version", "as torch 1.6 to 2.0 write it"),
)
"""Records of a torch archive, the newest first, and who writes them."""


def tell_age(contents: Contents) -> str:
    """Return which versions of torch write the first file so, or "".

    Source: torch/serialization.py of these versions.
    """
    if contents.container.endswith("torch legacy file"):
        return "as torch before 1.6 writes it"
    if "torch zip" not in contents.container or not contents.files:
        return ""
    names = {name.partition("/")[2] for name in read_directory(contents.files[0])}
    return next((age for record, age in ZIP_AGES if record in names), "")
