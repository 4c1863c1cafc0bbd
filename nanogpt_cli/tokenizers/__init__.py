"""Text to ids and back: every kind of tokenizer a checkpoint may come with.

TOKENIZERS lists them in the order in which they are looked for beside a checkpoint. `search`
finds and loads the one that belongs to a checkpoint, `streaming` turns drawn ids into text.
"""

from __future__ import annotations

from nanogpt_cli.tokenizers import char, gpt2, hf, ids, tiktoken_file
from nanogpt_cli.tokenizers.base import TokenizerKind

TOKENIZERS: tuple[TokenizerKind, ...] = (
    gpt2.KIND,
    char.KIND,
    hf.KIND,
    tiktoken_file.KIND,
    ids.KIND,
)
