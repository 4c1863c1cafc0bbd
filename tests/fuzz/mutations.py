"""Files to start from, and ways to break them: raw bytes, and opcodes within a sound archive."""

from __future__ import annotations

import datetime
import io
import pickle
import pickletools
import random
import struct
import tempfile
import warnings
import zipfile
from argparse import Namespace
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as save_safetensors

from nanogpt_cli.model import GPT, GPTConfig

SIZES: dict[str, Any] = {"block_size": 4, "vocab_size": 11, "n_layer": 1, "n_head": 2, "n_embd": 8}

NAMES = (
    *("collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch.FloatStorage"),
    *("torch._utils._rebuild_parameter", "torch.Size", "torch.device", "torch.float16"),
    *("torch._tensor._rebuild_from_type_v2", "torch.storage.UntypedStorage", "torch.HalfStorage"),
    *("numpy.core.multiarray.scalar", "numpy.dtype", "numpy.core.multiarray._reconstruct"),
    *("_codecs.encode", "pathlib.PosixPath", "argparse.Namespace", "types.SimpleNamespace"),
    *("builtins.set", "builtins.bytearray", "builtins.complex", "copyreg._reconstructor"),
    *("builtins.object", "collections.defaultdict", "datetime.datetime", "decimal.Decimal"),
    *("os.system", "builtins.eval", "torch.load", "__main__.GPTConfig", "a" * 300 + ".b"),
)
TEXTS = (
    *("storage", "cpu", "cuda:0", "0", "1", "latin1", "model", "config", "optimizer", "state"),
    *("transformer.wte.weight", "lm_head.weight", "iter_num", "", "\0", "é" * 40, "\u202e"),
)
INTEGERS = (
    *(0, 1, 2, 3, 4, 8, 11, 44, 88, 127, 128, 255, 256, 32767, 65535, 65536),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -1, -2, -(2**31)),
)

Op = bytes
"""One opcode with its argument, as it is spelled."""


@dataclass(frozen=True)
class Seed:
    """A sound file.

    Args:
        name: for people.
        data: its bytes.
        kind: "zip", "legacy", "pickle" or "safetensors".
    """

    name: str
    data: bytes
    kind: str


@dataclass
class BuildConfig:
    """What build-nanogpt pickles as its config."""

    block_size: int = 4
    vocab_size: int = 11
    n_layer: int = 1
    n_head: int = 2
    n_embd: int = 8
    extra: dict[str, Any] = field(default_factory=dict)


def make_seeds() -> list[Seed]:
    """Return sound files of every kind, made here."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(**SIZES, bias=True))
    saved = _training_checkpoint(model)
    seeds = [
        Seed("nanoGPT", _save(saved), "zip"),
        Seed("nanoGPT, legacy", _save(saved, legacy=True), "legacy"),
        Seed("state dict", _save(model.state_dict()), "zip"),
        Seed("odd objects", _save(_odd_checkpoint(model)), "zip"),
        Seed("odd objects, legacy", _save(_odd_checkpoint(model), legacy=True), "legacy"),
        Seed("protocol 5", _save(_odd_checkpoint(model), protocol=5), "zip"),
        Seed("deflated", _deflate(_save(saved)), "zip"),
        Seed("safetensors", _safetensors(model), "safetensors"),
    ]
    table = {chr(97 + i): i for i in range(11)}
    meta = {"vocab_size": 11, "stoi": table, "itos": {i: char for char, i in table.items()}}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        seeds.append(Seed(f"meta.pkl {protocol}", pickle.dumps(meta, protocol), "pickle"))
    return seeds


def read_seeds(folder: Path, largest: int = 400_000) -> list[Seed]:
    """Return the small files below a folder of real ones."""
    kinds = {".pt": "zip", ".safetensors": "safetensors", ".pkl": "pickle"}
    return [
        Seed(str(path.relative_to(folder)), path.read_bytes(), kinds[path.suffix])
        for path in sorted(folder.rglob("*"))
        if path.suffix in kinds and path.stat().st_size <= largest
    ]


def _training_checkpoint(model: GPT) -> dict[str, Any]:
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "model_args": {**SIZES, "bias": True, "dropout": 0.0},
        "iter_num": 1,
        "best_val_loss": torch.tensor(2.0),
        "config": {"batch_size": 2, "gradient_accumulation_steps": 1, **SIZES, "decay_lr": True}
        | {"learning_rate": 1e-3, "min_lr": 1e-4, "warmup_iters": 2, "lr_decay_iters": 9},
    }


def _odd_checkpoint(model: GPT) -> dict[str, Any]:
    return {
        "model": OrderedDict(model.state_dict()),
        "config": BuildConfig(),
        "step": np.int64(7),
        "val_loss": np.float32(1.5),
        "where": PurePosixPath("a", "b"),
        "args": Namespace(lr=1e-3),
        "more": SimpleNamespace(x=[1, (2, 3), {4}, frozenset({5}), b"6", bytearray(b"7")]),
        "when": datetime.datetime(2024, 1, 2),
        "half": torch.zeros(3, dtype=torch.bfloat16)[1:],
        "turned": torch.zeros(2, 3).t(),
        "device": torch.device("cpu"),
        "dtype": torch.float16,
        "size": torch.Size([1, 2]),
        "parameter": torch.nn.Parameter(torch.zeros(2)),
        "large": [2**40, -(2**70), 1.5, True, None, 3 + 4j],
    }


def _save(value: object, *, legacy: bool = False, protocol: int = 2) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def _safetensors(model: GPT) -> bytes:
    state = {name: tensor for name, tensor in model.state_dict().items() if name[:2] != "lm"}
    return bytes(save_safetensors(state, {"n_head": "2"}))


def _deflate(data: bytes) -> bytes:
    return zip_members(unzip_members(data), zipfile.ZIP_DEFLATED)


def unzip_members(data: bytes) -> list[tuple[str, bytes]]:
    """Return the members of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def zip_members(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive of members, its checksums and its directory right."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # two members of one name are meant
        for name, content in members:
            info = zipfile.ZipInfo(name)  # a fixed date, so that a seed gives one file
            info.compress_type = method
            archive.writestr(info, content)
    return buffer.getvalue()


def mutate(seed: Seed, rng: random.Random) -> bytes:
    """Return a broken relative of a file."""
    if seed.kind == "zip" and rng.random() < 0.75:
        return _mutate_members(seed.data, rng)
    if seed.kind in ("legacy", "pickle") and rng.random() < 0.6:
        return _mutate_streams(seed.data, rng)
    return mutate_bytes(seed.data, rng)


def _mutate_members(data: bytes, rng: random.Random) -> bytes:
    members = unzip_members(data)
    place = next(i for i, (name, _) in enumerate(members) if name.endswith("data.pkl"))
    choice = rng.random()
    if choice < 0.65:
        name, content = members[place]
        members[place] = (name, mutate_opcodes(content, rng))
    elif choice < 0.85:
        name, content = members[place]
        members[place] = (name, mutate_bytes(content, rng))
    else:
        _mutate_one_member(members, rng)
    return zip_members(members, rng.choice((zipfile.ZIP_STORED,) * 4 + (zipfile.ZIP_DEFLATED,)))


def _mutate_one_member(members: list[tuple[str, bytes]], rng: random.Random) -> None:
    place = rng.randrange(len(members))
    name, content = members[place]
    match rng.randrange(4):
        case 0:
            members[place] = (name, mutate_bytes(content, rng))
        case 1:
            del members[place]
        case 2:
            members[place] = (rng.choice((f"{name}x", "../x", "a/b/c", "/x", name[1:])), content)
        case _:
            members.append((f"archive/data/{rng.randrange(99)}", content))


def _mutate_streams(data: bytes, rng: random.Random) -> bytes:
    """Mutate the opcodes of one of the pickles that a file begins with."""
    ends: list[int] = []
    end = 0
    while end < len(data) and data[end : end + 1] == b"\x80" and len(ends) < 5:
        end += len(b"".join(split_opcodes(data[end:])))
        ends.append(end)
    if not ends:
        return mutate_opcodes(data, rng)
    last = rng.randrange(len(ends))
    begin = ends[last - 1] if last else 0
    stream = mutate_opcodes(data[begin : ends[last]], rng)
    return data[:begin] + stream + data[ends[last] :]


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Change some bytes, whatever they mean."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(8):
            case 0:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case 1 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                del out[at : at + rng.choice((1, 4, 64, 1024))]
            case 3:
                out[at:at] = rng.randbytes(rng.choice((1, 4, 64)))
            case 4:
                source = rng.randrange(len(out) + 1)
                out[at:at] = out[source : source + rng.choice((1, 8, 200))]
            case 5:
                wide = rng.choice(INTEGERS) % 2**64
                out[at : at + 8] = wide.to_bytes(8, "little")
            case 6:
                out[at : at + 4] = (rng.choice(INTEGERS) % 2**32).to_bytes(4, "little")
            case _:
                del out[at:]
    return bytes(out)


def split_opcodes(stream: bytes) -> list[Op]:
    """Return the opcodes of one pickle, each with its argument, up to its end."""
    places: list[int] = []
    after = len(stream)
    for opcode, _, place in pickletools.genops(stream):
        assert place is not None, "bytes have places"
        places.append(place)
        if opcode.name == "STOP":
            after = place + 1
            break
    return [stream[a:b] for a, b in zip(places, [*places[1:], after], strict=True)]


def mutate_opcodes(stream: bytes, rng: random.Random) -> bytes:
    """Change some opcodes of a sound pickle; what is after its end stays."""
    ops = split_opcodes(stream)
    rest = stream[len(b"".join(ops)) :]
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(ops))
        match rng.randrange(7):
            case 0:
                ops[at] = random_op(rng)
            case 1:
                ops.insert(at, random_op(rng))
            case 2 if len(ops) > 1:
                del ops[at]
            case 3:
                ops.insert(at, ops[rng.randrange(len(ops))])
            case 4:
                other = rng.randrange(len(ops))
                ops[at], ops[other] = ops[other], ops[at]
            case 5:
                source = rng.randrange(len(ops))
                ops[at:at] = ops[source : source + rng.randrange(1, 20)]
            case _:
                ops[at] = _respell(ops[at], rng)
    return b"".join(ops) + rest


def _respell(op: Op, rng: random.Random) -> Op:
    """Return the same opcode with another argument."""
    known = {opcode.code.encode("latin-1"): opcode for opcode in pickletools.opcodes}
    return spell(known[op[:1]], rng)


def random_op(rng: random.Random) -> Op:
    """Return any opcode with an argument of the right form."""
    return spell(rng.choice(pickletools.opcodes), rng)


def spell(opcode: pickletools.OpcodeInfo, rng: random.Random) -> Op:
    """Return an opcode with a random argument of its own form."""
    code = opcode.code.encode("latin-1")
    return code if opcode.arg is None else code + _argument(opcode.arg.name, rng)


def _argument(form: str, rng: random.Random) -> bytes:
    number = rng.choice(INTEGERS)
    fixed = {"uint1": "<B", "uint2": "<H", "uint4": "<I", "uint8": "<Q", "int4": "<i"}
    if form in fixed:
        return _wrapped(number, struct.calcsize(fixed[form]))
    if form == "float8":
        return struct.pack(">d", rng.choice((0.0, -1.5, float("nan"), float("inf"), 1e308)))
    if form == "stringnl_noescape_pair":
        module, _, name = rng.choice(NAMES).rpartition(".")
        return f"{module}\n{name}\n".encode()
    lines = {
        "decimalnl_short": str(number),
        "decimalnl_long": f"{number}L",
        "floatnl": rng.choice(("1.5", "nan", "-inf", "1e999", "x")),
        "stringnl": repr(rng.choice(TEXTS)),
        "stringnl_noescape": rng.choice(TEXTS).replace("\n", ""),
        "unicodestringnl": rng.choice(TEXTS).replace("\n", ""),
    }
    if form in lines:
        return lines[form].encode("utf-8") + b"\n"
    return _counted(form, rng)


def _counted(form: str, rng: random.Random) -> bytes:
    text = rng.choice((*TEXTS, *NAMES)).encode()
    if form.startswith("long"):
        text = rng.choice(INTEGERS).to_bytes(16, "little", signed=True)
    width = int(form[-1]) if form[-1].isdigit() else 4
    claimed = len(text) if rng.random() < 0.9 else rng.choice(INTEGERS)
    return _wrapped(claimed, width) + text


def _wrapped(number: int, width: int) -> bytes:
    return (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder in memory where there is one."""
    shared = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)
