"""nanoGPT's own sampling loop, exactly: sample.py's texts under its seed.

sample.py seeds torch, builds the model (which draws its initial weights), copies the file's
weights over them, and samples one text after another from the global generator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Sequence

import torch

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.checkpoints.loading import fill_weights
from nanogpt_cli.errors import NanoGPTError, UsageError
from nanogpt_cli.generation.diagnosis import check_finite, check_ids
from nanogpt_cli.generation.engine import NewToken
from nanogpt_cli.model import GPT


def build_seeded(checkpoint: Checkpoint, seed: int, device: torch.device) -> GPT:
    """Seed torch, build the model as sample.py does, fill it, and move it to `device`.

    Raises:
        UsageError: the checkpoint is no .pt file, or the seed is not one of torch's.
    """
    if not checkpoint.contents.format.startswith("torch"):
        raise UsageError(
            f"--rng nanogpt needs a .pt checkpoint, not a {checkpoint.contents.container}",
            hint="leave --rng out",
        )
    checkpoint.architecture.require_n_head()
    try:
        torch.manual_seed(seed)
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            f"--seed {seed} does not fit into torch's 64 bits",
            hint="give a smaller one; without --rng nanogpt any will do",
        ) from error
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    model = GPT(checkpoint.config)
    fill_weights(model, checkpoint.architecture)
    return model.eval().to(device)


def generate_like_nanogpt(
    model: GPT,
    prompt: Sequence[int],
    *,
    num_samples: int,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    dtype: torch.dtype,
    stopped: Container[int] = (),
) -> Iterator[NewToken]:
    """Continue the prompt `num_samples` times, one after another, by `GPT.generate`.

    Draws come from torch's global generator; nothing is cached or masked, and end-of-text is a
    token like any other. A sample in `stopped` is left, and the next begins with the generator as
    it then is.
    """
    device = model.lm_head.weight.device
    start = torch.tensor([list(prompt)], dtype=torch.long, device=device)
    for index in range(num_samples):
        idx = start
        if max_new_tokens == 0:
            yield NewToken(index, None, "length")
        for step in range(max_new_tokens):
            with _autocast(device, dtype), _explain_bad_logits(model, idx, step):
                idx = model.generate(idx, 1, temperature=temperature, top_k=top_k or None)
            token = int(idx[0, -1])
            check_ids([token], model.config.vocab_size, step, device)
            yield NewToken(index, token, "length" if step == max_new_tokens - 1 else None)
            if index in stopped:
                break


def _autocast(
    device: torch.device, dtype: torch.dtype
) -> contextlib.AbstractContextManager[object]:
    if device.type == "cpu":
        return contextlib.nullcontext()
    return torch.autocast(device_type=device.type, dtype=dtype, enabled=dtype != torch.float32)


@contextlib.contextmanager
def _explain_bad_logits(model: GPT, idx: torch.Tensor, step: int) -> Iterator[None]:
    """Turn torch's refusal to draw from NaN into the engine's error, which names the tensor."""
    try:
        yield
    except RuntimeError as error:
        window = idx[:, -model.config.block_size :]
        check_finite(model, model(window)[0][:, -1], [(window[0].tolist(), step)])
        if "probability tensor" not in str(error):
            raise
        raise NanoGPTError(
            f"the odds at step {step} are no numbers: the temperature is too small for this loop",
            hint="--temperature 0 is greedy; without --rng nanogpt any temperature will do",
        ) from error
