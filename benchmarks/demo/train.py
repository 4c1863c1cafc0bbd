"""Train the model in the box, from the text to the shipped files, on a CPU.

    python benchmarks/demo/train.py

writes ckpt.pt and demo.tiktoken to --out. Stopped, it goes on where it was, from the state kept
in --state.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from byte_pairs import encoding_of, train_ranks, write_ranks
from scoring import summed_loss

from nanogpt_cli.model import GPT, GPTConfig

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Settings:
    """All that the result depends on; they are kept in the checkpoint's config."""

    dataset: str = "tinyshakespeare"
    init_from: str = "scratch"
    vocab_size: int = 512
    block_size: int = 256
    n_layer: int = 4
    n_head: int = 6
    n_embd: int = 192
    bias: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.0
    batch_size: int = 16
    gradient_accumulation_steps: int = 1
    max_iters: int = 500
    learning_rate: float = 2e-3
    min_lr: float = 2e-5
    decay_lr: bool = True
    warmup_iters: int = 100
    lr_decay_iters: int = 500
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    grad_clip: float = 1.0
    ema_decay: float = 0.99
    seed: int = 1337
    device: str = "cpu"
    dtype: str = "float32"
    compile: bool = False


def learning_rate(settings: Settings, step: int) -> float:
    """Return the rate of one step: a linear warm-up, then half a cosine down to min_lr."""
    if step < settings.warmup_iters:
        return settings.learning_rate * (step + 1) / settings.warmup_iters
    span = settings.lr_decay_iters - settings.warmup_iters
    done = min(1.0, (step - settings.warmup_iters) / span)
    height = 0.5 * (1.0 + math.cos(math.pi * done))
    return settings.min_lr + height * (settings.learning_rate - settings.min_lr)


class Run:
    """A training run that can be put down and taken up: weights, their average, the optimizer."""

    def __init__(self, settings: Settings, ids: list[int]) -> None:
        self.settings = settings
        self.ids = torch.tensor(ids)
        torch.manual_seed(settings.seed)
        self.draws = torch.Generator().manual_seed(settings.seed)
        names = ("block_size", "vocab_size", "n_layer", "n_head", "n_embd", "dropout", "bias")
        self.model_args: dict[str, Any] = {name: getattr(settings, name) for name in names}
        self.model = GPT(GPTConfig(**self.model_args))
        for block in self.model.blocks:
            # Dropout inside attention takes the CPU off its fast kernel: twice the time.
            block.attn.dropout = settings.attention_dropout
        self.average = copy.deepcopy(self.model).eval()
        self.optimizer = self.model.configure_optimizers(
            settings.weight_decay,
            settings.learning_rate,
            (settings.beta1, settings.beta2),
            settings.device,
        )
        self.step = 0

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (B, T) inputs and targets from random places."""
        size = self.settings.block_size
        starts = torch.randint(
            len(self.ids) - size, (self.settings.batch_size,), generator=self.draws
        )
        rows = torch.stack([self.ids[start : start + size + 1] for start in starts.tolist()])
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def advance(self) -> float:
        """Take one step; return its training loss in nats per token."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, self.step)
        _, loss = self.model(*self.batch())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        # Early weights leave the average sooner than late ones: it never lags far behind.
        decay = min(self.settings.ema_decay, self.step / (self.step + 10))
        pairs = zip(self.average.parameters(), self.model.parameters(), strict=True)
        for mean, parameter in pairs:
            mean.data.lerp_(parameter.data, 1.0 - decay)
        return float(loss.item())

    def save(self, path: Path) -> None:
        """Keep everything that `restore` needs, replacing what was kept before."""
        state = {
            "settings": asdict(self.settings),
            "step": self.step,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "draws": self.draws.get_state(),
            "generator": torch.get_rng_state(),
        }
        fresh = path.with_suffix(".new")
        torch.save(state, fresh)
        fresh.replace(path)

    def restore(self, path: Path) -> None:
        """Go on from a kept state, if there is one of the same settings."""
        if not path.exists():
            return
        state = torch.load(path, weights_only=True)
        if state["settings"] != asdict(self.settings):
            raise SystemExit(f"{path} is of other settings: move it away")
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.draws.set_state(state["draws"])
        torch.set_rng_state(state["generator"])

    def shipped(self) -> GPT:
        """Return the averaged weights as the file holds them: rounded to float16."""
        return copy.deepcopy(self.average).half()


def train(run: Run, state: Path, watched: list[int]) -> None:
    """Take all steps, keeping the state every 250; `watched` is scored now and then."""
    begun, first, recent = time.monotonic(), run.step, 0.0
    while run.step < run.settings.max_iters:
        loss = run.advance()
        recent = loss if not recent else 0.95 * recent + 0.05 * loss
        if run.step % 50 == 0:
            tokens = (run.step - first) * run.settings.batch_size * run.settings.block_size
            rate = tokens / (time.monotonic() - begun)
            print(f"step {run.step}: loss {recent:.4f}, {rate:,.0f} tokens/s", flush=True)
        if run.step % 250 == 0 or run.step == run.settings.max_iters:
            run.save(state)
            if watched:
                half = run.settings.block_size // 2
                score = summed_loss(run.average, watched, watched[0], half) / len(watched)
                print(f"step {run.step}: watched {score:.4f} nats/token", flush=True)


def main() -> None:
    """Train the ranks and the model, score the held tenth, write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, default=HERE / "tinyshakespeare.txt")
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    parser.add_argument("--state", type=Path, default=Path("out/demo-state.pt"))
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    settings = Settings()
    text = given.text.read_text(encoding="utf-8")
    border = len(text) * 9 // 10
    ranks = train_ranks(text[:border], settings.vocab_size)
    encoding = encoding_of(ranks)
    given.state.parent.mkdir(parents=True, exist_ok=True)
    run = Run(settings, encoding.encode(text[:border]))
    run.restore(given.state)
    train(run, given.state, [])
    held = encoding.encode(text[border:])
    model = run.shipped()
    scored = copy.deepcopy(model).float()
    loss = summed_loss(scored, held, encoding.encode("\n")[0], settings.block_size // 2)
    print(f"held tenth: {loss / (len(text) - border):.4f} nats per character")
    print(f"held tenth: {loss / len(held):.4f} nats per token")
    given.out.mkdir(parents=True, exist_ok=True)
    write_ranks(ranks, given.out / "demo.tiktoken")
    checkpoint = {
        "model": model.state_dict(),
        "model_args": run.model_args,
        "iter_num": run.step,
        "best_val_loss": loss / len(held),
        "config": asdict(settings),
    }
    torch.save(checkpoint, given.out / "ckpt.pt")
    torch.manual_seed(settings.seed)
    start = torch.tensor([encoding.encode("\n")])
    print(encoding.decode(scored.generate(start, 400, temperature=0.8, top_k=200)[0].tolist()))


if __name__ == "__main__":
    main()
