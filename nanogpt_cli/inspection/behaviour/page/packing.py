"""A view's report as plain values, small: columns instead of rows, a token's label once.

A number of a token's place counts from the start of the whole text.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from nanogpt_cli.inspection.behaviour.activations import FLAT, OUTLIER_TIMES_MEDIAN
from nanogpt_cli.inspection.behaviour.labels import show_text, token_bytes
from nanogpt_cli.inspection.behaviour.page.attention_bytes import pack_maps, plan_maps

if TYPE_CHECKING:
    from nanogpt_cli.inspection.behaviour.ablation import AblationReport
    from nanogpt_cli.inspection.behaviour.activations import ActivationsReport, Norms
    from nanogpt_cli.inspection.behaviour.attention import AttentionReport
    from nanogpt_cli.inspection.behaviour.contributions import Answer, ContributionsReport
    from nanogpt_cli.inspection.behaviour.labels import Token
    from nanogpt_cli.inspection.behaviour.lens import LensReport
    from nanogpt_cli.inspection.behaviour.next_token import NextReport
    from nanogpt_cli.inspection.behaviour.subject import Subject
    from nanogpt_cli.inspection.behaviour.surprisal import SurprisalReport
    from nanogpt_cli.tokenizers.base import Tokenizer

MOST_SCORED = 4_096
"""Tokens whose surprisal is on the page: the last ones."""


@dataclass(frozen=True)
class Scope:
    """Which tokens are on the page, and the labels of all ids that it names.

    Args:
        seen: the tokens that the model sees.
        count: how many of them are on the page, the last ones.
        labels: by id, filled as ids are named.
    """

    seen: Subject
    count: int
    labels: dict[int, str] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The place of the page's first token in the whole text."""
        return self.place(len(self.seen.ids) - self.count)

    def place(self, position: int) -> int:
        """Return where a position among the seen tokens is in the whole text."""
        return self.seen.dropped + position

    def name(self, token: int) -> int:
        """Return an id, and see to it that the page has its label."""
        if token not in self.labels:
            self.labels[token] = self.seen.label(token)
        return token

    def name_all(self, ids: Sequence[int]) -> list[int]:
        """Return ids, and see to it that the page has their labels."""
        return [self.name(token) for token in ids]


@dataclass(frozen=True)
class Packed:
    """A report as the page's script takes it, and what of it is not there."""

    fields: dict[str, Any]
    left_out: tuple[str, ...] = ()


def spell_pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return a text token by token, to be read; a character cut in two goes with its last one."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    pieces = [show_text(decoder.decode(token_bytes(tokenizer, token) or b"")) for token in ids]
    pieces[-1] += show_text(decoder.decode(b"", final=True))
    return pieces


def _pack_next(report: NextReport, scope: Scope) -> Packed:
    names = ("id", "logit", "probability", "cumulative", "rank")
    rows = [{name: getattr(token, name) for name in names} for token in report.tokens]
    tracked = report.tracked
    if tracked is not None and tracked.id not in {token.id for token in report.tokens}:
        rows.append({name: getattr(tracked, name) for name in names})
    scope.name_all([row["id"] for row in rows])
    return Packed(
        {
            "rows": rows,
            "tracked": None if tracked is None else tracked.id,
            "entropy_bits": report.entropy_bits,
            "vocab_size": report.vocab_size,
            "prompt_tokens": report.prompt_tokens,
        }
    )


def _pack_surprisal(report: SurprisalReport, scope: Scope) -> Packed:
    names = (
        *("protocol", "block_size", "windows", "prompt_tokens", "scored_tokens", "scored_bytes"),
        *("total_nats", "loss", "bits_per_token", "perplexity", "bits_per_byte"),
        "mean_entropy_bits",
    )
    last = {name: array[-MOST_SCORED:].tolist() for name, array in report.arrays().items()}
    shown = len(last["ids"])
    left_out: tuple[str, ...] = ()
    if shown < report.prompt_tokens:
        told = f"surprisal shows the last {shown:,} of {report.prompt_tokens:,} tokens"
        left_out = (f"{told}; its sums are over the whole text",)
    return Packed(
        {
            **{name: getattr(report, name) for name in names},
            "first": report.prompt_tokens - shown,
            "ids": scope.name_all(last["ids"]),
            "pieces": spell_pieces(scope.seen.tokenizer, last["ids"]),
            "bits": _known(last["bits"]),
            "entropies_bits": _known(last["entropies_bits"]),
            "ranks": [rank or None for rank in last["ranks"]],
        },
        left_out,
    )


def _known(values: Sequence[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]


def _pack_lens(report: LensReport, scope: Scope) -> Packed:
    last = slice(-scope.count, None)
    rows = [
        {
            "label": row.label,
            "ids": scope.name_all(row.top_ids[last]),
            "probabilities": row.top_probabilities[last],
            "entropies_bits": row.entropies_bits[last],
            "tracked_ranks": row.tracked_ranks and row.tracked_ranks[last],
            "tracked_probabilities": row.tracked_probabilities and row.tracked_probabilities[last],
        }
        for row in report.rows
    ]
    tracked = None if report.tracked is None else scope.name(report.tracked.id)
    return Packed({"rows": rows, "tracked": tracked, "vocab_size": report.vocab_size})


def _pack_attention(report: AttentionReport, scope: Scope) -> Packed:
    plan = plan_maps(report.n_layer * report.n_head, scope.count)
    heads, chosen = [asdict(head) for head in report.heads], report.map
    left_out: tuple[str, ...] = ()
    if plan.tokens < scope.count:
        told = f"attention shows the last {plan.tokens:,} of {len(report.tokens):,} tokens"
        left_out = (f"{told}; what each head does is measured over all of them",)
    return Packed(
        {
            "tokens": plan.tokens,
            "before": len(report.tokens) - plan.tokens,
            "steps": plan.steps,
            "itemsize": plan.itemsize,
            "maps": pack_maps(report.maps.layers(), plan),
            "heads": heads,
            "probe": {**asdict(report.probe), "ids": []},
            "layer": report.layer or 0,
            "head": (chosen.head if chosen else 0),
            "max_row_error": report.max_row_error,
            "max_logit_difference": report.max_logit_difference,
        },
        left_out,
    )


def _pack_contributions(report: ContributionsReport, scope: Scope) -> Packed:
    names = (
        *("reference_logit", "reference_ids", "sum_logit", "sum_relative"),
        *("error_logit", "error_relative", "definition"),
    )
    return Packed(
        {
            **{name: getattr(report, name) for name in names},
            "position": scope.place(report.position),
            "after": scope.name(report.tokens[-1].id),
            "answer": _pack_answer(report.answer, scope),
            "against": report.against and _pack_answer(report.against, scope),
            "parts": [asdict(part) for part in report.parts],
        }
    )


def _pack_answer(answer: Answer, scope: Scope) -> dict[str, Any]:
    names = ("logit", "probability", "rank")
    return {"id": scope.name(answer.id), **{name: getattr(answer, name) for name in names}}


def _pack_activations(report: ActivationsReport, scope: Scope) -> Packed:
    def norms(found: Norms | None) -> dict[str, Any] | None:
        return None if found is None else _pack_norms(found, report.tokens, scope)

    return Packed(
        {
            "tokens": len(report.tokens),
            "n_embd": report.n_embd,
            "flat": FLAT,
            "outlier_times_median": OUTLIER_TIMES_MEDIAN,
            "wte": norms(report.token_embedding),
            "wpe": norms(report.position_embedding),
            "rows": [
                {
                    "label": row.label,
                    "residual": norms(row.residual),
                    "attention": norms(row.attention),
                    "mlp": norms(row.mlp),
                    "units": row.units and asdict(row.units),
                    "outliers": [
                        {**asdict(each), "extreme_position": scope.place(each.extreme_position)}
                        for each in row.outliers
                    ],
                }
                for row in report.rows
            ],
        }
    )


def _pack_norms(norms: Norms, tokens: Sequence[Token], scope: Scope) -> dict[str, Any]:
    largest = tokens[norms.max_position].id
    place = scope.place(norms.max_position)
    return {"mean": norms.mean, "max": norms.max, "at": place, "id": scope.name(largest)}


def _pack_ablation(report: AblationReport, _scope: Scope) -> Packed:
    names = ("predicted_tokens", "windows", "block_size", "loss_nats", "definition")
    fields = {name: getattr(report, name) for name in names}
    return Packed({**fields, "layers": [asdict(layer) for layer in report.layers]})


PACKERS: Mapping[str, Callable[[Any, Scope], Packed]] = {
    "next": _pack_next,
    "surprisal": _pack_surprisal,
    "lens": _pack_lens,
    "attention": _pack_attention,
    "contributions": _pack_contributions,
    "activations": _pack_activations,
    "ablation": _pack_ablation,
}
"""By view."""
