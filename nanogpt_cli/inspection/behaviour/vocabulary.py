"""Which ids of a model are tokens of its tokenizer."""

from __future__ import annotations

from nanogpt_cli.inspection.behaviour.subject import Subject


def known_ids(subject: Subject) -> list[int]:
    """Return the ids that stand for text: all that the model has but padding, ascending."""
    V = subject.model.config.vocab_size
    return [token for token in subject.tokenizer.known_ids() if token < V]
