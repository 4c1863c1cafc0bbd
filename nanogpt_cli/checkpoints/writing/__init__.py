"""Writing any format: tensors made on the way, where a file may go, and that it comes whole."""
