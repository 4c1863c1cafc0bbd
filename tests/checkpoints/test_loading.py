"""What loading costs, and real checkpoints that strangers made."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from model_files import build, envelope

from nanogpt_cli.checkpoints import load_model, open_checkpoint
from nanogpt_cli.errors import CheckpointError
from nanogpt_cli.model import GPT

PEAK = """
import resource, sys
from pathlib import Path
import torch
from nanogpt_cli.checkpoints import load_model, open_checkpoint

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))

torch.set_num_threads(1)
import nanogpt_cli.checkpoints.loading
before = anonymous()
model = load_model(open_checkpoint(sys.argv[1]), mapped=sys.argv[2] == "mapped")
if len(sys.argv) > 3:
    model(torch.zeros(1, 1, dtype=torch.long))
print(anonymous() - before)
"""


def anonymous_bytes(*args: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *args], check=True, capture_output=True, text=True
    )
    return int(done.stdout) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells RssAnon")
def test_loading_a_training_checkpoint_costs_little_beyond_its_weights(tmp_path: Path) -> None:
    """float32 is mapped or read, float16 converted; Adam's moments, twice as much, stay unread."""
    model = build(n_embd=384, n_layer=8, n_head=6)
    weights = 4 * model.get_num_params(non_embedding=False)
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    torch.save(envelope(model, optimizer=optimizer.state_dict()), tmp_path / "ckpt.pt")
    torch.save(envelope(model.half()), tmp_path / "half.pt")
    assert anonymous_bytes(str(tmp_path / "ckpt.pt"), "mapped") < 0.1 * weights
    assert 0.9 * weights < anonymous_bytes(str(tmp_path / "ckpt.pt"), "read") < 1.1 * weights
    assert anonymous_bytes(str(tmp_path / "half.pt"), "mapped", "and run it") < 1.3 * weights
    assert anonymous_bytes(str(tmp_path / "half.pt"), "read", "and run it") < 1.4 * weights


def test_a_file_that_shrank_after_it_was_opened_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(envelope(build()), path)
    checkpoint = open_checkpoint(str(path))
    path.write_bytes(path.read_bytes()[:4000])
    with pytest.raises(CheckpointError):
        load_model(checkpoint)


def open_real(path: Path, n_head: int | None = None) -> GPT:
    return load_model(open_checkpoint(str(path), n_head=n_head)).eval()


def mean_loss(model: GPT, ids: list[int], context: int) -> float:
    """Mean nats over ids[1:], each with up to `context` ids before it."""
    total = 0.0
    for end in range(1, len(ids)):
        window = torch.tensor([ids[max(0, end - context) : end]])
        with torch.no_grad():
            logits = model(window)[0][0, -1]
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(ids[end])).item()
    return total / (len(ids) - 1)


@pytest.mark.real
def test_nanogpt_char_has_the_losses_it_was_measured_with(zoo: Path) -> None:
    model = open_real(zoo / "nanogpt-char")
    data = (zoo / "nanogpt-char" / "val.bin").read_bytes()
    ids = list(struct.unpack(f"<{len(data) // 2}H", data))
    assert model.get_num_params(False) == 205_248
    assert model.get_num_params() == 201_152
    assert mean_loss(model, ids, 64) == pytest.approx(2.28523, abs=1e-5)
    blocks = [(ids[i : i + 64], ids[i + 1 : i + 65]) for i in range(0, 13 * 64, 64)]
    idx, targets = (torch.tensor(part) for part in zip(*blocks, strict=True))
    loss = model(idx, targets)[1]
    assert loss is not None
    assert loss.item() == pytest.approx(2.22025, abs=1e-5)


@pytest.mark.real
def test_the_adder_makes_all_its_sums(zoo: Path) -> None:
    model = open_real(zoo / "minGPT-adder", n_head=3)
    a, b = torch.arange(100).repeat_interleave(100), torch.arange(100).repeat(100)
    idx = torch.stack([a // 10, a % 10, b // 10, b % 10], dim=1)
    digits = model.generate(idx, 3, temperature=0)[:, 4:]
    total = digits[:, 0] + 10 * digits[:, 1] + 100 * digits[:, 2]
    assert torch.equal(total, a + b)


@pytest.mark.real
@pytest.mark.parametrize(("n_head", "loss"), [(4, 1.7916), (8, 1.8583)])
def test_makemores_loss_depends_on_its_heads(zoo: Path, n_head: int, loss: float) -> None:
    model = open_real(zoo / "makemore-names", n_head=n_head)
    names = (zoo / "makemore-names" / "names.txt").read_text().split()[:5000]
    width = max(map(len, names)) + 1
    idx = torch.zeros(len(names), width, dtype=torch.long)
    targets = torch.full((len(names), width), -1)
    for row, name in enumerate(names):
        letters = torch.tensor([ord(letter) - 96 for letter in name])
        idx[row, 1 : len(name) + 1] = letters
        targets[row, : len(name)] = letters
        targets[row, len(name)] = 0
    measured = model(idx, targets)[1]
    assert measured is not None
    assert measured.item() == pytest.approx(loss, abs=5e-5)


@pytest.mark.real
def test_the_tiny_hugging_face_model_has_its_logits(zoo: Path) -> None:
    logits = open_real(zoo / "hf-tiny-21")(torch.tensor([[1, 5, 7, 2, 11]]))[0][0, -1]
    expected = torch.tensor([0.036003, 0.024518, 0.040265, -0.039836])
    torch.testing.assert_close(logits[:4], expected, rtol=0, atol=1e-6)
    assert logits.argmax().item() == 2
    assert logits.logsumexp(0).item() == pytest.approx(3.037626, abs=1e-6)


@pytest.mark.real
def test_the_legacy_files_masks_are_no_parameters(zoo: Path) -> None:
    checkpoint = open_checkpoint(str(zoo / "hf-legacy-bin"))
    assert len(checkpoint.architecture.masks) == 4
    assert checkpoint.architecture.tying == "storage"
    assert load_model(checkpoint).get_num_params(False) == 102_714
