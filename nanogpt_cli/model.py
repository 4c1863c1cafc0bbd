"""The model: nanoGPT's GPT, drop-in, with its names, its initialisation and its methods.

What lives here is the mathematics and nothing that prints or reads files. The fast decoding
loop with a KV cache lives in `generation`; `GPT.generate` is the plain reference it is tested
against.

Axes: B batch, T time, C = n_embd, V vocab_size, L n_layer, H n_head, D = C / H.
"""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn as nn
from torch.nn import functional as F

from nanogpt_cli.config import GPTConfig

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GPT", "MLP", "Block", "CausalSelfAttention", "GPTConfig", "LayerNorm"]

A100_BFLOAT16_PEAK_FLOPS = 312e12


class LayerNorm(nn.Module):
    """Layer normalisation over the last axis, epsilon 1e-5, with an optional bias.

    Source: arXiv:1607.06450.
    """

    def __init__(self, ndim: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    """Multi-head causal self-attention; one product gives q, k and v.

    With `config.attention == "manual"` the softmax is written out and the lower-triangular mask
    is a buffer named `bias`, (1, 1, block_size, block_size), as in nanoGPT files of old.

    Source: arXiv:1706.03762.
    """

    bias: Tensor

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.n_head = config.n_head
        self.n_embd = config.n_embd
        self.dropout = config.dropout
        self.flash = config.attention == "sdpa"
        if not self.flash:
            size = config.block_size
            mask = torch.tril(torch.ones(size, size)).view(1, 1, size, size)
            self.register_buffer("bias", mask)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attended values, (B, T, C), for x (B, T, C)."""
        B, T, C = x.size()
        heads = (B, T, self.n_head, C // self.n_head)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.c_attn(x).split(C, dim=2))
        if self.flash:
            dropout = self.dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))  # (B, H, T, T)
            scores = scores.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(scores, dim=-1)) @ v  # (B, H, T, D)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        out: Tensor = self.resid_dropout(self.c_proj(y))
        return out


class MLP(nn.Module):
    """Two linear layers, C to 4C and back, around a GELU (exact or tanh; arXiv:1606.08415)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.gelu = nn.GELU(approximate="tanh" if config.activation == "gelu_tanh" else "none")
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, T, C) for x (B, T, C)."""
        out: Tensor = self.dropout(self.c_proj(self.gelu(self.c_fc(x))))
        return out


class Block(nn.Module):
    """A pre-norm transformer block: attention, then MLP, each added to the residual stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, T, C) for x (B, T, C)."""
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x  # noqa: RET504


class Transformer(nn.ModuleDict):
    """All but the head; a ModuleDict as in nanoGPT, with the types of its entries."""

    wte: nn.Embedding
    wpe: nn.Embedding
    drop: nn.Dropout
    h: nn.ModuleList
    ln_f: LayerNorm


class GPT(nn.Module):
    """The whole model.

    Modules are created, and weights drawn, in nanoGPT's order: one torch seed gives nanoGPT's
    very weights and leaves the generator in nanoGPT's state.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
    """

    transformer: Transformer

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.transformer = Transformer(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "drop": nn.Dropout(config.dropout),
                "h": nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
                "ln_f": LayerNorm(config.n_embd, bias=config.bias),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        if config.tied_head:
            # Tied by the embedding taking the head's matrix: the order fixes which tensor lives.
            self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)
        residual_std = 0.02 / math.sqrt(2 * config.n_layer)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                torch.nn.init.normal_(parameter, mean=0.0, std=residual_std)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            torch.nn.init.zeros_(module.bias)

    @property
    def blocks(self) -> list[Block]:
        """The transformer blocks, first to last."""
        return cast("list[Block]", list(self.transformer.h))

    def get_num_params(self, non_embedding: bool = True) -> int:
        """Count parameters, a tied head once; `non_embedding` leaves out wpe alone.

        wte stays in the count because, tied, it serves as the head's matrix.
        """
        total = sum(parameter.numel() for parameter in self.parameters())
        return total - self.transformer.wpe.weight.numel() if non_embedding else total

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Run the model.

        Args:
            idx: (B, T) int64, T at most block_size.
            targets: (B, T) int64 next tokens, or None; -1 is left out of the loss.

        Returns:
            With targets, logits (B, T, V) and the mean cross-entropy in nats per token; without,
            logits (B, 1, V) of the last position only, and None.

        Raises:
            AssertionError: T exceeds block_size (nanoGPT's type, for code written against it).
        """
        T = idx.size(1)
        assert self.config.block_size >= T, (
            f"cannot forward a sequence of {T} tokens: block_size is {self.config.block_size}"
        )
        pos = torch.arange(T, dtype=torch.long, device=idx.device)  # (T)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.blocks:
            x = block(x)  # (B, T, C)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)  # (B, T, V)
        flat = logits.view(-1, logits.size(-1))
        return logits, F.cross_entropy(flat, targets.view(-1), ignore_index=-1)

    def crop_block_size(self, block_size: int) -> None:
        """Keep the first `block_size` positions, in place.

        Raises:
            AssertionError: `block_size` exceeds the present one.
        """
        assert block_size <= self.config.block_size, (
            f"cannot grow block_size from {self.config.block_size} to {block_size}: "
            "learned positions end there"
        )
        self.config.block_size = block_size
        wpe = self.transformer.wpe
        # Cloned: a slice would keep, and a later save would write, the whole old storage.
        wpe.weight = nn.Parameter(wpe.weight[:block_size].detach().clone())
        wpe.num_embeddings = block_size
        for block in self.blocks:
            if hasattr(block.attn, "bias"):
                block.attn.bias = block.attn.bias[:, :, :block_size, :block_size].clone()

    @classmethod
    def from_pretrained(cls, model_type: str, override_args: dict[str, Any] | None = None) -> GPT:
        """Load GPT-2 weights: a stock name, a hub id, or a local Hugging Face folder.

        Args:
            model_type: "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2",
                "owner/name[@revision]", or a path.
            override_args: may hold "dropout" only.

        Raises:
            AssertionError: any other override.
            NanoGPTError: the weights cannot be had, or are of another architecture.
        """
        from nanogpt_cli.checkpoints import load_model, open_checkpoint  # an upward call, by name

        overrides = override_args or {}
        assert all(name == "dropout" for name in overrides), (
            f"only dropout can be overridden, not {sorted(overrides)}"
        )
        model = load_model(open_checkpoint(model_type), cls=cls)
        if "dropout" in overrides:
            model._set_dropout(overrides["dropout"])
        return model

    def _set_dropout(self, dropout: float) -> None:
        self.config.dropout = dropout
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
            elif isinstance(module, CausalSelfAttention):
                module.dropout = dropout

    def configure_optimizers(
        self,
        weight_decay: float,
        learning_rate: float,
        betas: tuple[float, float],
        device_type: str,
    ) -> torch.optim.AdamW:
        """Return AdamW with two groups: tensors of two or more axes decay, the others do not.

        The fused kernel is used on CUDA. Source: arXiv:1711.05101.
        """
        trained = [p for _, p in self.named_parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in trained if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
        ]
        fused_known = "fused" in inspect.signature(torch.optim.AdamW).parameters
        extra = {"fused": True} if fused_known and device_type == "cuda" else {}
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, **extra)

    def estimate_mfu(self, fwdbwd_per_iter: int, dt: float) -> float:
        """Return model FLOPs utilisation, a fraction of an A100's dense bfloat16 peak.

        Args:
            fwdbwd_per_iter: sequences of block_size run forward and backward in an iteration.
            dt: seconds that iteration took.

        Source: arXiv:2204.02311, appendix B: 6N + 12·L·H·D·T a token.
        """
        c = self.config
        attention = 12 * c.n_layer * c.n_head * (c.n_embd // c.n_head) * c.block_size
        flops_per_iter = (6 * self.get_num_params() + attention) * c.block_size * fwdbwd_per_iter
        return flops_per_iter / dt / A100_BFLOAT16_PEAK_FLOPS

    @torch.no_grad()
    def generate(
        self, idx: Tensor, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None
    ) -> Tensor:
        """Continue idx by sampling, without a cache: the plain reference.

        As in nanoGPT, top_k is a threshold: logits equal to the k-th largest all stay. Draws come
        from torch's global generator. Call `eval()` first.

        Args:
            idx: (B, T) int64 prompt; only its last block_size ids are seen.
            max_new_tokens: how many ids to add.
            temperature: divides the logits; 0 takes the argmax, lowest id on a tie.
            top_k: how many logits survive, or None for all.

        Returns:
            (B, T + max_new_tokens) int64.
        """
        for _ in range(max_new_tokens):
            window = (
                idx if idx.size(1) <= self.config.block_size else idx[:, -self.config.block_size :]
            )
            logits = self(window)[0][:, -1, :]  # (B, V)
            if temperature == 0:
                idx = torch.cat((idx, logits.argmax(dim=-1, keepdim=True)), dim=1)
                continue
            logits = logits / temperature
            if top_k is not None:
                values, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < values[:, [-1]]] = -float("inf")
            probabilities = F.softmax(logits, dim=-1)
            idx = torch.cat((idx, torch.multinomial(probabilities, num_samples=1)), dim=1)
        return idx
