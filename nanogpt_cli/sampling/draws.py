"""The numbers that decide a sample, and the draw itself.

The uniforms of a sample are a function of the seed, the prompt's ids and the sample's number
alone: never of the batch, of other rows, of the device, or of what was drawn before.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import torch

if TYPE_CHECKING:
    from torch import Tensor

BLOCK_STEPS = 512


class Draws:
    """A stream of uniforms in [0, 1), one a step, computed from a counter.

    Args:
        seed: any integer.
        prompt: the prompt's ids.
        index: the sample's number among those of this prompt, from 0.
    """

    def __init__(self, seed: int, prompt: Sequence[int], index: int) -> None:
        digest = hashlib.sha256(struct.pack(f"<{len(prompt)}q", *prompt)).hexdigest()
        self._key = f"nanogpt-draws/1 {seed} {digest} {index}"
        self._block: tuple[int, bytes] = (-1, b"")

    def uniform(self, step: int) -> float:
        """Return the uniform of new token number `step`, from 0."""
        block, place = divmod(step, BLOCK_STEPS)
        if self._block[0] != block:
            stream = hashlib.shake_256(f"{self._key} {block}".encode())
            self._block = (block, stream.digest(8 * BLOCK_STEPS))
        (word,) = struct.unpack_from("<Q", self._block[1], 8 * place)
        return float(word >> 11) * 2.0**-53


class SampleDraws(Sequence[Draws]):
    """The streams of a prompt's samples by number, each made when it is asked for.

    Args:
        seed: any integer.
        prompt: the prompt's ids.
        numbers: of the samples.
    """

    def __init__(self, seed: int, prompt: Sequence[int], numbers: range) -> None:
        self._seed, self._prompt, self._numbers = seed, prompt, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> Draws: ...
    @overload
    def __getitem__(self, at: slice) -> SampleDraws: ...
    def __getitem__(self, at: int | slice) -> Draws | SampleDraws:
        numbers = self._numbers[at]
        if isinstance(numbers, range):
            return SampleDraws(self._seed, self._prompt, numbers)
        return Draws(self._seed, self._prompt, numbers)


def draw(logits: Tensor, uniforms: Sequence[float]) -> Tensor:
    """Draw one id a row by the inverse of the cumulative distribution over the surviving ids.

    Args:
        logits: (B, V) float32; -inf marks what was filtered out, and something survives a row.
        uniforms: B numbers in [0, 1).

    Returns:
        (B,) int64, on the logits' device.
    """
    if logits.is_cuda:  # all on the device: nothing waits for it
        return _draw_from(logits.double(), uniforms)
    # Only columns that survive in some row; the zeros this leaves in other rows change no sum.
    columns = (logits > -torch.inf).any(dim=0).nonzero().squeeze(-1)
    # On the host: not every other device has float64.
    places = _draw_from(logits[:, columns].cpu().double(), uniforms)
    return columns[places.to(columns.device)]


def _draw_from(kept: Tensor, uniforms: Sequence[float]) -> Tensor:
    """Return (B,) places in the columns of `kept`, (B, K) float64, where they lie."""
    cumulative = (kept - kept.amax(dim=-1, keepdim=True)).exp().cumsum(dim=-1)
    total = cumulative[:, -1:]
    chance = torch.tensor(uniforms, dtype=torch.float64, device=kept.device).unsqueeze(-1)
    # However it is rounded, a float64 below 1 times the total is below the total.
    return torch.searchsorted(cumulative, chance * total, right=True).squeeze(-1)
