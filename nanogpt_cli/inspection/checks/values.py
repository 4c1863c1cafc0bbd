"""Checks that read tensors: numbers that are none, matrices that are dead, tying, masks."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from nanogpt_cli.checkpoints import Checkpoint, TensorInfo
from nanogpt_cli.checkpoints.hugging_face.config import gpt2_settings
from nanogpt_cli.checkpoints.loading import read_weight
from nanogpt_cli.checkpoints.stored_names import HEAD, WTE, Weight
from nanogpt_cli.checkpoints.tensors import TensorReader
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.inspection.checks import FAULT, OK, WARN, Check
from nanogpt_cli.inspection.measures import Measures, measure, read


def check_values(weights: Mapping[str, Weight]) -> list[Check]:
    """Read every weight once: none may hold NaN or Inf, no matrix may be constant."""
    measured = {name: measure(read(weight.info)) for name, weight in weights.items()}
    return [check_finite("finite", measured), _check_matrices(measured), *_check_vectors(measured)]


def check_finite(name: str, measured: Mapping[str, Measures]) -> Check:
    """Return the tensors that hold NaN or Inf, with counts."""
    bad = {key: each for key, each in measured.items() if each.nan or each.inf}
    if not bad:
        return Check(name, OK, f"no NaN and no Inf in {len(measured):,} tensors")
    nan, inf = sum(each.nan for each in bad.values()), sum(each.inf for each in bad.values())
    findings = tuple(
        f"{key}: {each.nan:,} NaN, {each.inf:,} Inf of {each.elements:,}"
        for key, each in bad.items()
    )
    detail = f"{nan:,} NaN and {inf:,} Inf in {len(bad):,} of {len(measured):,} tensors"
    return Check(name, FAULT, detail, findings)


def _is_vector(name: str) -> bool:
    return name.endswith(".bias") or ".ln_" in name


def _check_matrices(measured: Mapping[str, Measures]) -> Check:
    matrices = {name: each for name, each in measured.items() if not _is_vector(name)}
    dead = tuple(
        f"{name} is {each.min:g} throughout"
        for name, each in matrices.items()
        if each.is_constant and each.elements > 1
    )
    if dead:
        return Check("matrices", FAULT, f"{len(dead):,} hold one value, zero or other", dead)
    return Check("matrices", OK, f"none of {len(matrices):,} is all zero or constant")


def _check_vectors(measured: Mapping[str, Measures]) -> list[Check]:
    norms = {name: each for name, each in measured.items() if name.endswith("weight")}
    norms = {name: each for name, each in norms.items() if _is_vector(name)}
    biases = {name: each for name, each in measured.items() if name.endswith(".bias")}
    return [_check_norms(norms), *([_check_biases(biases)] if biases else [])]


def _check_norms(norms: Mapping[str, Measures]) -> Check:
    off = tuple(name for name, each in norms.items() if each.is_constant and each.min == 0)
    if off:
        return Check("norms", FAULT, f"{len(off):,} norm weights are zero: nothing passes", off)
    constant = tuple(
        f"{name} is {each.min:g} throughout"
        for name, each in norms.items()
        if each.is_constant and each.elements > 1
    )
    if constant:
        detail = f"{len(constant):,} of {len(norms):,} norm weights hold one value"
        return Check("norms", WARN, detail, constant)
    return Check("norms", OK, f"none of {len(norms):,} weights is constant")


def _check_biases(biases: Mapping[str, Measures]) -> Check:
    constant = tuple(
        f"{name} is {each.min:g} throughout"
        for name, each in biases.items()
        if each.is_constant and each.elements > 1
    )
    if constant:
        detail = f"{len(constant):,} of {len(biases):,} biases hold one value"
        return Check("biases", WARN, detail, constant)
    return Check("biases", OK, f"none of {len(biases):,} is constant")


def check_tying(checkpoint: Checkpoint) -> Check:
    """Check that the head is wte, unless the file says that it is not."""
    architecture = checkpoint.architecture
    if architecture.tying != "untied":
        how = {"storage": "one storage", "value": "equal copies", "absent": "no head stored"}
        return Check("tying", OK, f"head and wte are tied: {how[architecture.tying]}")
    head = read_weight(TensorReader(), architecture.weights[HEAD])
    wte = read_weight(TensorReader(), architecture.weights[WTE])
    difference = f"{float((head - wte).abs().max()):.6g}"
    hf_config = checkpoint.contents.hf_config
    if hf_config is not None and gpt2_settings(hf_config).tied_head:
        detail = f"config.json ties head and wte, which differ by up to {difference}"
        return Check("tying", FAULT, detail)
    if architecture.envelope.family == "nanogpt":
        detail = f"stock nanoGPT ties head and wte, which differ by up to {difference} here"
        return Check("tying", WARN, detail)
    return Check("tying", WARN, f"head and wte are untied: they differ by up to {difference}")


def check_masks(masks: Mapping[str, TensorInfo], config: GPTConfig) -> Check:
    """Check that stored causal masks are lower triangles of block_size rows."""
    causal = {name: info for name, info in masks.items() if len(info.shape) == 4}
    if not causal:
        return Check("masks", OK, "none are stored")
    wanted = (1, 1, config.block_size, config.block_size)
    findings = []
    for name, info in causal.items():
        if info.shape != wanted:
            findings.append(f"{name} is {list(info.shape)}, block_size wants {list(wanted)}")
        elif not _is_lower_triangle(info):
            findings.append(f"{name} is no lower triangle of ones")
    if findings:
        detail = f"{len(findings):,} of {len(causal):,} do not fit"
        return Check("masks", FAULT, detail, tuple(findings))
    rows = config.block_size
    return Check("masks", OK, f"{len(causal):,} lower triangles of {rows:,} x {rows:,}")


def _is_lower_triangle(info: TensorInfo) -> bool:
    mask = read(info)[0, 0]
    return torch.equal(mask, torch.ones_like(mask).tril())
