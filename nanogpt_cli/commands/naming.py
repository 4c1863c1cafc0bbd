"""How a line on stderr names a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanogpt_cli import output

if TYPE_CHECKING:
    from nanogpt_cli.checkpoints import Checkpoint

NOT_EVALUATED = 1e9
"""What train.py has for a loss before it measured one."""


def tell_checkpoint(doing: str, checkpoint: Checkpoint) -> None:
    """Say on stderr which checkpoint it is, and before that why, where nobody named it.

    Args:
        doing: what is done with it: "sampling".
    """
    for message in checkpoint.located.notes:
        output.note(message)
    output.note(f"{doing} {name_checkpoint(checkpoint)}")


def name_checkpoint(checkpoint: Checkpoint) -> str:
    """Return which weights are used, and how far they were trained."""
    located = checkpoint.located
    named = str(located.path)
    if located.kind == "demo":
        named = located.kind
    elif located.kind == "hub":
        named = f"{located.given} at {(located.revision or 'an unknown revision')[:12]}"
    facts = [named]
    if checkpoint.iter_num is not None:
        facts.append(f"iter_num {checkpoint.iter_num}")
    if checkpoint.best_val_loss is not None and checkpoint.best_val_loss < NOT_EVALUATED:
        facts.append(f"best_val_loss {checkpoint.best_val_loss:.4f}")
    return ", ".join(facts)
