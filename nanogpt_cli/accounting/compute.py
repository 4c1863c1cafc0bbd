"""FLOPs: what one full sequence costs, itemised and by formula."""

from __future__ import annotations

from dataclasses import dataclass

from nanogpt_cli.accounting.parameters import count_parameters
from nanogpt_cli.config import GPTConfig


@dataclass(frozen=True)
class FormulaFlops:
    """6N + 12·L·H·Q·T: forward and backward, Q = C / H columns a head.

    Args:
        rule: which count N is.
        n_parameters: N.
        flops_per_token: the formula's value.
        flops_per_sequence: for T tokens.
        ratio_to_itemised: over the itemised count of the same sequence.
    """

    rule: str
    n_parameters: int
    flops_per_token: int
    flops_per_sequence: int
    ratio_to_itemised: float


@dataclass(frozen=True)
class FlopsReport:
    """FLOPs of one full sequence, two for each multiplication and its addition.

    Only matrix products count; norms, softmax and GELU are left out. The causal half of the
    scores that is thrown away is counted, as those who publish such figures do.

    Args:
        sequence_tokens: T, the block_size.
        qkv_flops: in one layer, as are the next six.
        head_flops: the logits of all T positions.
        forward_flops: all layers and the head.
        backward_flops: twice that.
        forward_backward_flops: both.
        formula: 6N + 12·L·H·Q·T with N as nanoGPT counts it (without wpe).
        formula_total: the same with all parameters as N, as the sizing notebook has it.
    """

    sequence_tokens: int
    qkv_flops: int
    scores_flops: int
    weighted_sum_flops: int
    out_proj_flops: int
    attention_flops: int
    mlp_flops: int
    block_flops: int
    blocks_flops: int
    head_flops: int
    forward_flops: int
    backward_flops: int
    forward_backward_flops: int
    formula: FormulaFlops
    formula_total: FormulaFlops


def count_flops(config: GPTConfig) -> FlopsReport:
    """Return what one sequence of block_size tokens costs.

    Source: nanoGPT's transformer_sizing notebook; arXiv:2204.02311, appendix B, for the formula.
    """
    T, C = config.block_size, config.n_embd
    qkv, scores, out_proj = 2 * T * C * 3 * C, 2 * T * T * C, 2 * T * C * C
    weighted_sum, mlp = scores, 2 * (2 * T * C * 4 * C)
    attention = qkv + scores + weighted_sum + out_proj
    blocks = config.n_layer * (attention + mlp)
    head = 2 * T * C * config.vocab_size
    forward = blocks + head
    counts = count_parameters(config)
    return FlopsReport(
        sequence_tokens=T,
        qkv_flops=qkv,
        scores_flops=scores,
        weighted_sum_flops=weighted_sum,
        out_proj_flops=out_proj,
        attention_flops=attention,
        mlp_flops=mlp,
        block_flops=attention + mlp,
        blocks_flops=blocks,
        head_flops=head,
        forward_flops=forward,
        backward_flops=2 * forward,
        forward_backward_flops=3 * forward,
        formula=_apply_formula(config, "nanogpt", counts.nanogpt, 3 * forward),
        formula_total=_apply_formula(config, "total", counts.total, 3 * forward),
    )


def _apply_formula(config: GPTConfig, rule: str, n: int, itemised: int) -> FormulaFlops:
    head_width = config.n_embd // config.n_head
    attention = 12 * config.n_layer * config.n_head * head_width * config.block_size
    per_token = 6 * n + attention
    per_sequence = per_token * config.block_size
    return FormulaFlops(rule, n, per_token, per_sequence, per_sequence / itemised)
