"""One HTML page of everything that a model does with a text: every view, and nothing to fetch.

This module is light; `make_page` runs the model. What a view's report becomes on the page is in
`packing` and `attention_bytes`; what is drawn of it is JavaScript, a file a view, beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from nanogpt_cli.inspection.behaviour import Progress, no_progress

if TYPE_CHECKING:
    from nanogpt_cli.inspection.behaviour.subject import Subject

__all__ = ["Page", "PageReport", "make_page"]


@dataclass(frozen=True)
class Page:
    """A page in memory.

    Args:
        data: the file; the same for the same model, text and options.
        views: those that are on it, in order.
        left_out: what is not on it that the text would have had, for people.
    """

    data: bytes
    views: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class PageReport:
    """A page that was written.

    Args:
        file: where it is.
        file_bytes: its size.
        checkpoint: the model, for people.
        prompt: the text.
        prompt_tokens: of the text.
        first_view: the one that it opens with.
        views: those that are on it, in order.
        left_out: what is not on it that the text would have had, for people.
    """

    schema: ClassVar[str] = "nanogpt.inspect.page/1"

    file: str
    file_bytes: int
    checkpoint: str
    prompt: str
    prompt_tokens: int
    first_view: str
    views: tuple[str, ...]
    left_out: tuple[str, ...]


def _untold(_view: str) -> AbstractContextManager[Progress]:
    return nullcontext(no_progress)


def make_page(
    subject: Subject,
    *,
    first_view: str,
    options: Mapping[str, Any],
    tell: Callable[[str], AbstractContextManager[Progress]] = _untold,
) -> Page:
    """Run every view on a text and return them as one page.

    Args:
        subject: with all the tokens of the text.
        first_view: the view that the page opens with.
        options: of the views, as flags name them; each goes to those that take it.
        tell: gives, for a view's name, who is told how far it is.

    Raises:
        NanoGPTError: an option that cannot be meant, or logits that are not finite.
    """
    from nanogpt_cli.inspection.behaviour.page.assembly import assemble
    from nanogpt_cli.inspection.behaviour.page.contents import collect

    contents = collect(subject, options, tell)
    facts = {"start": first_view, **contents.fields}
    return Page(assemble(facts), tuple(contents.views), contents.left_out)
