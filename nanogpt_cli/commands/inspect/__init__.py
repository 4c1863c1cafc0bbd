"""`nanogpt inspect`: what is in a checkpoint, executing nothing."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nanogpt_cli import candidates, output
from nanogpt_cli.commands.inspect.behaviour import Request, show
from nanogpt_cli.commands.inspect.behaviour.options import (
    HtmlOpt,
    PromptOpt,
    SaveOpt,
    ViewOpt,
    with_view_options,
)
from nanogpt_cli.commands.naming import tell_checkpoint
from nanogpt_cli.errors import CheckpointError, NanoGPTError, TokenizerError, UsageError
from nanogpt_cli.options.checkpoint import CheckpointArg
from nanogpt_cli.options.model import DeviceOpt, Dtype, NHeadOpt, OfflineOpt, ThreadsOpt
from nanogpt_cli.options.output import ForceOpt, JsonOpt
from nanogpt_cli.options.panels import MODEL
from nanogpt_cli.options.prompt import MetaOpt, TokenizerOpt

if TYPE_CHECKING:
    from nanogpt_cli.checkpoints import Checkpoint
    from nanogpt_cli.commands.inspect.views import Listing
    from nanogpt_cli.inspection.overview import OverviewReport

VIEW = "View"

Sort = Literal["file", "name", "size"]


def _view_option(*flags: str, help: str, **more: Any) -> Any:
    return typer.Option(*flags, rich_help_panel=VIEW, help=help, **more)


TensorsOpt = Annotated[
    bool,
    _view_option("--tensors", help="List every tensor: shape, elements, bytes, number format."),
]
StatsOpt = Annotated[
    bool,
    _view_option(
        "--stats",
        help="Read the weights: mean, spread, range and norm of each, what was never trained, and "
        "a fingerprint that is the same for every container of the model.",
    ),
]
CheckOpt = Annotated[
    bool,
    _view_option(
        "--check",
        help="Check names, shapes, values, tying, masks, optimizer, settings and tokenizer; "
        "exit 3 on a fault.",
    ),
]
DiffOpt = Annotated[
    str | None,
    _view_option(
        "--diff",
        metavar="OTHER",
        show_default=False,
        autocompletion=candidates.checkpoints,
        help="Compare with another checkpoint, whatever its container, prefixes and order; "
        "exit 3 when the models differ.",
    ),
]
FilterOpt = Annotated[
    str | None,
    _view_option(
        "--filter",
        metavar="GLOB",
        show_default=False,
        help="With --tensors, --stats: only names that match, such as '*.attn.*'.",
    ),
]
SortOpt = Annotated[
    Sort,
    _view_option(
        "--sort",
        help="With --tensors, --stats: in the file's order, by name, or the largest first.",
    ),
]
TreeOpt = Annotated[
    bool,
    _view_option(
        "--tree/--flat", help="With --tensors: modules with their sums, or a tensor a row."
    ),
]
OptimizerOpt = Annotated[
    bool, _view_option("--optimizer", help="With --tensors, --stats: the optimizer's tensors, too.")
]
DtypeOpt = Annotated[
    Dtype,
    typer.Option(
        "--dtype",
        rich_help_panel=MODEL,
        help="With a prompt: the number format that the weights are rounded to; the arithmetic is "
        "float32. auto is bfloat16 or float16 on CUDA, as in sample.",
    ),
]


@with_view_options(before="save")
def inspect(
    checkpoint: CheckpointArg = None,
    tensors: TensorsOpt = False,
    stats: StatsOpt = False,
    check: CheckOpt = False,
    diff: DiffOpt = None,
    pattern: FilterOpt = None,
    sort: SortOpt = "file",
    tree: TreeOpt = False,
    optimizer: OptimizerOpt = False,
    prompt: PromptOpt = None,
    view: ViewOpt = None,
    save: SaveOpt = None,
    html: HtmlOpt = None,
    force: ForceOpt = False,
    tokenizer: TokenizerOpt = None,
    meta: MetaOpt = None,
    n_head: NHeadOpt = None,
    device: DeviceOpt = "auto",
    dtype: DtypeOpt = "float32",
    threads: ThreadsOpt = None,
    offline: OfflineOpt = False,
    json: JsonOpt = False,
    **of_view: Any,
) -> None:
    """Show what is in a checkpoint: its model, its training, where every byte went.

    Without a view, only names, shapes and settings are read. Nothing in a file is ever executed.
    With a prompt, the model is run on it and the view shows what it does, in raw numbers.

    Examples:

        nanogpt inspect out/ckpt.pt --check
        nanogpt inspect out/ckpt.pt --tensors --filter "*.attn.*"
        nanogpt inspect demo --prompt "To be, or not to be" --view lens
    """
    from nanogpt_cli.checkpoints import open_checkpoint
    from nanogpt_cli.commands.inspect import views
    from nanogpt_cli.generation.device_names import check_device, check_threads

    request = Request(prompt, view, of_view, save, html, force)
    asked = {"tensors": tensors, "stats": stats, "check": check, "diff": diff is not None}
    require_one_view(**asked, prompt=prompt is not None)
    listing = views.Listing(pattern=pattern, sort=sort, optimizer=optimizer)
    note_without_effect(listing, tree=tree, tensors=tensors, stats=stats)
    check_device(device)
    check_threads(threads)
    if checkpoint is not None and not os.path.lexists(checkpoint):
        request.check_places([])  # before any download
    try:
        opened = open_checkpoint(checkpoint, n_head=n_head, offline=offline)
    except CheckpointError as error:
        show_refusal(checkpoint, error, check=check, as_json=json)
        raise
    has_title = prompt is not None and html is None and not json and sys.stdout.isatty()
    tell(opened, has_title=has_title)
    if tensors:
        views.show_tensors(opened, listing, tree=tree, as_json=json)
    elif stats:
        views.show_stats(opened, listing, as_json=json)
    elif check:
        views.show_check(opened, tokenizer=tokenizer, meta=meta, as_json=json)
    elif prompt is not None:
        show(
            opened,
            request,
            as_json=json,
            threads=threads,
            tokenizer=tokenizer,
            meta=meta,
            device=device,
            dtype=dtype,
        )
    elif diff is not None:
        other = open_checkpoint(diff, n_head=n_head, offline=offline)
        tell(other)
        views.show_diff(opened, other, as_json=json)
    else:
        report = views.show_overview(opened, tokenizer=tokenizer, meta=meta, as_json=json)
        refuse_hostile_table(report)


def require_one_view(**views: bool) -> None:
    """Refuse two views at once: each is a report of its own."""
    asked = [f"--{name}" for name, is_wanted in views.items() if is_wanted]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} are two views: give one", hint="run it twice")


def note_without_effect(listing: Listing, *, tree: bool, tensors: bool, stats: bool) -> None:
    """Say which settings have no effect in this view."""
    changed = {"--filter": listing["pattern"] is not None, "--sort": listing["sort"] != "file"}
    changed["--optimizer"] = listing["optimizer"] is True
    for flag, is_given in changed.items():
        if is_given and not (tensors or stats):
            output.note(f"{flag} has no effect without --tensors or --stats")
    if tree and not tensors:
        output.note("--tree has no effect without --tensors")


def tell(checkpoint: Checkpoint, *, has_title: bool = False) -> None:
    """Say on stderr which file is inspected, how far it was trained, and what to know of it.

    Args:
        has_title: the user sees a report that begins with the first two of these.
    """
    if not has_title:
        tell_checkpoint("inspecting", checkpoint)
    for message in checkpoint.notes:
        output.note(message)


def show_refusal(ref: str | None, error: CheckpointError, *, check: bool, as_json: bool) -> None:
    """Show what can be said of a file that is not opened; the error itself goes to stderr.

    With --check, a file that can be read and holds another model has its faults listed, exit 3.
    """
    from nanogpt_cli.checkpoints.finding.refs import locate
    from nanogpt_cli.commands.inspect import views

    try:
        path = locate(ref, offline=True).path
    except NanoGPTError:
        return
    if check:
        views.show_faults(path, error, as_json=as_json)
    views.show_refusal(path, error, as_json=as_json)


def refuse_hostile_table(report: OverviewReport) -> None:
    """Fail where the table beside the checkpoint is a pickle that would run something."""
    found = report.tokenizer
    if found.status == "refused":
        raise TokenizerError(found.message, found.hint)
