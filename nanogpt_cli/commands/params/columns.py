"""How `nanogpt params` shows several models: one table, a column a model.

Pure: reports in, something for rich to draw out.
"""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from nanogpt_cli.accounting import ModelReport
from nanogpt_cli.commands.params.tables import FORMULA, format_days, format_utilisation
from nanogpt_cli.commands.tables import draw_table
from nanogpt_cli.output import visible

COMPARED: tuple[tuple[str, str], ...] = (
    ("sizes", ""),
    ("layers", "config.n_layer"),
    ("heads", "config.n_head"),
    ("width", "config.n_embd"),
    ("context", "config.block_size"),
    ("vocabulary", "config.vocab_size"),
    ("biases", "config.bias"),
    ("tied head", "config.tied_head"),
    ("parameters", ""),
    ("total, the head once if tied", "parameters.total"),
    ("nanogpt: without wpe", "parameters.nanogpt"),
    ("without wte and wpe", "parameters.non_embedding"),
    ("state dict, a tied head twice", "parameters.state_dict"),
    ("published as", "published_labels"),
    ("where they are", ""),
    ("wte and wpe", "breakdown.embedding"),
    ("attention", "breakdown.attention"),
    ("MLP", "breakdown.mlp"),
    ("norms", "breakdown.norm"),
    ("lm_head", "breakdown.head"),
    ("weight decay", ""),
    ("decayed", "decay.decayed_parameters"),
    ("not decayed", "decay.non_decayed_parameters"),
    ("bytes", ""),
    ("weights, float32", "memory.weights_bytes.float32"),
    ("weights, bf16 or fp16", "memory.weights_bytes.bfloat16"),
    ("weights + Adam, float32", "memory.weights_and_adam_bytes"),
    ("KV cache a token, bf16", "kv_cache.per_token_bytes.bfloat16"),
    ("KV cache, full context", "kv_cache.full_context_bytes.bfloat16"),
    ("KV cache, all of the batch", "kv_cache.batch_bytes.bfloat16"),
    ("FLOPs of a full context", ""),
    ("forward", "flops.forward_flops"),
    ("forward + backward", "flops.forward_backward_flops"),
    (FORMULA, "flops.formula.flops_per_sequence"),
)
"""Label and place in the report of each row; a row without a place is a heading."""


def render_models(models: tuple[ModelReport, ...]) -> Table:
    """Return several models' accounts, side by side."""
    table = draw_table()
    table.add_column("", no_wrap=True)
    for model in models:
        table.add_column(Text(visible(model.name)), justify="right")
    for label, place in COMPARED:
        if place:
            table.add_row(f"  {label}", *(_show(model, place) for model in models))
        else:
            table.add_row(Text(label, style="bold"))
    for label, values in _measured(models).items():
        table.add_row(Text(label, style="bold"), *values)
    return table


def _measured(models: tuple[ModelReport, ...]) -> dict[str, list[str]]:
    """Return the rows that are no plain counts; what was asked for was asked of all models."""
    rows = {}
    steps = [model.step for model in models if model.step is not None]
    trainings = [model.training for model in models if model.training is not None]
    if steps:
        rows["MFU"] = [format_utilisation(step.mfu) for step in steps]
    if trainings:
        rows["days"] = [format_days(training.days) for training in trainings]
    losses = [f"{model.untrained_loss_nats_per_token:.4f}" for model in models]
    return {**rows, "untrained loss": losses}


def _show(model: ModelReport, place: str) -> str:
    value: object = model
    for name in place.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value) or "-"
    return "unknown" if value is None else f"{value:,}"
