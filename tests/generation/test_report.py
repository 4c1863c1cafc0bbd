"""What tells two models, and two tables of tokens, apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from model_files import build, envelope
from safetensors.torch import save_file

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.generation.report import digest_tokens, digest_weights
from nanogpt_cli.tokenizers.char import CharTokenizer


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_a_change_to_any_tensor_is_another_model(name: str, tmp_path: Path) -> None:
    model, path = build(), tmp_path / name

    def digest() -> str:
        if name.endswith(".pt"):
            torch.save(envelope(model), path)
        else:
            weights = {key: value.clone() for key, value in model.state_dict().items()}
            del weights["lm_head.weight"]
            save_file(weights, path)
        return digest_weights(open_checkpoint(str(path), n_head=3).architecture)

    digests = {digest()}
    assert {digest()} == digests
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.view(-1)[0] += 1
        digests.add(digest())
    assert len(digests) == 1 + len(list(model.parameters()))


def test_tables_that_cut_the_same_bytes_elsewhere_are_others() -> None:
    tables = ({0: "ab", 1: "c"}, {0: "a", 1: "bc"}, {0: "a", 2: "bc"}, {0: "ab", 1: "c", 2: ""})
    assert len({digest_tokens(CharTokenizer(table, "here")) for table in tables}) == 4
