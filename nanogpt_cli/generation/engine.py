"""Token by token: prefill, then one cached step a token. Knows ids and no text.

`GPT.generate` is the plain reference; under a temperature of 0 this gives its ids.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.generation.diagnosis import name_bad_tensor
from nanogpt_cli.generation.kv_cache import KVCache, bytes_per_sequence
from nanogpt_cli.generation.scores import TokenScore, score_tokens
from nanogpt_cli.model import GPT, CausalSelfAttention
from nanogpt_cli.sampling.draws import Draws
from nanogpt_cli.sampling.sampler import Sampler

if TYPE_CHECKING:
    from torch import Tensor

CACHE_BUDGET_BYTES = 2 << 30
"""More samples than fit into this, cache and draw, are made in several batches."""

DRAW_BYTES = 32
"""What a draw takes for each id of the vocabulary: logits, their filtered copies, their sums."""


@dataclass(frozen=True)
class NewToken:
    """One token drawn for one sample.

    Args:
        index: the sample's number.
        id: the drawn id, or None where a sample ends without one.
        finish_reason: "length" or "eos" with a sample's last token, else None.
        score: how likely it was, where that was asked for.
    """

    index: int
    id: int | None
    finish_reason: str | None = None
    score: TokenScore | None = None


@dataclass(frozen=True)
class Request:
    """One sample to make.

    Args:
        number: the caller's, given back as `NewToken.index`; no two alike in a run.
        prompt: at least one id, each in [0, vocab_size). Requests that share one object share
            its prefill when they follow each other.
        draws: the sample's own uniforms.
    """

    number: int
    prompt: Sequence[int]
    draws: Draws


class Engine:
    """A model made ready to decode; it serves any number of runs, one at a time.

    Args:
        model: in eval mode.
    """

    def __init__(self, model: GPT) -> None:
        self.model = model

    def generate(
        self,
        requests: Iterable[Request],
        sampler: Sampler,
        *,
        max_new_tokens: int,
        end_of_text: int | None = None,
        stopped: Container[int] = (),
        logprobs: int | None = None,
        batch_size: int | None = None,
    ) -> Iterator[NewToken]:
        """Serve requests, prompts of any lengths side by side; a request is taken when one ends.

        Args:
            requests: asked for lazily.
            sampler: from logits to ids.
            max_new_tokens: tokens a sample, at most.
            end_of_text: the id that ends a sample, or None.
            stopped: the numbers of requests to let go; looked into after every token.
            logprobs: score each token, with so many alternatives; None for no scores.
            batch_size: requests side by side, at most; None for what memory allows.

        Raises:
            NanoGPTError: logits that are not finite, or a drawn id outside the vocabulary.
        """
        for request in requests:
            for token in generate_ids(
                self.model,
                request.prompt,
                [request.draws],
                sampler,
                max_new_tokens=max_new_tokens,
                end_of_text=end_of_text,
                stopped=_Alone(request.number, stopped),
                logprobs=logprobs,
            ):
                yield replace(token, index=request.number)


def generate_ids(
    model: GPT,
    prompt: Sequence[int],
    draws: Sequence[Draws],
    sampler: Sampler,
    *,
    max_new_tokens: int,
    end_of_text: int | None = None,
    stopped: Container[int] = (),
    logprobs: int | None = None,
) -> Iterator[NewToken]:
    """Continue one prompt once for every stream of draws.

    Every new token is conditioned on the last block_size ids before it; the prompt is run once
    for all samples. The end-of-text token ends a sample and is not given.

    Args:
        model: in eval mode.
        prompt: at least one id, each in [0, vocab_size).
        draws: one stream of uniforms a sample.
        sampler: from logits to ids.
        max_new_tokens: tokens a sample, at most.
        end_of_text: the id that ends a sample, or None.
        stopped: the numbers of samples to let go; looked into after every token.
        logprobs: score each token, with so many alternatives; None for no scores.

    Raises:
        NanoGPTError: logits that are not finite, or a drawn id outside the vocabulary.
    """
    if max_new_tokens == 0:
        yield from (NewToken(index, None, "length") for index in range(len(draws)))
        return
    positions = len(prompt) + max_new_tokens
    batch = _batch_limit(model, positions)
    first = _Prefill(model, list(prompt), positions)
    for start in range(0, len(draws), batch):
        part = _Batch(first, draws[start : start + batch], sampler, start)
        yield from part.run(max_new_tokens, end_of_text, stopped, logprobs)


@dataclass(frozen=True)
class _Alone:
    number: int
    stopped: Container[int]

    def __contains__(self, index: object) -> bool:
        return self.number in self.stopped


class _Prefill:
    """The prompt's cache and last logits, shared by all of its samples."""

    def __init__(self, model: GPT, prompt: list[int], positions: int) -> None:
        self.model = model
        self.window = window = prompt[-model.config.block_size :]
        self.device = model.lm_head.weight.device
        capacity = min(positions, model.config.block_size)
        self.cache = KVCache(model.config, 1, capacity, model.lm_head.weight)
        idx = torch.tensor([window], dtype=torch.long, device=self.device)
        self.logits = forward_cached(model, idx, self.cache)
        self.seen = torch.zeros(1, model.config.vocab_size, dtype=torch.bool, device=self.device)
        self.seen[0, prompt] = True


class _Batch:
    """Samples of one prompt that advance together; the finished leave."""

    def __init__(
        self, prefill: _Prefill, draws: Sequence[Draws], sampler: Sampler, start: int
    ) -> None:
        self.model, self.device, self.sampler = prefill.model, prefill.device, sampler
        self.draws = list(draws)
        self.indices = list(range(start, start + len(draws)))
        repeat = torch.zeros(len(draws), dtype=torch.long, device=self.device)
        self.cache = prefill.cache.copy(repeat)
        self.logits = prefill.logits.index_select(0, repeat)
        window = torch.tensor([prefill.window], dtype=torch.long, device=self.device)
        self.window = window.index_select(0, repeat)  # (B, T), at most block_size
        self.seen = prefill.seen.index_select(0, repeat)  # (B, V)

    def run(
        self,
        max_new_tokens: int,
        end_of_text: int | None,
        stopped: Container[int],
        logprobs: int | None,
    ) -> Iterator[NewToken]:
        """Yield every sample's tokens, a step at a time."""
        for step in range(max_new_tokens):
            check_finite(self.model, self.logits, self.window, step)
            uniforms = [stream.uniform(step) for stream in self.draws]
            drawn = self.sampler(self.logits, uniforms, self.seen)
            ids = drawn.tolist()
            check_ids(ids, self.model.config.vocab_size, step, self.device)
            last = step == max_new_tokens - 1
            scores = self._score(ids, logprobs)
            for index, token, score in zip(self.indices, ids, scores, strict=True):
                if token == end_of_text:
                    yield NewToken(index, None, "eos")
                else:
                    yield NewToken(index, token, "length" if last else None, score)
            staying = [
                row
                for row, (index, token) in enumerate(zip(self.indices, ids, strict=True))
                if token != end_of_text and index not in stopped
            ]
            if last or not staying:
                return
            self._keep(staying, drawn)
            self._step()

    def _score(self, ids: list[int], logprobs: int | None) -> Sequence[TokenScore | None]:
        return [None] * len(ids) if logprobs is None else score_tokens(self.logits, ids, logprobs)

    def _keep(self, rows: list[int], drawn: Tensor) -> None:
        """Let finished rows go, and append the drawn ids to the others."""
        if len(rows) < len(self.draws):
            chosen = torch.tensor(rows, dtype=torch.long, device=self.device)
            self.cache = self.cache.copy(chosen)
            self.window, self.seen, drawn = self.window[chosen], self.seen[chosen], drawn[chosen]
            self.draws = [self.draws[row] for row in rows]
            self.indices = [self.indices[row] for row in rows]
        self.window = torch.cat((self.window, drawn.unsqueeze(1)), dim=1)
        self.window = self.window[:, -self.model.config.block_size :]
        self.seen.scatter_(1, drawn.unsqueeze(1), True)

    def _step(self) -> None:
        if self.cache.length < self.model.config.block_size:
            self.logits = forward_cached(self.model, self.window[:, -1:], self.cache)
            return
        # Past block_size every kept token's position changes, so the window is run afresh.
        self.cache.length = 0
        self.logits = forward_cached(self.model, self.window, self.cache)


@torch.inference_mode()
def forward_cached(model: GPT, idx: Tensor, cache: KVCache) -> Tensor:
    """Run new positions through the model, given the cached ones before them.

    Args:
        model: in eval mode.
        idx: (B, T) int64; T is 1 unless the cache is empty.
        cache: of B sequences; the new keys and values are added to it.

    Returns:
        (B, V) float32 logits of the last position.
    """
    assert cache.length == 0 or idx.size(1) == 1, "a filled cache takes one position at a time"
    pos = torch.arange(cache.length, cache.length + idx.size(1), device=idx.device)  # (T)
    x = model.transformer.wte(idx) + model.transformer.wpe(pos)  # (B, T, C)
    for layer, block in enumerate(model.blocks):
        x = x + _attend(block.attn, block.ln_1(x), cache, layer)
        x = x + block.mlp(block.ln_2(x))
    cache.advance(idx.size(1))
    logits: Tensor = model.lm_head(model.transformer.ln_f(x[:, -1]))  # (B, V)
    return logits.float()


def _attend(attn: CausalSelfAttention, x: Tensor, cache: KVCache, layer: int) -> Tensor:
    B, T, C = x.size()
    heads = (B, T, attn.n_head, C // attn.n_head)
    q, k, v = (part.view(heads).transpose(1, 2) for part in attn.c_attn(x).split(C, dim=2))
    keys, values = cache.extend(layer, k, v)
    y = F.scaled_dot_product_attention(q, keys, values, is_causal=T > 1)  # (B, H, T, D)
    out: Tensor = attn.c_proj(y.transpose(1, 2).reshape(B, T, C))
    return out


def _batch_limit(model: GPT, positions: int) -> int:
    capacity = min(positions, model.config.block_size)
    itemsize = model.lm_head.weight.element_size()
    needed = bytes_per_sequence(model.config, capacity, itemsize)
    return max(1, CACHE_BUDGET_BYTES // (needed + DRAW_BYTES * model.config.vocab_size))


def check_finite(model: GPT, logits: Tensor, window: Tensor, step: int) -> None:
    """Raise NanoGPTError, with the first bad tensor's name, where logits are NaN or infinite."""
    if not torch.isfinite(logits).all():
        where = name_bad_tensor(model, window)
        raise NanoGPTError(
            f"the model's logits are not finite at step {step}: the first bad tensor is {where}",
            hint="a checkpoint that diverged in training cannot be sampled; "
            "with --dtype float16, try bfloat16 or float32",
        )


def check_ids(ids: Sequence[int], vocab_size: int, step: int, device: torch.device) -> None:
    """Raise NanoGPTError for a drawn id outside the vocabulary."""
    for token in ids:
        if not 0 <= token < vocab_size:
            raise NanoGPTError(
                f"drew id {token} at step {step} on {device}: ids end at {vocab_size - 1}",
                hint="this is a fault of the device or its driver: try --device cpu",
            )
