"""One step of a model: compiled for this CPU, in torch anywhere, or captured as a CUDA graph."""
