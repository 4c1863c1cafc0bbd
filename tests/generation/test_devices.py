"""Devices and dtypes are chosen by what is there, and never silently replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nanogpt_cli.errors import UsageError
from nanogpt_cli.generation.devices import (
    choose_device,
    choose_dtype,
    idle_gpu_note,
    try_devices,
    use_threads,
)

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


def card(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], count: int = 2) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)


@pytest.mark.usefixtures("no_gpu")
def test_auto_is_the_cpu_in_float32_where_nothing_else_is() -> None:
    assert choose_device("auto") == CPU
    assert choose_dtype("auto", CPU) == torch.float32


def test_the_cpu_is_chosen_without_a_call_to_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise AssertionError("CUDA was called")

    for name in ("is_available", "device_count", "get_device_capability", "is_bf16_supported"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    device = choose_device("cpu")
    assert [choose_dtype(name, device) for name in ("auto", "bfloat16", "float16")] == [
        torch.float32,
        torch.bfloat16,
        torch.float16,
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mps", "--device mps: no Metal device is available"),
        ("gpu", "unknown device 'gpu'"),
        ("cuda:x", "unknown device 'cuda:x'"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_what_is_not_there_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_device(name)
    assert (caught.value.message, caught.value.exit_code) == (message, 2)


@pytest.mark.usefixtures("no_gpu")
def test_cuda_that_is_not_there_is_refused_with_its_reason() -> None:
    with pytest.raises(UsageError, match=r"^--device cuda: (this torch is built without|no CUDA)"):
        choose_device("cuda")


def test_mps_stays_mps_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("mps").type == "mps"
    assert choose_dtype("auto", torch.device("mps")) == torch.float32


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((7, 0), torch.float16), ((7, 5), torch.float16), ((8, 0), torch.bfloat16)],
)
def test_auto_takes_bfloat16_on_cards_that_have_it(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: torch.dtype
) -> None:
    card(monkeypatch, capability)
    assert choose_device("auto") == CUDA
    assert choose_dtype("auto", CUDA) == dtype


def test_bfloat16_on_a_card_without_it_names_one_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card(monkeypatch, (7, 0))
    with pytest.raises(UsageError) as caught:
        choose_dtype("bfloat16", CUDA)
    assert caught.value.message == "--dtype bfloat16: cuda does not support it"
    assert caught.value.hint == "use --dtype float16"


def test_bfloat16_on_a_device_that_only_has_float16_is_refused() -> None:
    with pytest.raises(UsageError, match="--dtype bfloat16: mps does not support it"):
        choose_dtype("bfloat16", torch.device("mps"))


def test_a_number_means_something_to_cuda_alone() -> None:
    assert choose_device("cpu:0") == CPU


def test_a_card_that_is_not_there_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    card(monkeypatch, (8, 0))
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(UsageError) as caught:
        choose_device("cuda:2")
    assert caught.value.message == (
        "--device cuda:2: this machine has 2 CUDA devices, numbered from 0"
    )


def test_a_gpu_is_idle_only_where_the_cpu_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(Path, "exists", lambda _path: True)
    notes = [idle_gpu_note(name) for name in ("auto", "cpu", "cuda", "cuda:1", "mps")]
    assert [len(found) for found in notes] == [0, 1, 0, 0, 0]


def test_threads_are_used() -> None:
    before = torch.get_num_threads()
    try:
        for threads in (before + 1, None):
            use_threads(threads)
            assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [0, -1, 1025, 10**6, 2**64])
def test_threads_that_no_machine_has_are_refused(threads: int) -> None:
    with pytest.raises(UsageError) as caught:
        use_threads(threads)
    assert caught.value.message == f"--threads {threads}: it must be 1 to 1024"


def test_each_device_that_is_there_is_tried() -> None:
    first, *others = try_devices()
    assert (first.device, first.status, first.message) == ("cpu", "right", "")
    assert torch.backends.cpu.get_cpu_capability() in first.description
    assert bool(others) == (torch.cuda.is_available() or torch.backends.mps.is_available())


def test_a_device_that_cannot_multiply_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    multiply = torch.Tensor.__matmul__

    def broken(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.dtype == torch.float32:
            raise RuntimeError("no kernel image\nis available")
        return multiply(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", broken)
    (first, *_) = try_devices()
    assert (first.status, first.message) == ("failed", "no kernel image")


def test_a_device_that_multiplies_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    multiply = torch.Tensor.__matmul__

    def off(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product = multiply(a, b)
        if a.dtype == torch.float32:
            product[0, :2] += 1
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", off)
    (first, *_) = try_devices()
    assert first.status == "wrong"
    assert first.message == "2 of 2048 elements of a product of matrices are wrong"
