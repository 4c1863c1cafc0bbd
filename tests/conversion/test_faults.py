"""Every kind of fault that a converter may have is seen by verification, with room to spare.

Weights have a spread of 0.2, so that a fault shows in the logits; each is held against ten times
the tolerance, since it is the logits, run by another implementation, that have the last word.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from conversion_files import (
    build_gpt2,
    gpt2_config,
    load_hf,
    load_pt,
    save_gpt2,
    save_raw,
    to,
)
from model_files import build, save_nanogpt
from torch import Tensor

from nanogpt_cli.checkpoints import Checkpoint, open_checkpoint
from nanogpt_cli.conversion import ConversionSettings, convert, verification
from nanogpt_cli.conversion.job import plan_job
from nanogpt_cli.conversion.logits import VerificationError, compare_logits
from nanogpt_cli.conversion.plan import ModelPlan, plan_model
from nanogpt_cli.conversion.report import Target
from nanogpt_cli.conversion.verification import (
    compare_models,
    read_output,
    verify,
)

C = 24
Fault = Callable[[dict[str, Tensor]], None]


def swap_q_and_k(state: dict[str, Tensor]) -> None:
    weight, bias = (state[f"transformer.h.0.attn.c_attn.{part}"] for part in ("weight", "bias"))
    for part in (weight if weight.shape[0] == 3 * C else weight.t(), bias):
        part[: 2 * C] = torch.cat((part[C : 2 * C], part[:C]))


def turn_c_proj(state: dict[str, Tensor]) -> None:
    name = "transformer.h.1.attn.c_proj.weight"
    state[name] = state[name].t().contiguous()


def swap_norms(state: dict[str, Tensor]) -> None:
    first, second = (f"transformer.h.1.ln_{number}.weight" for number in (1, 2))
    state[first], state[second] = state[second].clone(), state[first].clone()


FAULTS = [swap_q_and_k, turn_c_proj, swap_norms]


def planned(source: Path, target: Target, **settings: str) -> tuple[Checkpoint, ModelPlan]:
    checkpoint = open_checkpoint(str(source))
    made = ConversionSettings(to=target, **settings)  # type: ignore[arg-type]
    return checkpoint, plan_model(checkpoint, made, None)


def tamper_hf(folder: Path, fault: Fault) -> None:
    state = load_hf(folder)
    fault(state)
    safetensors.torch.save_file(state, folder / "model.safetensors", {"format": "pt"})


def tamper_pt(path: Path, fault: Fault) -> None:
    file = load_pt(path)
    fault(file["model"])
    torch.save(file, path)


def assert_seen(source: Path, target: Target, output: Path) -> None:
    checkpoint, model = planned(source, target)
    figures, _ = compare_models(checkpoint, model, target, read_output(output))
    assert figures.largest_difference > 10 * figures.tolerance
    assert not figures.agree
    with pytest.raises(VerificationError) as caught:
        verify(checkpoint, model, target, output)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_folder_made_from_a_nanogpt_file(tmp_path: Path, fault: Fault) -> None:
    source = save_nanogpt(tmp_path / "ckpt.pt", build())
    to(source, tmp_path / "hf")
    tamper_hf(tmp_path / "hf", fault)
    assert_seen(source, "hf", tmp_path / "hf")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_file_made_from_a_folder(tmp_path: Path, fault: Fault) -> None:
    source = save_gpt2(tmp_path / "hf", build_gpt2())
    to(source, tmp_path / "gpt2.pt")
    tamper_pt(tmp_path / "gpt2.pt", fault)
    assert_seen(source, "nanogpt", tmp_path / "gpt2.pt")


def test_an_output_without_a_fault_is_far_below_the_tolerance(tmp_path: Path) -> None:
    source = save_gpt2(tmp_path / "hf", build_gpt2())
    report = to(source, tmp_path / "gpt2.pt")
    assert report.verification is not None
    figures = report.verification.logits
    assert figures.tolerance == 1e-5 * max(1.0, figures.largest_logit)
    assert 10 * figures.largest_difference < figures.tolerance * 3
    assert figures.top1_agreement == 1.0


@pytest.mark.parametrize("stated", ["gelu", "gelu_new"])
def test_the_wrong_gelu_in_a_config(tmp_path: Path, stated: str) -> None:
    activation = {"gelu": "gelu_tanh", "gelu_new": "gelu"}[stated]
    source = save_nanogpt(
        tmp_path / "ckpt.pt", build(activation=activation), nanogpt_cli={"activation": activation}
    )
    to(source, tmp_path / "hf")
    path = tmp_path / "hf" / "config.json"
    config = json.loads(path.read_text())
    config["activation_function"] = stated
    del config["nanogpt"]
    path.write_text(json.dumps(config))
    assert_seen(source, "hf", tmp_path / "hf")


@pytest.mark.parametrize("stated", ["gelu", "gelu_new"])
def test_the_wrong_gelu_in_a_file(tmp_path: Path, stated: str) -> None:
    source = save_gpt2(tmp_path / "hf", build_gpt2(activation_function=stated))
    to(source, tmp_path / "gpt2.pt")
    file = load_pt(tmp_path / "gpt2.pt")
    file["nanogpt_cli"]["activation"] = {"gelu": "gelu_tanh", "gelu_new": "gelu"}[stated]
    torch.save(file, tmp_path / "gpt2.pt")
    assert_seen(source, "nanogpt", tmp_path / "gpt2.pt")


def test_a_reader_that_takes_the_wrong_gelu_is_found_by_transformers(tmp_path: Path) -> None:
    """The same wrong belief on both sides passes every comparison but the last."""
    source = save_gpt2(tmp_path / "hf", build_gpt2())
    checkpoint, _ = planned(source, "nanogpt")
    wrong = replace(checkpoint.config, activation="gelu")
    deceived = replace(checkpoint, architecture=replace(checkpoint.architecture, config=wrong))
    model = plan_model(deceived, ConversionSettings(to="nanogpt"), None)
    to(source, tmp_path / "gpt2.pt", activation="gelu")
    figures, _ = compare_models(deceived, model, "nanogpt", read_output(tmp_path / "gpt2.pt"))
    assert figures.largest_difference > 10 * figures.tolerance


def test_a_reader_that_does_not_turn_c_proj_is_found_by_transformers(tmp_path: Path) -> None:
    """attn.c_proj is square: no shape tells whether it was transposed."""
    source = save_gpt2(tmp_path / "hf", build_gpt2())
    checkpoint, _ = planned(source, "nanogpt")
    name = "transformer.h.0.attn.c_proj.weight"
    weights = dict(checkpoint.architecture.weights)
    weights[name] = replace(weights[name], transposed=False)
    deceived = replace(checkpoint, architecture=replace(checkpoint.architecture, weights=weights))
    model = plan_model(deceived, ConversionSettings(to="nanogpt"), None)
    to(source, tmp_path / "gpt2.pt")
    tamper_pt(
        tmp_path / "gpt2.pt", lambda state: state.update({name: state[name].t().contiguous()})
    )
    with pytest.raises(VerificationError, match="logits differ") as caught:
        verify(deceived, model, "nanogpt", tmp_path / "gpt2.pt")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("at_once", [4 << 20, 5 * C])
def test_one_bit_of_one_weight(
    tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far below what logits show; the tensors themselves are compared."""
    monkeypatch.setattr(verification, "ELEMENTS_AT_ONCE", at_once)
    source = save_nanogpt(tmp_path / "ckpt.pt", build())
    to(source, tmp_path / "out.pt")

    def flip(state: dict[str, Tensor]) -> None:
        state["transformer.wpe.weight"].view(torch.int32)[15, 3] ^= 1

    tamper_pt(tmp_path / "out.pt", flip)
    checkpoint, model = planned(source, "nanogpt")
    with pytest.raises(VerificationError) as caught:
        verify(checkpoint, model, "nanogpt", tmp_path / "out.pt")
    assert caught.value.message == "1 of 28 weights read back otherwise: 'transformer.wpe.weight'"


def test_a_wrong_number_of_heads(tmp_path: Path) -> None:
    source = save_nanogpt(tmp_path / "ckpt.pt", build())
    to(source, tmp_path / "out.pt")
    file = load_pt(tmp_path / "out.pt")
    file["model_args"]["n_head"] = 4
    torch.save(file, tmp_path / "out.pt")
    assert_seen(source, "nanogpt", tmp_path / "out.pt")
    checkpoint, model = planned(source, "nanogpt")
    with pytest.raises(VerificationError, match="the output's n_head reads back as 4, not 3"):
        verify(checkpoint, model, "nanogpt", tmp_path / "out.pt")


@pytest.mark.parametrize("entries", [{"iter_num": 250.0}, {"more": 1}, {"config": {}}], ids=str)
def test_an_entry_that_reads_back_otherwise(tmp_path: Path, entries: dict[str, object]) -> None:
    source, output = save_nanogpt(tmp_path / "ckpt.pt", build()), tmp_path / "out.pt"
    to(source, output)
    torch.save({**load_pt(output), **entries}, output)
    job = plan_job(open_checkpoint(str(source)), output, ConversionSettings(to="nanogpt"))
    with pytest.raises(VerificationError, match=r"the output.s entry .* reads back otherwise"):
        verify(job.checkpoint, job.model, "nanogpt", output, entries=job.entries)


def test_a_weight_that_transformers_would_draw_anew(tmp_path: Path) -> None:
    source = save_nanogpt(tmp_path / "ckpt.pt", build(bias=False))
    to(source, tmp_path / "hf")
    state = load_hf(tmp_path / "hf")
    biases = [name for name in state if name.endswith(".bias")]
    rest = {name: tensor for name, tensor in state.items() if name not in biases}
    config = gpt2_config(
        activation_function="gelu", bos_token_id=None, eos_token_id=None, dtype="float32"
    )
    save_raw(tmp_path / "bare", rest, config)
    checkpoint, model = planned(source, "hf")
    with pytest.raises(VerificationError, match="transformers reports missing keys"):
        verify(checkpoint, model, "hf", tmp_path / "bare")


def test_what_is_damaged_on_its_way_to_the_disk_is_not_kept(tmp_path: Path) -> None:
    source = save_nanogpt(tmp_path / "in" / "ckpt.pt", build())
    before = source.read_bytes()
    output = tmp_path / "out" / "gpt"
    output.parent.mkdir()

    def corrupt(done: int, total: int) -> None:
        if done == total:
            (path,) = output.parent.glob(".gpt.*/model.safetensors")
            data = bytearray(path.read_bytes())
            data[-5] ^= 64
            path.write_bytes(data)

    with pytest.raises(VerificationError) as caught:
        convert(str(source), output, ConversionSettings(to="hf"), progress=corrupt)
    assert caught.value.exit_code == 3
    assert list(output.parent.iterdir()) == []
    assert source.read_bytes() == before
    convert(str(source), output, ConversionSettings(to="hf"), verify=False, progress=corrupt)
    assert output.is_dir(), "unverified output is kept as it is"


def test_numbers_that_are_none_differ_from_numbers() -> None:
    logits = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    holed = torch.tensor([[0.0, 1.0], [2.0, float("nan")]])
    assert compare_logits(holed, holed).agree
    assert not compare_logits(logits, holed).agree
    assert not compare_logits(logits, torch.full((2, 2), float("inf"))).agree
    infinite = torch.tensor([[0.0, float("inf")], [2.0, 3.0]])
    assert compare_logits(infinite, infinite).largest_difference == 0.0


def test_how_often_the_likeliest_id_is_the_same() -> None:
    one = torch.tensor([[0.0, 1.0, 5.0], [2.0, 3.0, 0.0]])
    other = torch.tensor([[0.0, 6.0, 5.0], [2.0, 3.0, 0.0]])
    assert compare_logits(one, other).top1_agreement == 0.5
