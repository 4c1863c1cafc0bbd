#!/bin/sh
# Checks and figures of the CUDA step, in under eight minutes on a machine with one GPU and without
# a network. Needs torch, transformers, typer, rich and tiktoken; run from the root of a checkout.
#   benchmarks/gpu.sh figures.json
set -eu
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD" HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
date -u
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
exec timeout 460 python3 -m benchmarks.gpu --json "${1:-gpu.json}"
