"""`nanogpt inspect --prompt`: one view of what a model does with a text.

A view NAME is drawn by `render(report)` in its module NAME here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanogpt_cli import output
from nanogpt_cli.commands.inspect.behaviour.outputs import check_page, check_save
from nanogpt_cli.commands.naming import name_checkpoint
from nanogpt_cli.errors import UsageError
from nanogpt_cli.inspection.behaviour import VIEWS, View, find_view
from nanogpt_cli.output.numbers import format_bytes

if TYPE_CHECKING:
    from nanogpt_cli.checkpoints import Checkpoint
    from nanogpt_cli.generation.vocabulary import Vocabulary
    from nanogpt_cli.inspection.behaviour.subject import Subject
    from nanogpt_cli.inspection.behaviour.text import Tokens

DEFAULT_VIEW = "next"


@dataclass(frozen=True)
class Request:
    """What is wanted of a model at work, as the flags say; checked when it is built.

    Args:
        prompt: what --prompt is given, or None for no look at the model at work.
        view: what --view is given.
        options: by name, None where not given.
        save: where the arrays go.
        html: where a page of all views goes.
        force: whether a file that exists may be replaced.

    Raises:
        UsageError: a flag of a view without a prompt, or of another view; no such view.
    """

    prompt: str | None
    view: str | None
    options: Mapping[str, Any]
    save: Path | None
    html: Path | None
    force: bool

    def __post_init__(self) -> None:
        given = [name for name, value in self.options.items() if value is not None]
        if self.prompt is None:
            named: dict[str, object] = {"view": self.view, "save": self.save, "html": self.html}
            named["force"] = self.force or None
            _refuse_without_prompt([*(n for n, v in named.items() if v is not None), *given])
            return
        chosen = self.chosen
        for name in given if self.html is None else ():
            if name not in chosen.options:
                takers = " or ".join(view.name for view in VIEWS if name in view.options)
                raise UsageError(
                    f"{_flag(name)} means nothing to the view {chosen.name!r}",
                    hint=f"add --view {takers}, or leave {_flag(name)} out",
                )
        self._check_outputs(chosen)

    def check_places(self, inputs: Iterable[Path]) -> None:
        """Refuse a file to write that would cost another.

        Raises:
            UsageError: it is there without --force, or an input, or lies nowhere.
        """
        if self.save is not None:
            check_save(self.save, inputs, force=self.force)
        if self.html is not None:
            check_page(self.html, inputs, force=self.force)

    def _check_outputs(self, chosen: View) -> None:
        if self.save is not None and not chosen.saves:
            savers = ", ".join(view.name for view in VIEWS if view.saves)
            raise UsageError(
                f"the view {chosen.name!r} has no arrays to save",
                hint=f"leave --save out; {savers} have some",
            )
        if self.save is not None and self.html is not None:
            raise UsageError("--save and --html are two outputs: give one", hint="run it twice")
        if self.force and self.save is None and self.html is None:
            raise UsageError("--force means nothing without --save or --html", hint="leave it out")

    @property
    def chosen(self) -> View:
        """The view that is asked for."""
        return find_view(self.view or DEFAULT_VIEW)

    @property
    def settings(self) -> dict[str, Any]:
        """What is given of the view's options."""
        return {name: value for name, value in self.options.items() if value is not None}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _refuse_without_prompt(names: list[str]) -> None:
    if names:
        raise UsageError(
            f"{_flag(names[0])} means nothing without a text to look at",
            hint="add --prompt TEXT",
        )


def show(
    checkpoint: Checkpoint,
    request: Request,
    *,
    as_json: bool,
    threads: int | None,
    tokenizer: str | None,
    meta: Path | None,
    **session: Any,
) -> None:
    """Run the model on the prompt and show the view.

    Args:
        checkpoint: opened, its weights unread.
        request: what is wanted of it.
        as_json: print JSON.
        threads: CPU threads, None for as many as there are physical cores.
        tokenizer: as `--tokenizer`, or None for the checkpoint's own.
        meta: as `--meta`.
        session: what else `Session` takes.
    """
    from nanogpt_cli.generation.prompt import at_hand
    from nanogpt_cli.generation.vocabulary import find_vocabulary

    request.check_places([checkpoint.located.path])
    vocabulary = find_vocabulary(checkpoint, tokenizer=tokenizer, meta=meta)
    tokens = _read(request, vocabulary) if at_hand(request.prompt) else None
    # Only now torch, which takes a second: what is wrong with the command line is told at once.
    from nanogpt_cli.generation.devices import use_threads
    from nanogpt_cli.generation.session import Session
    from nanogpt_cli.inspection.behaviour.subject import read_subject

    use_threads(threads)
    opened = Session(checkpoint, vocabulary=vocabulary, **session)
    for message in opened.notes:
        output.note(message)
    if opened.dtype_name != "float32":
        output.note(f"the weights are rounded to {opened.dtype_name}, the arithmetic is float32")
    tokens = tokens or _read(request, vocabulary)
    with output.status("reading the weights"):
        subject = read_subject(opened, tokens, name_checkpoint(checkpoint))
    if request.html is not None:
        from nanogpt_cli.commands.inspect.behaviour.page import show_page

        show_page(subject, request.html, request, as_json=as_json)
    else:
        _show_view(subject, request, as_json=as_json)


def _read(request: Request, vocabulary: Vocabulary) -> Tokens:
    """Return the text as tokens, which the view's options were checked against."""
    from nanogpt_cli.generation.prompt import read_prompt
    from nanogpt_cli.inspection.behaviour.limits import check_options
    from nanogpt_cli.inspection.behaviour.text import name_token_file, read_tokens

    file = name_token_file(request.prompt)
    prompt = file or read_prompt(request.prompt, getattr(sys.stdin, "buffer", None))
    tokens = read_tokens(prompt, vocabulary)
    count = min(len(tokens.ids), vocabulary.config.block_size)
    check_options(request.settings, vocabulary, count)
    return tokens


def _show_view(subject: Subject, request: Request, *, as_json: bool) -> None:
    from nanogpt_cli.commands.progress import show_progress
    from nanogpt_cli.inspection.behaviour.saving import save_arrays

    view = request.chosen
    if not view.whole_text:
        subject = subject.last_block()
    for message in subject.notes:
        output.note(message)
    with show_progress(f"measuring {view.name}") as progress:
        report = view.measure(subject, progress=progress, **request.settings)
    if request.save is not None:
        with output.status(f"writing {request.save.name}"):
            size = save_arrays(request.save, report)
        output.note(f"wrote {request.save} ({format_bytes(size)})")
    drawn = import_module(f"{__name__}.{view.name}")
    output.emit(report, as_json, drawn.render)
