"""Parameters: where they are, how many by which rule, and which of them decay."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nanogpt_cli.config import GPTConfig

RULES = {
    "total": "all parameters, a tied head once (Hugging Face's num_parameters)",
    "nanogpt": "all but wpe (nanoGPT's get_num_params)",
    "non_embedding": "all but wte and wpe (the N of the scaling laws)",
    "state_dict": "summed over a state dict, a tied head twice",
}
"""The fields of ParameterCounts and what each counts."""


@dataclass(frozen=True)
class Part:
    """One kind of layer of the model.

    Args:
        name: the module's name, `h.*.` for the ones that every block has.
        group: "embedding", "norm", "attention", "mlp" or "head".
        weight_shape: of the weight.
        bias_size: elements of the bias; 0 where there is none.
        copies: how often it occurs: n_layer, or 1.
        tied_to: the part whose weight this one shares, or None.
    """

    name: str
    group: str
    weight_shape: tuple[int, ...]
    bias_size: int = 0
    copies: int = 1
    tied_to: str | None = None

    @property
    def weight_size(self) -> int:
        """Elements of one copy's weight, shared or not."""
        return math.prod(self.weight_shape)

    @property
    def parameters_each(self) -> int:
        """Parameters that one copy adds to the model: none where the weight is shared."""
        return 0 if self.tied_to else self.weight_size + self.bias_size


def list_parts(config: GPTConfig) -> tuple[Part, ...]:
    """Return every kind of layer that holds weights, in module order."""
    C, L = config.n_embd, config.n_layer
    unit = 1 if config.bias else 0  # bias elements an output column
    return (
        Part("wte", "embedding", (config.vocab_size, C)),
        Part("wpe", "embedding", (config.block_size, C)),
        Part("h.*.ln_1", "norm", (C,), unit * C, L),
        Part("h.*.attn.c_attn", "attention", (3 * C, C), unit * 3 * C, L),
        Part("h.*.attn.c_proj", "attention", (C, C), unit * C, L),
        Part("h.*.ln_2", "norm", (C,), unit * C, L),
        Part("h.*.mlp.c_fc", "mlp", (4 * C, C), unit * 4 * C, L),
        Part("h.*.mlp.c_proj", "mlp", (C, 4 * C), unit * C, L),
        Part("ln_f", "norm", (C,), unit * C),
        Part(
            "lm_head",
            "head",
            (config.vocab_size, C),
            tied_to="wte" if config.tied_head else None,
        ),
    )


@dataclass(frozen=True)
class ParameterCounts:
    """How many parameters, by each rule of RULES."""

    total: int
    nanogpt: int
    non_embedding: int
    state_dict: int


def count_parameters(config: GPTConfig) -> ParameterCounts:
    """Return the four counts, in closed form.

    Source: nanoGPT's `get_num_params`; arXiv:2001.08361 for the count without embeddings.
    """
    C = config.n_embd
    wte, wpe = config.vocab_size * C, config.block_size * C
    block = 12 * C * C + 2 * C + config.bias * 11 * C
    inner = config.n_layer * block + C + config.bias * C
    head = 0 if config.tied_head else wte
    total = wte + wpe + inner + head
    return ParameterCounts(
        total=total,
        nanogpt=total - wpe,
        non_embedding=total - wpe - wte,
        state_dict=total + (wte if config.tied_head else 0),
    )


@dataclass(frozen=True)
class BreakdownRow:
    """What one kind of layer adds to the model.

    Args:
        name: as in Part.
        group: as in Part.
        copies: how often it occurs.
        parameters_each: in one copy.
        parameters: in all copies; 0 where the weight is another part's.
        share: of the model's total, a fraction.
        tied_to: the part whose weight it shares, or None.
        tied_parameters: how many it shares.
    """

    name: str
    group: str
    copies: int
    parameters_each: int
    parameters: int
    share: float
    tied_to: str | None
    tied_parameters: int


@dataclass(frozen=True)
class Breakdown:
    """Rows that sum to the model's total, and their sub-totals.

    Args:
        rows: in module order.
        embedding: wte and wpe.
        attention: c_attn and c_proj of every block's attention.
        mlp: c_fc and c_proj of every block's MLP.
        norm: ln_1 and ln_2 of every block, and ln_f.
        head: lm_head; 0 where it is tied.
        block: everything in one block.
        blocks: everything in all blocks.
        total: the whole model.
    """

    rows: tuple[BreakdownRow, ...]
    embedding: int
    attention: int
    mlp: int
    norm: int
    head: int
    block: int
    blocks: int
    total: int

    def __post_init__(self) -> None:
        in_rows = sum(row.parameters for row in self.rows)
        in_groups = self.embedding + self.attention + self.mlp + self.norm + self.head
        assert in_rows == in_groups == self.total, (
            f"the breakdown sums to {in_rows} by row and {in_groups} by group, not {self.total}"
        )


def break_down(config: GPTConfig) -> Breakdown:
    """Return where the parameters are."""
    parts = list_parts(config)
    total = count_parameters(config).total
    rows = tuple(_break_down_part(part, total) for part in parts)
    groups = dict.fromkeys((part.group for part in parts), 0)
    for row in rows:
        groups[row.group] += row.parameters
    block = sum(row.parameters_each for row in rows if row.name.startswith("h.*."))
    return Breakdown(rows=rows, block=block, blocks=config.n_layer * block, total=total, **groups)


def _break_down_part(part: Part, total: int) -> BreakdownRow:
    parameters = part.parameters_each * part.copies
    return BreakdownRow(
        name=part.name,
        group=part.group,
        copies=part.copies,
        parameters_each=part.parameters_each,
        parameters=parameters,
        share=parameters / total,
        tied_to=part.tied_to,
        tied_parameters=part.weight_size * part.copies if part.tied_to else 0,
    )


@dataclass(frozen=True)
class DecaySplit:
    """What weight decay touches: the parameters, and the tensors that hold them."""

    decayed_parameters: int
    decayed_tensors: int
    non_decayed_parameters: int
    non_decayed_tensors: int


def split_by_decay(config: GPTConfig) -> DecaySplit:
    """Return the two groups of `configure_optimizers`: tensors of two axes or more decay."""
    sizes = {True: 0, False: 0}
    tensors = {True: 0, False: 0}
    for part in list_parts(config):
        if part.tied_to:
            continue
        decays = len(part.weight_shape) >= 2
        sizes[decays] += part.copies * part.weight_size
        tensors[decays] += part.copies
        if part.bias_size:
            sizes[False] += part.copies * part.bias_size
            tensors[False] += part.copies
    return DecaySplit(sizes[True], tensors[True], sizes[False], tensors[False])


def count_tensors(config: GPTConfig) -> int:
    """Return how many tensors a state dict has, its head included and masks left out."""
    split = split_by_decay(config)
    return split.decayed_tensors + split.non_decayed_tensors + config.tied_head
