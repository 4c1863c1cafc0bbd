"""One conversion, planned as a whole: source, weights, what stands round them, what goes along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nanogpt_cli.checkpoints import Checkpoint
from nanogpt_cli.conversion.nanogpt_file import Surroundings, plan_surroundings
from nanogpt_cli.conversion.plan import ModelPlan, plan_model
from nanogpt_cli.conversion.settings import ConversionSettings
from nanogpt_cli.conversion.tokenizer_files import (
    TravellingTokenizer,
    find_source_tokenizer,
    plan_tokenizer,
)


@dataclass(frozen=True)
class Job:
    """A conversion, planned.

    Args:
        checkpoint: the source.
        output: the file or folder to be written.
        settings: what was asked for.
        model: the weights of the output.
        surroundings: what stands round them in a torch file, else None.
        tokenizer: what goes along.
        notes: what a user should hear.
    """

    checkpoint: Checkpoint
    output: Path
    settings: ConversionSettings
    model: ModelPlan
    surroundings: Surroundings | None
    tokenizer: TravellingTokenizer
    notes: tuple[str, ...]

    @property
    def is_folder(self) -> bool:
        """Whether the output is a folder."""
        return self.settings.to == "hf"

    @property
    def entries(self) -> Mapping[str, object] | None:
        """What stands round the weights in a torch file, else None."""
        return None if self.surroundings is None else self.surroundings.entries


def plan_job(
    checkpoint: Checkpoint,
    output: Path,
    settings: ConversionSettings,
    *,
    tokenizer: str | None = None,
    meta: Path | None = None,
) -> Job:
    """Settle everything about a conversion but the bytes.

    Raises:
        NanoGPTError: something that the output cannot carry, or a tokenizer that cannot be used.
    """
    found, notes = find_source_tokenizer(checkpoint, tokenizer=tokenizer, meta=meta)
    model = plan_model(checkpoint, settings, None if found is None else found.n_vocab)
    travelling = plan_tokenizer(found, checkpoint, settings.to, output)
    told = [*checkpoint.notes, *notes, *model.notes, *travelling.notes]
    surroundings = None
    if settings.to == "nanogpt":
        surroundings = plan_surroundings(checkpoint, model, settings)
        told += surroundings.notes
    elif settings.weights_only:
        told.append(f"--weights-only has no effect: {settings.to} holds weights alone")
    return Job(checkpoint, output, settings, model, surroundings, travelling, tuple(told))
