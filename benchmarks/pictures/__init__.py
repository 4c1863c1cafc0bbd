"""README's pictures of the terminal: `python -m benchmarks.pictures` draws them anew."""
