"""Which window of a long text predicts which of its tokens. Standard library only.

Three protocols, by name:

- "one window": the text fits in the model's context, and every token but the first is predicted
  from all before it.
- "sliding, stride N": windows of block_size tokens, each N further on; a token is predicted once,
  by the first window that reaches it. With stride 1 each token has all the context there is.
- "disjoint windows": whole windows side by side, each predicting block_size tokens, the first of
  them from one token alone: the mean of training's own loss. What does not fill a window at the
  end is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from nanogpt_cli.errors import UsageError
from nanogpt_cli.inspection.behaviour.limits import check_stride


@dataclass(frozen=True)
class Window:
    """A run of tokens that the model is shown.

    Args:
        start: the first token that it is shown.
        stop: one more than the last.
        scored: how many predictions are taken, the last ones: of tokens stop - scored + 1 to stop.
    """

    start: int
    stop: int
    scored: int


@dataclass(frozen=True)
class Protocol:
    """How a text of so many tokens is scored; checked when it is built.

    Args:
        count: tokens of the text.
        block_size: tokens that the model sees at most.
        stride: how far the window moves; None is half of block_size.

    Raises:
        UsageError: a text of one token, or a stride that is not 1 to block_size.
    """

    count: int
    block_size: int
    stride: int | None = None

    def __post_init__(self) -> None:
        check_stride(self.stride, self.block_size)
        if self.count < 2:
            raise UsageError(
                "the text is one token, and a token is predicted from those before it",
                hint="give a longer text",
            )

    @property
    def step(self) -> int:
        """How far the window moves."""
        return self.stride or max(1, self.block_size // 2)

    @property
    def name(self) -> str:
        """The protocol's name."""
        if self.count - 1 <= self.block_size:
            return "one window"
        if self.step == self.block_size:
            return "disjoint windows"
        return f"sliding, stride {self.step}"

    def windows(self) -> Iterator[Window]:
        """Yield the windows in the text's order."""
        last, size = self.count - 1, self.block_size
        yield Window(0, min(size, last), min(size, last))
        reached = size
        for start in range(self.step, last, self.step):
            stop = min(start + size, last)
            if stop <= reached or (self.name == "disjoint windows" and stop - start < size):
                return
            yield Window(start, stop, stop - reached)
            reached = stop

    def batches(self, tokens_at_once: int) -> Iterator[list[Window]]:
        """Yield the windows in runs that one pass can take: equal sizes, so many tokens in all."""
        per_pass = max(1, tokens_at_once // self.block_size)
        for _, alike in groupby(self.windows(), key=lambda w: (w.stop - w.start, w.scored)):
            batch: list[Window] = []
            for window in alike:
                batch.append(window)
                if len(batch) == per_pass:
                    yield batch
                    batch = []
            if batch:
                yield batch
