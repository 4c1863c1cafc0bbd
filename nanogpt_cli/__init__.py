"""nanogpt: sample, count, crop, convert and inspect nanoGPT and GPT-2 checkpoints."""

__version__ = "0.1.0"
