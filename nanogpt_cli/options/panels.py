"""The panels that a command's help is divided into, a module of this package for each."""

from __future__ import annotations

PROMPT = "Prompt"
SAMPLING = "Sampling"
BATCH = "Many prompts"
MODEL = "Model"
OUTPUT = "Output"
GENERAL = "General"
"""Help panels, in the order in which a long command shows them."""
