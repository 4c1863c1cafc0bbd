"""The arithmetic of `nanogpt_cli.accounting`, against published figures and the model itself."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nanogpt_cli.accounting import (
    PEAKS,
    Hardware,
    Workload,
    account,
    break_down,
    count_flops,
    count_padding_rows,
    count_parameters,
    count_tensors,
    estimate_training,
    find_gpu,
    find_known_config,
    find_published,
    measure_cache,
    measure_memory,
    name_hardware,
    rate_step,
    split_by_decay,
)
from nanogpt_cli.config import GPTConfig
from nanogpt_cli.errors import UsageError
from nanogpt_cli.model import GPT

NOTEBOOK = GPTConfig(vocab_size=50257, bias=False)
"""What nanoGPT's transformer_sizing notebook assumes."""


def stock(name: str, **changes: Any) -> GPTConfig:
    config = find_known_config(name)
    assert config is not None
    return replace(config, **changes)


COUNTS = [
    ("gpt2", {}, (124_439_808, 123_653_376, 85_056_000, 163_037_184), 149),
    ("gpt2-medium", {}, (354_823_168, 353_774_592, 302_311_424, 406_286_336), 293),
    ("gpt2-large", {}, (774_030_080, 772_719_360, 708_390_400, 838_359_040), 437),
    ("gpt2-xl", {}, (1_557_611_200, 1_555_972_800, 1_475_561_600, 1_638_022_400), 581),
    ("gpt2", {"bias": False}, (124_337_664, 123_551_232, 84_953_856, 162_935_040), 76),
    (
        "gpt2",
        {"bias": False, "vocab_size": 50304},
        (124_373_760, 123_587_328, 84_953_856, 163_007_232),
        76,
    ),
    (
        "gpt2",
        {"vocab_size": 50304},
        (124_475_904, 123_689_472, 85_056_000, 163_109_376),
        149,
    ),
    (
        "gpt2",
        {"tied_head": False},
        (163_037_184, 162_250_752, 123_653_376, 163_037_184),
        149,
    ),
    ("distilgpt2", {}, (81_912_576, 81_126_144, 42_528_768, 120_509_952), 77),
]


@pytest.mark.parametrize(("name", "changes", "counts", "tensors"), COUNTS)
def test_counts_by_every_rule(
    name: str, changes: dict[str, Any], counts: tuple[int, ...], tensors: int
) -> None:
    config = stock(name, **changes)
    found = count_parameters(config)
    assert (found.total, found.nanogpt, found.non_embedding, found.state_dict) == counts
    assert count_tensors(config) == tensors


def test_custom_sizes() -> None:
    config = GPTConfig(vocab_size=20573, n_layer=24, n_head=16, n_embd=1024)
    assert count_parameters(config).total == 324_426_752
    char = GPTConfig(block_size=64, vocab_size=62, n_layer=4, n_head=4, n_embd=64, bias=False)
    assert count_parameters(char).total == 205_248
    assert count_parameters(char).nanogpt == 201_152
    adder = GPTConfig(block_size=6, vocab_size=10, n_layer=3, n_head=3, n_embd=48, tied_head=False)
    assert count_parameters(adder).total == 86_160


configs = st.builds(
    GPTConfig,
    block_size=st.integers(1, 40),
    vocab_size=st.integers(1, 90),
    n_layer=st.integers(1, 4),
    n_head=st.just(2),
    n_embd=st.integers(1, 20).map(lambda half: 2 * half),
    bias=st.booleans(),
    tied_head=st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(configs)
def test_counts_equal_the_model_itself(config: GPTConfig) -> None:
    with torch.device("meta"):
        model = GPT(config)
    counts, split = count_parameters(config), split_by_decay(config)
    assert counts.total == model.get_num_params(non_embedding=False)
    assert counts.nanogpt == model.get_num_params()
    state = model.state_dict()
    assert counts.state_dict == sum(tensor.numel() for tensor in state.values())
    assert count_tensors(config) == len(state)
    tied = {"lm_head.weight"} if config.tied_head else set()
    for row in break_down(config).rows:
        own = [
            tensor.numel()
            for key, tensor in state.items()
            if key not in tied and row.name.replace("*", "") == spread(key)
        ]
        assert row.parameters == sum(own), row.name
    groups = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu").param_groups
    sizes = [(sum(p.numel() for p in g["params"]), len(g["params"])) for g in groups]
    assert sizes == [
        (split.decayed_parameters, split.decayed_tensors),
        (split.non_decayed_parameters, split.non_decayed_tensors),
    ]


def spread(key: str) -> str:
    """Return `h..mlp.c_fc` for `transformer.h.3.mlp.c_fc.weight`."""
    words = key.removeprefix("transformer.").rsplit(".", 1)[0].split(".")
    return ".".join("" if word.isdigit() else word for word in words)


def test_breakdown_of_gpt2() -> None:
    breakdown = break_down(stock("gpt2"))
    rows = {row.name: (row.copies, row.parameters_each, row.parameters) for row in breakdown.rows}
    assert rows == {
        "wte": (1, 38_597_376, 38_597_376),
        "wpe": (1, 786_432, 786_432),
        "h.*.ln_1": (12, 1_536, 18_432),
        "h.*.attn.c_attn": (12, 1_771_776, 21_261_312),
        "h.*.attn.c_proj": (12, 590_592, 7_087_104),
        "h.*.ln_2": (12, 1_536, 18_432),
        "h.*.mlp.c_fc": (12, 2_362_368, 28_348_416),
        "h.*.mlp.c_proj": (12, 2_360_064, 28_320_768),
        "ln_f": (1, 1_536, 1_536),
        "lm_head": (1, 0, 0),
    }
    head = breakdown.rows[-1]
    assert (head.tied_to, head.tied_parameters) == ("wte", 38_597_376)
    assert sum(row.parameters for row in breakdown.rows) == breakdown.total == 124_439_808
    assert math.isclose(sum(row.share for row in breakdown.rows), 1.0, rel_tol=1e-12)


def test_breakdown_of_the_notebook() -> None:
    breakdown = break_down(NOTEBOOK)
    assert breakdown.embedding == 39_383_808
    assert breakdown.block == 7_079_424
    assert breakdown.blocks == 84_953_088
    assert breakdown.total == 124_337_664
    assert round(100 * breakdown.embedding / breakdown.total, 4) == 31.6749


def test_an_untied_head_is_counted() -> None:
    head = break_down(stock("gpt2", tied_head=False)).rows[-1]
    assert (head.parameters, head.tied_to, head.tied_parameters) == (38_597_376, None, 0)


def test_a_breakdown_that_does_not_sum_is_refused() -> None:
    good = break_down(NOTEBOOK)
    with pytest.raises(AssertionError, match="breakdown sums to 124337664"):
        replace(good, total=good.total + 1)


def test_decay_split_of_gpt2() -> None:
    split = split_by_decay(stock("gpt2"))
    assert (split.decayed_parameters, split.decayed_tensors) == (124_318_464, 50)
    assert (split.non_decayed_parameters, split.non_decayed_tensors) == (121_344, 98)


def test_bytes_of_gpt2() -> None:
    memory = measure_memory(stock("gpt2"))
    assert memory.weights_bytes == {
        "float32": 497_759_232,
        "bfloat16": 248_879_616,
        "float16": 248_879_616,
        "int8": 124_439_808,
    }
    assert memory.gradients_bytes == 497_759_232
    assert memory.adam_moments_bytes == 995_518_464
    assert memory.weights_and_adam_bytes == 1_493_277_696
    assert memory.training_bytes == 1_991_036_928
    assert memory.masks_bytes == 50_331_648


def test_bytes_of_the_notebooks_checkpoint() -> None:
    memory = measure_memory(NOTEBOOK)
    overhead = 86_750
    assert memory.weights_and_adam_bytes + memory.masks_bytes + overhead == 1_542_470_366
    assert round(100 * 1_542_470_366 / memory.weights_and_adam_bytes, 2) == 103.38


def test_kv_cache_of_gpt2() -> None:
    cache = measure_cache(stock("gpt2"), batch_size=8)
    assert cache.per_token_bytes == {"float32": 73_728, "bfloat16": 36_864, "float16": 36_864}
    assert cache.full_context_bytes["bfloat16"] == 37_748_736
    assert cache.batch_bytes["bfloat16"] == 8 * 37_748_736
    assert measure_cache(stock("gpt2", n_head=4), batch_size=8) == cache


def test_flops_of_the_notebook() -> None:
    flops = count_flops(NOTEBOOK)
    assert flops.qkv_flops == 3_623_878_656
    assert flops.scores_flops == 1_610_612_736
    assert flops.weighted_sum_flops == 1_610_612_736
    assert flops.out_proj_flops == 1_207_959_552
    assert flops.attention_flops == 8_053_063_680
    assert flops.mlp_flops == 9_663_676_416
    assert flops.block_flops == 17_716_740_096
    assert flops.blocks_flops == 212_600_881_152
    assert flops.head_flops == 79_047_426_048
    assert flops.forward_flops == 291_648_307_200
    assert flops.backward_flops == 583_296_614_400
    assert flops.forward_backward_flops == 874_944_921_600
    assert flops.formula_total.flops_per_sequence == 879_894_724_608
    assert round(flops.formula_total.ratio_to_itemised, 4) == 1.0057


def test_formula_of_gpt2() -> None:
    formula = count_flops(stock("gpt2")).formula
    assert (formula.rule, formula.n_parameters) == ("nanogpt", 123_653_376)
    assert formula.flops_per_token == 855_166_464
    assert formula.flops_per_sequence == 875_690_459_136
    assert formula.ratio_to_itemised == 875_690_459_136 / 874_944_921_600


def test_flops_equal_what_torch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    config = GPTConfig(
        block_size=16, vocab_size=31, n_layer=3, n_head=2, n_embd=8, attention="manual"
    )
    model = GPT(config)
    idx = torch.zeros(1, 16, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(idx, targets=idx)
    assert counter.get_total_flops() == count_flops(config).forward_flops


def test_utilisation_of_the_notebooks_step() -> None:
    hardware = Hardware("A100", 1, PEAKS["A100"])
    step = rate_step(NOTEBOOK, hardware, step_seconds=0.755, sequences=100)
    assert step.mfu_itemised is not None
    assert round(100 * step.mfu_itemised, 2) == 37.14
    assert step.tokens_per_second == pytest.approx(102_400 / 0.755)
    with torch.device("meta"):
        expected = GPT(NOTEBOOK).estimate_mfu(fwdbwd_per_iter=100, dt=0.755)
    assert step.mfu == pytest.approx(expected, rel=1e-12)


def test_several_gpus_share_a_step() -> None:
    alone = rate_step(NOTEBOOK, Hardware("A100", 1, PEAKS["A100"]), 0.755, 100)
    eight = rate_step(NOTEBOOK, Hardware("A100", 8, PEAKS["A100"]), 0.755, 800)
    assert alone.mfu == eight.mfu
    assert eight.tokens_per_second == pytest.approx(8 * alone.tokens_per_second)


def test_an_unknown_gpu_has_no_utilisation() -> None:
    step = rate_step(NOTEBOOK, Hardware("TPU v9"), 0.755, 100)
    assert (step.mfu, step.mfu_itemised) == (None, None)
    assert step.flops_per_second == pytest.approx(875_062_886_400 * 100 / 0.755)


def test_days_of_the_notebook() -> None:
    hardware = Hardware("A100", 8, PEAKS["A100"])
    training = estimate_training(NOTEBOOK, 300_000_000_000, hardware, mfu=0.3)
    assert training.training_flops == 6 * 124_337_664 * 300_000_000_000
    assert training.days is not None
    assert round(training.days, 3) == 3.459


def test_days_from_a_measured_step() -> None:
    hardware = Hardware("my own", 1)
    step = rate_step(NOTEBOOK, hardware, step_seconds=2.0, sequences=4)
    training = estimate_training(NOTEBOOK, 2048 * 86_400 * 3, hardware, step=step)
    assert (training.days, training.mfu) == (3.0, None)


def test_days_need_something_to_go_by() -> None:
    known = Hardware("A100", 1, PEAKS["A100"])
    assert estimate_training(NOTEBOOK, 1000, known).days is None
    assert estimate_training(NOTEBOOK, 1000, Hardware("TPU v9"), mfu=0.3).days is None


@pytest.mark.parametrize(
    ("spelling", "key"),
    [
        ("A100", "A100"),
        ("a100", "A100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("h100", "H100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("H100 SXM5", "H100"),
        ("NVIDIA H200", "H200"),
        ("b200", "B200"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx4090", "RTX 4090"),
        ("RTX-3090", "RTX 3090"),
        ("3090", "RTX 3090"),
        ("l4", "L4"),
        ("NVIDIA L4", "L4"),
        ("H100 PCIe", None),
        ("H100 NVL", None),
        ("RTX 4090 D", None),
        ("RTX 3090 Ti", None),
        ("L40", None),
        ("A1000", None),
        ("A10", None),
        ("V100", None),
        ("", None),
    ],
)
def test_gpu_names(spelling: str, key: str | None) -> None:
    assert find_gpu(spelling) == key


def test_hardware_by_name() -> None:
    assert name_hardware("nvidia l4", 2) == Hardware("L4", 2, 121e12)
    assert name_hardware("TPU v9") == Hardware("TPU v9", 1, None)
    assert name_hardware("TPU v9", 1, 5e14) == Hardware("TPU v9", 1, 5e14)
    assert name_hardware("A100", 1, 2e14) == Hardware("A100", 1, 2e14)
    assert name_hardware(None) == Hardware()


def test_a_workload_is_reported_on() -> None:
    work = Workload(20, 0.755, 100, 300_000_000_000, 0.3, name_hardware("A100", 8))
    report = account(NOTEBOOK, "the notebook's", work)
    assert report.step == rate_step(NOTEBOOK, work.hardware, 0.755, 100)
    assert report.training == estimate_training(NOTEBOOK, 300_000_000_000, work.hardware, 0.3)
    assert report.kv_cache.batch_size == 20
    idle = account(NOTEBOOK, "idle")
    assert (idle.step, idle.training, idle.kv_cache.batch_size) == (None, None, 1)
    defaulted = account(NOTEBOOK, "a batch a step", Workload(20, 0.755))
    assert defaulted.step is not None
    assert defaulted.step.sequences == 20


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 0}, "the batch size is 0: it must be 1 to 2,147,483,647"),
        ({"batch_size": 2**31}, "the batch size is 2147483648: it must be 1 to 2,147,483,647"),
        ({"sequences": -1}, "the number of sequences in a step is -1: "),
        ({"tokens": 0}, "the number of training tokens is 0: "),
        ({"tokens": 10**18 + 1}, "it must be 1 to 1,000,000,000,000,000,000"),
        ({"step_seconds": 0.0}, "the duration of a step in seconds is 0.0: "),
        ({"step_seconds": float("nan")}, "the duration of a step in seconds is nan: "),
        ({"step_seconds": float("inf")}, "the duration of a step in seconds is inf: "),
        ({"mfu": 0.0}, "the MFU is 0.0: it must be a positive number"),
        ({"mfu": 30.0}, "the MFU is 30.0: it is a fraction and at most 1"),
    ],
)
def test_a_workload_that_cannot_be_meant(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Workload(**values)


@pytest.mark.parametrize(
    ("gpus", "peak", "message"),
    [
        (0, None, "the number of GPUs is 0: it must be 1 to 2,147,483,647"),
        (1, 0.0, "the GPU's peak in FLOPs a second is 0.0: it must be a positive number"),
        (1, -1.0, "the GPU's peak in FLOPs a second is -1.0: it must be a positive number"),
    ],
)
def test_hardware_that_cannot_be(gpus: int, peak: float | None, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Hardware("A100", gpus, peak)


def test_every_peak_is_found_by_its_own_name() -> None:
    assert [find_gpu(key) for key in PEAKS] == list(PEAKS)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("gpt2", ("124M", "117M")),
        ("gpt2-medium", ("355M", "345M")),
        ("gpt2-large", ("774M", "762M")),
        ("gpt2-xl", ("1558M", "1542M")),
        ("distilgpt2", ("82M",)),
    ],
)
def test_published_labels(name: str, labels: tuple[str, ...]) -> None:
    assert find_published(stock(name)) == (name, labels)
    assert labels[0] == f"{count_parameters(stock(name)).total / 1e6:.0f}M"


def test_other_sizes_have_no_label() -> None:
    assert find_published(stock("gpt2", vocab_size=50304)) is None
    assert find_published(NOTEBOOK) is None
    assert find_published(stock("gpt2", tied_head=False)) is None


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("openai-community/gpt2-xl", "gpt2-xl"),
        ("openai-community/gpt2@main", "gpt2"),
        ("distilbert/distilgpt2", "distilgpt2"),
        ("microsoft/DialoGPT-medium", "gpt2-medium"),
    ],
)
def test_other_names_of_one_model(name: str, same: str) -> None:
    assert find_known_config(name) == stock(same)


@pytest.mark.parametrize("name", ["gpt3", "gpt2@main", "openai/gpt2", "", "gpt2/gpt2"])
def test_unknown_names(name: str) -> None:
    assert find_known_config(name) is None


@pytest.mark.parametrize(
    ("vocab_size", "rows"),
    [(50257, 0), (50304, 47), (50264, 7), (50384, 127), (50392, None), (50260, None), (65, None)],
)
def test_padding_rows(vocab_size: int, rows: int | None) -> None:
    assert count_padding_rows(GPTConfig(vocab_size=vocab_size)) == rows


def test_the_whole_account_is_consistent() -> None:
    report = account(stock("gpt2"), "gpt2", Workload(batch_size=3))
    assert report.untrained_loss_nats_per_token == pytest.approx(10.8249, abs=5e-5)
    assert report.state_dict_tensors == 149
    assert report.kv_cache.batch_size == 3
    with pytest.raises(AssertionError, match="decay split sums to"):
        replace(report, decay=split_by_decay(NOTEBOOK))


@pytest.mark.parametrize(("vocab_size", "loss"), [(65, 4.1744), (50304, 10.8258)])
def test_untrained_loss(vocab_size: int, loss: float) -> None:
    report = account(GPTConfig(vocab_size=vocab_size), "a model")
    assert round(report.untrained_loss_nats_per_token, 4) == loss


def test_nothing_heavy_is_imported() -> None:
    program = (
        "import sys, nanogpt_cli.accounting as a; a.account(a.find_known_config('gpt2-xl'), 'x');"
        "print(sorted({'torch', 'numpy', 'transformers', 'tiktoken', 'rich', 'typer', 'socket'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
