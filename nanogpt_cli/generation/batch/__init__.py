"""Many prompts: `prompts` reads them, `samples` makes rows, `row_file` and `written` keep them."""
