"""Hugging Face's folders: config.json, and the weights beside it."""
