"""What the options of views can be, checked before a model is loaded: light."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.vocabulary import Vocabulary
from nanogpt_cli.inspection.behaviour.labels import find_token

OF_TOKENS = ("track", "answer", "against")
"""The options that name a token by its text."""


def check_options(options: Mapping[str, Any], vocabulary: Vocabulary, count: int) -> None:
    """Refuse options of views that no view could take.

    Args:
        options: by name, those that were given.
        vocabulary: of the model.
        count: tokens of the text that the model sees.

    Raises:
        UsageError: one is out of range, or means nothing without another.
    """
    config = vocabulary.config
    if "top" in options:
        check_top(options["top"])
    check_stride(options.get("stride"), config.block_size)
    check_map(
        options.get("layer"),
        options.get("head"),
        average=options.get("average", False),
        n_layer=config.n_layer,
        n_head=config.n_head,
    )
    find_position(options.get("position"), count)
    for name in OF_TOKENS:
        if name in options:
            find_token(vocabulary.tokenizer, options[name], config.vocab_size)


def check_top(top: int) -> None:
    """Raise UsageError where a table would have no row."""
    if top < 1:
        raise UsageError(f"--top {top}: a table has at least 1 row", hint="give --top 10")


def check_stride(stride: int | None, block_size: int) -> None:
    """Raise UsageError where a window would not move, or leave tokens out."""
    if stride is not None and not 1 <= stride <= block_size:
        raise UsageError(
            f"--stride {stride}: it must be 1 to block_size, {block_size}",
            hint="1 gives each token all the context there is, and is slowest",
        )


def check_map(
    layer: int | None, head: int | None, *, average: bool, n_layer: int, n_head: int
) -> None:
    """Raise UsageError for a layer or head that there is none of, or one without the other."""
    for name, value, count in (("layer", layer, n_layer), ("head", head, n_head)):
        if value is not None and not 0 <= value < count:
            last = count - 1
            named = f"1 {name} is number 0" if last == 0 else f"{count} {name}s are numbered 0 to"
            raise UsageError(
                f"no {name} {value}: the model's {named}{f' {last}' if last else ''}",
                hint=f"give --{name} {last}" if last == 0 else f"give --{name} 0 to {last}",
            )
    if layer is None and (head is not None or average):
        flag = "--head" if head is not None else "--average"
        most = f" to {n_layer - 1}" if n_layer > 1 else ""
        raise UsageError(f"{flag} without a layer", hint=f"add --layer 0{most}")
    if head is not None and average:
        raise UsageError("--head and --average are two maps: give one", hint="run it twice")


def find_position(position: int | None, count: int) -> int:
    """Return the place of the token that `--position` means, of so many.

    Args:
        position: None for the last; below 0 counts from the end.
        count: tokens of the text.

    Raises:
        UsageError: there is none.
    """
    if position is None:
        return count - 1
    if not -count <= position < count:
        last = count - 1
        named = f"{count:,} tokens are numbered 0 to {last}" if last else "1 token is number 0"
        raise UsageError(
            f"no position {position}: the {named}",
            hint=f"give --position {last} for the last, or leave it out",
        )
    return position % count
