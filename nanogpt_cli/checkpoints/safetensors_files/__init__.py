"""safetensors files, read and written by their headers."""
