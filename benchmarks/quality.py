"""What narrow weights cost: the loss of one text under each stored type, in one run.

    python -m benchmarks.quality demo input.txt --from 0.9

The text is cut into windows of block_size tokens side by side; the loss is nats a token over all
of them.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import numpy as np
import torch

from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.steps.weights import Matrix, store_weights
from nanogpt_cli.model import GPT

STORED = ("float32", "float16", "bfloat16", "int8")


def rounded(model: GPT, stored: str) -> GPT:
    """Return a float32 model whose numbers are those of a stored type."""
    weights, copied = store_weights(model, stored), copy.deepcopy(model)
    with torch.no_grad():
        for block, layer in zip(copied.blocks, weights.layers, strict=True):
            _fill(block.attn.c_attn, layer.c_attn)
            _fill(block.attn.c_proj, layer.attn_proj)
            _fill(block.mlp.c_fc, layer.c_fc)
            _fill(block.mlp.c_proj, layer.mlp_proj)
        head = weights.lm_head.dense()
        copied.lm_head.weight = torch.nn.Parameter(head)
        # As the step does it: rows are looked up in wte, which an int8 head leaves in float32.
        copied.transformer.wte.weight = torch.nn.Parameter(weights.wte.float())
        copied.transformer.wpe.weight = torch.nn.Parameter(weights.wpe.float())
    return copied


def _fill(linear: torch.nn.Linear, matrix: Matrix) -> None:
    linear.weight.copy_(matrix.dense())
    if matrix.bias is not None:
        linear.bias.copy_(matrix.bias)


@torch.inference_mode()
def mean_loss(model: GPT, ids: list[int]) -> float:
    """Return nats a token over windows of block_size, side by side."""
    T = model.config.block_size
    count = (len(ids) - 1) // T
    idx = torch.tensor(ids[: count * T + 1])
    total = 0.0
    for start in range(0, count * T, T):
        window = idx[start : start + T + 1]
        _, loss = model(window[None, :-1], window[None, 1:])
        assert loss is not None, "targets give a loss"
        total += float(loss)
    return total / count


def read_ids(session: Session, path: Path, start: float) -> list[int]:
    """Return the ids of a text, or of a `.bin` of uint16 tokens, from a share of it on."""
    if path.suffix == ".bin":
        tokens: list[int] = np.fromfile(path, dtype=np.uint16).tolist()
        return tokens[int(len(tokens) * start) :]
    text = path.read_text(encoding="utf-8")
    return session.tokenizer.encode(text[int(len(text) * start) :])


def main() -> None:
    """Print the loss under each stored type, and how far it is from float32's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("text", type=Path)
    parser.add_argument("--from", dest="start", type=float, default=0.0)
    asked = parser.parse_args()
    session = Session(open_checkpoint(asked.checkpoint), device="cpu")
    model = load_model(session.checkpoint).eval()
    ids = read_ids(session, asked.text, asked.start)
    losses = {stored: mean_loss(rounded(model, stored), ids) for stored in STORED}
    for stored, loss in losses.items():
        change = loss / losses["float32"] - 1
        print(f"{stored:>9} {loss:.6f} nats a token, {change:+.4%}")


if __name__ == "__main__":
    main()
