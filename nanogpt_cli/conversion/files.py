"""The files of an output, as writers take them: tensors are made while they are written."""

from __future__ import annotations

from nanogpt_cli.checkpoints.plans import BytesPlan, FilePlan
from nanogpt_cli.checkpoints.safetensors_files.write import SafetensorsPlan
from nanogpt_cli.checkpoints.torch_files.write import plan_torch
from nanogpt_cli.checkpoints.writing.remaking import CastLoss
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.conversion import hf_folder
from nanogpt_cli.conversion.job import Job
from nanogpt_cli.conversion.nanogpt_file import build_root
from nanogpt_cli.conversion.stored import stored


def plan_files(job: Job, loss: CastLoss | None = None) -> dict[str, FilePlan]:
    """Return the output's files by name; a single file's name is the output's own.

    Args:
        job: the conversion.
        loss: where the cost of casts is counted while the files are written.
    """
    tensors = {planned.row.name: stored(planned, loss) for planned in job.model.tensors}
    if job.surroundings is not None:
        root = build_root(job.surroundings, tensors, job.model.config)
        return {job.output.name: plan_torch(root)}
    if not job.is_folder:
        return {job.output.name: SafetensorsPlan(tensors, metadata(job.model.config))}
    config = hf_folder.config_json(job.model, job.checkpoint, job.tokenizer.end_of_text)
    generation = hf_folder.generation_config_json(config)
    return {
        hf_folder.CONFIG: BytesPlan(hf_folder.to_text(config)),
        hf_folder.GENERATION_CONFIG: BytesPlan(hf_folder.to_text(generation)),
        **{name: BytesPlan(content) for name, content in job.tokenizer.files.items()},
        hf_folder.WEIGHTS: SafetensorsPlan(tensors, {"format": "pt"}),
    }


def metadata(config: GPTConfig) -> dict[str, str]:
    """Return the strings that make a safetensors file whole: what its shapes do not say."""
    return {
        "format": "pt",
        **{name: str(getattr(config, name)) for name in hf_folder.SIZES},
        "bias": str(config.bias).lower(),
        "activation": config.activation,
        "tied_head": str(config.tied_head).lower(),
    }
