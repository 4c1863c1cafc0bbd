"""Token by token, many texts side by side: prefill, then one step a token. Knows ids and no text.

`GPT.generate` is the plain reference; under a temperature of 0 this gives its ids.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nanogpt_cli.generation.diagnosis import check_ids
from nanogpt_cli.generation.scores import TokenScore, score_tokens
from nanogpt_cli.generation.steps.base import Step
from nanogpt_cli.generation.steps.eager import EagerStep
from nanogpt_cli.generation.steps.weights import store_weights
from nanogpt_cli.generation.texts import Request, Texts
from nanogpt_cli.model import GPT
from nanogpt_cli.sampling.sampler import Sampler

__all__ = ["Engine", "NewToken", "Request"]


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


class Engine:
    """A model made ready to decode; it serves any number of runs, one at a time.

    Args:
        model: in eval mode; asked when something is wrong with its numbers.
        step: what computes; None for torch's own operations on the model's weights.
    """

    def __init__(self, model: GPT, step: Step[Any] | None = None) -> None:
        self.model = model
        self.step = step or EagerStep(store_weights(model, "float32"))

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
        window_stride: int = 1,
    ) -> Iterator[NewToken]:
        """Serve requests, prompts of any lengths side by side; a request is taken when one ends.

        The end-of-text token ends a sample and is not given.

        Args:
            requests: asked for lazily.
            sampler: from logits to ids.
            max_new_tokens: tokens a sample, at most.
            end_of_text: the id that ends a sample, or None.
            stopped: the numbers of requests to let go; looked into after every token.
            logprobs: score each token, with so many alternatives; None for no scores.
            batch_size: requests side by side, at most; None for what memory allows.
            window_stride: past block_size, how many of the oldest ids are dropped at once before
                the rest is run afresh. 1 is exact: each token sees the last block_size ids.

        Raises:
            NanoGPTError: logits that are not finite, or a drawn id outside the vocabulary.
        """
        if max_new_tokens == 0:
            yield from (NewToken(request.number, None, "length") for request in requests)
            return
        texts = Texts(self.model, self.step, requests, max_new_tokens, batch_size, window_stride)
        while texts.admit():
            rows = texts.rows
            logits = texts.logits
            uniforms = [text.request.draws.uniform(text.new_tokens) for text in rows]
            if not self.step.runs_ahead:
                texts.require_finite()
                drawn = sampler(logits, uniforms, texts.seen)
                ids = drawn.tolist()
            else:
                drawn = sampler(logits, uniforms, texts.seen)
                ids = texts.run_ahead(drawn)
            check_ids(ids, self.model.config.vocab_size, rows[0].new_tokens, self.step.device)
            scores: Sequence[TokenScore | None] = [None] * len(ids)
            if logprobs is not None:
                scores = score_tokens(logits, ids, logprobs)
            staying = []
            for row, (text, token, score) in enumerate(zip(rows, ids, scores, strict=True)):
                number, last = text.request.number, text.new_tokens == max_new_tokens - 1
                if token == end_of_text:
                    yield NewToken(number, None, "eos")
                    continue
                yield NewToken(number, token, "length" if last else None, score)
                if not last and number not in stopped:
                    staying.append(row)
            texts.advance(staying, drawn, ids)
