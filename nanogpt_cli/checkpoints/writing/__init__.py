"""Writing any format: what a file is made of, where it may go, and that it comes whole."""
