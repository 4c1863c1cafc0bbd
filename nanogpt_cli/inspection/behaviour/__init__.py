"""What a model does with a text: the views of `nanogpt inspect --prompt`, in order.

This module is light. A view's module imports torch and has

    measure(subject: Subject, *, progress: Progress, **options) -> BehaviourReport

An addition is such a module, its entry in VIEWS, and a renderer on the floor of the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from nanogpt_cli.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from numpy import ndarray

    from nanogpt_cli.inspection.behaviour.subject import Subject

__all__ = [
    "VIEWS",
    "Arrays",
    "BehaviourReport",
    "Progress",
    "View",
    "bulk",
    "find_view",
    "no_progress",
]

Arrays = Mapping[str, "ndarray[Any, Any]"]
"""numpy arrays by name."""

Progress = Callable[[int, int], None]
"""Called with steps done, and in all."""


def no_progress(_done: int, _total: int) -> None:
    """Tell nobody."""


class BehaviourReport(Protocol):
    """A frozen dataclass of plain values, None where a value does not exist.

    `schema` is a ClassVar, "nanogpt.inspect.VIEW/1".
    """

    @property
    def schema(self) -> str:
        """The name under which scripts know the fields."""

    def arrays(self) -> Arrays:
        """Return what --save writes, by name: numpy arrays; empty where there is nothing."""


def bulk() -> Any:
    """Return a dataclass field for big arrays: a mapping that no JSON, repr or == looks into."""
    return field(default_factory=dict, repr=False, compare=False, metadata={"json": False})


@dataclass(frozen=True)
class View:
    """One way to look at what a model does with a text.

    Args:
        name: what --view calls it.
        help: what it shows, a few words.
        module: of this package, with `measure`.
        options: the parameters of `measure` that a user may set, as flags name them.
        whole_text: whether it takes a text of any length; else the last block_size tokens.
        saves: whether its report has arrays for --save.
    """

    name: str
    help: str
    module: str
    options: tuple[str, ...] = ()
    whole_text: bool = False
    saves: bool = True

    def measure(
        self, subject: Subject, *, progress: Progress = no_progress, **options: Any
    ) -> BehaviourReport:
        """Run the model and return the view's report; `options` left out take their defaults.

        Raises:
            NanoGPTError: an option that cannot be meant, or logits that are not finite.
        """
        module = import_module(f"{__name__}.{self.module}")
        return cast("BehaviourReport", module.measure(subject, progress=progress, **options))


VIEWS: tuple[View, ...] = (
    View("next", "what the model expects after the text", "next_token", ("top", "track")),
    View(
        "surprisal",
        "how surprising each token of the text is",
        "surprisal",
        ("stride",),
        whole_text=True,
    ),
    View("lens", "what the model would say after each layer", "lens", ("track",)),
    View("attention", "where each head looks", "attention", ("layer", "head", "average")),
    View(
        "contributions",
        "which parts speak for an answer",
        "contributions",
        ("answer", "against", "position"),
    ),
    View("activations", "norms, idle units and outliers in each layer", "activations"),
    View("ablation", "what the loss is without each head and layer", "ablation", whole_text=True),
)


def find_view(name: str) -> View:
    """Return the view of that name.

    Raises:
        UsageError: there is none.
    """
    for view in VIEWS:
        if view.name == name:
            return view
    known = [view.name for view in VIEWS]
    hint = did_you_mean(name, known, f"--view takes {', '.join(known)}")
    raise UsageError(f"no view is named {name!r}", hint=hint)
