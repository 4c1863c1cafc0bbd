"""What is on a page: facts, tokens, and each view's report as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nanogpt_cli import __version__
from nanogpt_cli.inspection.behaviour import VIEWS, Progress
from nanogpt_cli.inspection.behaviour.labels import show_text
from nanogpt_cli.inspection.behaviour.page.packing import PACKERS, Packed, Scope, spell_pieces

if TYPE_CHECKING:
    from nanogpt_cli.inspection.behaviour import View
    from nanogpt_cli.inspection.behaviour.subject import Subject

MOST_TOKENS = 256
"""The last tokens of a longer text are those on the page."""

MOST_CHARACTERS = 2_000
"""Of the prompt, at the head of the page."""

WHOLE_TEXT = "surprisal"
"""The one view that is on the page for a text of any length; its window is in the report."""

LOSSES = ("surprisal", "ablation")
"""Views that have nothing to say of one token."""

ONE_TOKEN = "the text is one token, and a token is predicted from those before it"


@dataclass
class Contents:
    """What `collect` found.

    Args:
        fields: plain values, for the page's script.
        views: names, in order.
        left_out: what the page lacks, for people.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    views: dict[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def collect(
    subject: Subject,
    options: Mapping[str, Any],
    tell: Callable[[str], AbstractContextManager[Progress]],
) -> Contents:
    """Run every view and return what the page says of them.

    Args:
        subject: with all the tokens of the text.
        options: of the views; each goes to those that take it.
        tell: gives, for a view's name, who is told how far it is.

    Raises:
        NanoGPTError: an option that cannot be meant, or logits that are not finite.
    """
    seen = subject.last_block()
    scope = Scope(seen, min(len(seen.ids), MOST_TOKENS))
    contents, left_out = Contents(), []
    if seen.dropped:
        left_out.append(
            f"the model sees the last {len(seen.ids):,} of the text's {len(subject.ids):,} tokens; "
            "surprisal alone goes over all of them"
        )
    if scope.count < len(seen.ids):
        left_out.append(
            f"the page shows the last {scope.count:,} of the {len(seen.ids):,} tokens that the "
            "model sees; what is summed or averaged is over all of them"
        )
    for view in VIEWS:
        if len(subject.ids) < 2 and view.name in LOSSES:
            contents.views[view.name] = {"missing": ONE_TOKEN}
            continue
        chosen = subject if view.name == WHOLE_TEXT else seen
        with tell(view.name) as progress:
            packed = _measure(view, chosen, scope, options, progress)
        contents.views[view.name] = packed.fields
        left_out += packed.left_out
    contents.left_out = tuple(left_out)
    contents.fields = {
        **_facts(subject),
        "left_out": left_out,
        "tokens": _list_tokens(scope),
        "views": contents.views,
        "titles": [(view.name, view.help) for view in VIEWS],
        "labels": scope.labels,
    }
    return contents


def _measure(
    view: View, subject: Subject, scope: Scope, options: Mapping[str, Any], progress: Progress
) -> Packed:
    own = {name: value for name, value in options.items() if name in view.options}
    report = view.measure(subject, progress=progress, **own)
    return PACKERS[view.name](report, scope)


def _facts(subject: Subject) -> dict[str, Any]:
    c, text = subject.model.config, subject.text
    sizes = ("n_layer", "n_head", "n_embd", "block_size", "vocab_size", "bias", "activation")
    return {
        "nanogpt": __version__,
        "checkpoint": show_text(subject.name),
        "config": {name: getattr(c, name) for name in sizes},
        "tokenizer": show_text(subject.tokenizer.name),
        "separator": subject.tokenizer.separator.decode(),
        "prompt": show_text(text[:MOST_CHARACTERS]),
        "prompt_characters": len(text),
        "prompt_shown": min(len(text), MOST_CHARACTERS),
        "prompt_tokens": len(subject.ids),
    }


def _list_tokens(scope: Scope) -> dict[str, Any]:
    ids: Sequence[int] = scope.seen.ids[-scope.count :]
    return {
        "first": scope.first,
        "ids": scope.name_all(ids),
        "pieces": spell_pieces(scope.seen.tokenizer, ids),
    }
