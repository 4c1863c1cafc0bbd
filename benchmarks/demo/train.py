"""Train the model in the box, from the text to the shipped files, on a CPU.

    python benchmarks/demo/train.py

writes ckpt.pt and demo.tiktoken to --out. Stopped, it goes on where it was, from the state kept
in --state. The text's last tenth is scored at the end.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

# Set before torch starts its threads: on a busy machine, waiting threads that spin cost most of
# the time (five times fewer tokens a second of processor time, as measured).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from byte_pairs import encoding_of, train_ranks, varied_ids, write_ranks
from scoring import summed_loss

from nanogpt_cli.model import GPT, GPTConfig

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Settings:
    """All that the result depends on; they are kept in the checkpoint's config."""

    dataset: str = "tinyshakespeare"
    init_from: str = "scratch"
    vocab_size: int = 1024
    block_size: int = 256
    n_layer: int = 5
    n_head: int = 5
    n_embd: int = 160
    bias: bool = False
    dropout: float = 0.2
    attention_dropout: float = 0.0
    batch_size: int = 4
    gradient_accumulation_steps: int = 1
    max_iters: int = 14000
    cooldown_iters: int = 4500
    finish_iters: int = 2000
    finish_rate: float = 5e-4
    eval_interval: int = 500
    respell_interval: int = 400
    merge_dropout: float = 0.2
    watched_part: int = 30
    learning_rate: float = 1.5e-3
    min_lr: float = 0.0
    decay_lr: bool = True
    warmup_iters: int = 200
    lr_decay_iters: int = 14000
    weight_decay: float = 0.3
    beta1: float = 0.9
    beta2: float = 0.99
    grad_clip: float = 1.0
    ema_decay: float = 0.998
    seed: int = 1337
    device: str = "cpu"
    dtype: str = "float32"
    compile: bool = False


def cooling(settings: Settings, step: int) -> float:
    """Return 1 until the cool-down begins, then a straight line to 0 where the finish begins."""
    left = settings.max_iters - settings.finish_iters - step
    return min(1.0, max(0, left) / settings.cooldown_iters)


def learning_rate(settings: Settings, step: int) -> float:
    """Return the rate of one step: up a straight line, level, down with the cool-down; then a
    last, lower slope, on which the watched part is trained on too."""
    left = settings.max_iters - step
    if left <= settings.finish_iters:
        return settings.finish_rate * left / settings.finish_iters
    warmth = min(1.0, (step + 1) / settings.warmup_iters)
    return settings.learning_rate * warmth * cooling(settings, step)


class Run:
    """A training run that can be put down and taken up: weights, their average, the optimizer."""

    def __init__(self, settings: Settings, text: str, ranks: dict[bytes, int]) -> None:
        self.settings = settings
        self.text = text
        self.trained = len(text) - len(text) // settings.watched_part
        self.ranks = ranks
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
        self.best = self.average.state_dict()
        self.best_loss = math.inf

    def respell(self) -> None:
        """Cut the text into tokens afresh; how freely, and how, follows from the step alone."""
        step = self.step - self.step % self.settings.respell_interval
        skip = self.settings.merge_dropout * cooling(self.settings, step)
        draws = Random(self.settings.seed + step)
        text = self.text if self.is_finishing(step) else self.text[: self.trained]
        self.ids = torch.tensor(varied_ids(text, self.ranks, skip, draws))

    def is_finishing(self, step: int) -> bool:
        """Return whether the watched part is trained on, too, and can be watched no more."""
        return step >= self.settings.max_iters - self.settings.finish_iters

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
        if self.step % self.settings.respell_interval == 0:
            self.respell()
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

    def look(self, watched: list[int]) -> float:
        """Score the average, nats per token, and keep it if it is the best so far."""
        half = self.settings.block_size // 2
        loss = summed_loss(self.average, watched[1:], watched[0], half) / (len(watched) - 1)
        if loss < self.best_loss:
            self.best_loss = loss
            self.best = copy.deepcopy(self.average.state_dict())
        return loss

    def save(self, path: Path) -> None:
        """Keep everything that `restore` needs, replacing what was kept before."""
        state = {
            "settings": asdict(self.settings),
            "step": self.step,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "best": self.best,
            "best_loss": self.best_loss,
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
        self.respell()
        self.best = state["best"]
        self.best_loss = state["best_loss"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.draws.set_state(state["draws"])
        torch.set_rng_state(state["generator"])

    def shipped(self) -> GPT:
        """Return the best averaged weights as the file holds them: rounded to float16."""
        model = copy.deepcopy(self.average)
        model.load_state_dict(self.best)
        return model.half()


def train(run: Run, state: Path, watched: list[int]) -> None:
    """Take all steps; every eval_interval score `watched` and keep the state."""
    settings = run.settings
    begun, first, losses = time.monotonic(), run.step, []
    while run.step < settings.max_iters:
        losses.append(run.advance())
        if run.step % settings.eval_interval == 0 or run.step == settings.max_iters:
            score = run.look(watched)
            if run.step == settings.max_iters:
                run.best = copy.deepcopy(run.average.state_dict())
            run.save(state)
            tokens = (run.step - first) * settings.batch_size * settings.block_size
            rate = tokens / (time.monotonic() - begun)
            mean = sum(losses) / len(losses)
            losses.clear()
            print(
                f"step {run.step}: trained {mean:.4f}, watched {score:.4f} nats per token, "
                f"{rate:,.0f} tokens/s",
                flush=True,
            )


def write_files(run: Run, ranks: dict[bytes, int], held: str, out: Path) -> None:
    """Score `held` with the weights as rounded, and write ckpt.pt and demo.tiktoken to `out`."""
    encoding = encoding_of(ranks)
    ids = encoding.encode(held)
    newline = encoding.encode("\n")
    model = run.shipped()
    rounded = copy.deepcopy(model).float()
    loss = summed_loss(rounded, ids, newline[0], run.settings.block_size // 2)
    print(f"held tenth: {loss / len(held):.4f} nats per character ({loss / len(ids):.4f} a token)")
    checkpoint = {
        "model": model.state_dict(),
        "model_args": run.model_args,
        "iter_num": run.step,
        "best_val_loss": loss / len(ids),
        "config": asdict(run.settings),
    }
    out.mkdir(parents=True, exist_ok=True)
    torch.save(checkpoint, out / "ckpt.pt")
    write_ranks(ranks, out / "demo.tiktoken")
    torch.manual_seed(run.settings.seed)
    sample = rounded.generate(torch.tensor([newline]), 400, temperature=0.8, top_k=200)
    print(encoding.decode(sample[0].tolist()))


def main() -> None:
    """Train the ranks and the model, score the held tenth, write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, default=HERE / "tinyshakespeare.txt")
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    parser.add_argument("--state", type=Path, default=Path("out/demo-state.pt"))
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    text = given.text.read_text(encoding="utf-8")
    border = len(text) * 9 // 10
    ranks = train_ranks(text[:border], Settings.vocab_size)
    run = Run(Settings(), text[:border], ranks)
    run.restore(given.state)
    given.state.parent.mkdir(parents=True, exist_ok=True)
    train(run, given.state, encoding_of(ranks).encode(text[run.trained : border]))
    write_files(run, ranks, text[border:], given.out)


if __name__ == "__main__":
    main()
