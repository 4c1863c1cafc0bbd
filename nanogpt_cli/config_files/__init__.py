"""Option files: TOML, and nanoGPT's config/*.py, which is read as text and never executed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanogpt_cli.config_files.assignments import Assignments
from nanogpt_cli.errors import NanoGPTError, UsageError, name_some, nearest

# fmt: off
SAMPLING_KEYS = frozenset((
    "init_from", "out_dir", "start", "num_samples", "max_new_tokens", "temperature", "top_k",
    "seed", "device", "dtype", "compile",
))
TRAINING_KEYS = frozenset((
    "eval_interval", "log_interval", "eval_iters", "eval_only", "always_save_checkpoint",
    "wandb_log", "wandb_project", "wandb_run_name", "dataset", "gradient_accumulation_steps",
    "batch_size", "block_size", "n_layer", "n_head", "n_embd", "dropout", "bias", "learning_rate",
    "max_iters", "weight_decay", "beta1", "beta2", "grad_clip", "decay_lr", "warmup_iters",
    "lr_decay_iters", "min_lr", "backend", "real_data", "profile",
))
# fmt: on
NANOGPT_KEYS = SAMPLING_KEYS | TRAINING_KEYS
"""What nanoGPT's scripts let a config/*.py set. There, keys of training are passed over, even
where an option has the name (the batch_size of training is not that of sampling), and so are keys
of sample.py that a command has no option for."""
SIZE_KEYS = frozenset(("n_layer", "n_head", "n_embd", "block_size", "bias"))
"""The keys of training that say what the model is. A command with an option for each takes them."""

_MAX_BYTES = 1 << 20
_MAX_BITS = {int: 4096, float: 1023}
"""Of an integer, by what it is read as: more than any seed has, and what a float can hold."""

_TOML = "a line each, such as top_k = 200; only a name that ends in .py is read as nanoGPT's Python"
_ONCE = "hyphens and underscores are the same: leave one of them out"

_KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "text"}
_EXAMPLES = {int: "1", float: "0.5", bool: "true", str: '"text"'}
_FOUND = {**_KINDS, float: "a float", list: "a list", tuple: "a list", dict: "a table"}


@dataclass(frozen=True)
class Key:
    """An option as a file may set it.

    Args:
        name: the parameter of the command.
        kind: int, float, bool or str.
        many: whether it takes a list of them.
    """

    name: str
    kind: type
    many: bool = False


@dataclass(frozen=True)
class Settings:
    """What a file says.

    Args:
        values: by parameter name, types checked.
        skipped: how many keys of nanoGPT's scripts were passed over.
    """

    values: dict[str, Any]
    skipped: int = 0


def load(path: Path, keys: Mapping[str, Key]) -> Settings:
    """Read the options in `path`: nanoGPT's Python where the name ends in .py, else TOML.

    Args:
        path: the file; nothing in it is executed.
        keys: what may be set, by its spelling with underscores.

    Raises:
        UsageError: no such file, not of its format, an unknown key, a value of a wrong type, or
            in Python a known key whose value is more than a literal.
        NanoGPTError: the file cannot be read.
    """
    data = _read(path)
    if path.suffix == ".py":
        return _from_python(path, data, keys)
    return _from_toml(path, data, keys)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise UsageError(
            f"no config file at {str(path.absolute())!r}",
            "give --config the path of a .toml or .py",
        ) from error
    except IsADirectoryError as error:
        raise UsageError(f"config {str(path)!r} is a folder", "name the file in it") from error
    except OSError as error:
        raise NanoGPTError(f"cannot read config {str(path)!r}: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise UsageError(
            f"config {str(path)!r} is larger than 1 MiB: option files are short text",
            "a checkpoint is named without --config",
        )
    return data


def _from_toml(path: Path, data: bytes, keys: Mapping[str, Key]) -> Settings:
    try:
        table = tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"config {str(path)!r} is not UTF-8 text", _TOML) from error
    except (ValueError, RecursionError) as error:  # of this call, which only reads text
        raise UsageError(
            f"config {str(path)!r} is not TOML: {_lower(str(error))}", _TOML
        ) from error
    unknown = [key for key in table if _spelled(key) not in keys]
    if unknown:
        raise _unknown(path, unknown, keys)
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = keys[_spelled(key)].name
        if name in values:
            raise UsageError(
                f"config {str(path)!r}: {key!r} is set twice, under two spellings", _ONCE
            )
        values[name] = _checked(f"config {str(path)!r}: {key}", keys[_spelled(key)], value)
    return Settings(values)


def _spelled(key: str) -> str:
    return key.replace("-", "_")


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _unknown(path: Path, unknown: list[str], keys: Mapping[str, Key]) -> UsageError:
    word = "keys" if len(unknown) > 1 else "key"
    close = nearest(unknown[0], keys, cutoff=0.75)
    guess = f"did you mean {close}? " if close else ""
    return UsageError(
        f"config {str(path)!r}: unknown {word} {name_some(unknown)}",
        f"{guess}known keys: {', '.join(sorted(keys))}",
    )


def _checked(where: str, key: Key, value: Any) -> Any:
    """Return `value` if it is of the key's kind; an integer passes for a float."""
    if key.many and isinstance(value, list | tuple):
        return [_checked(where, Key(key.name, key.kind), item) for item in value]
    accepted = (int, float) if key.kind is float else (key.kind,)
    _refuse_extremes(where, key, value)
    if not key.many and type(value) in accepted:
        return value
    scalar = isinstance(value, int | float | str) or value is None
    shown = f"{value!r}, " if scalar else ""
    found = "nothing" if value is None else _FOUND.get(type(value), "a date or time")
    wanted = f"a list, each item {_KINDS[key.kind]}" if key.many else _KINDS[key.kind]
    example = _EXAMPLES[key.kind]
    raise UsageError(
        f"{where} is {shown}{found}: it must be {wanted}",
        f"such as {key.name} = {f'[{example}]' if key.many else example}",
    )


def _refuse_extremes(where: str, key: Key, value: Any) -> None:
    """Refuse what no flag could say, and what nothing that comes after is made for."""
    if isinstance(value, str) and "\0" in value:
        raise UsageError(f"{where} holds a zero byte", "text on a command line cannot have one")
    most = _MAX_BITS.get(key.kind, _MAX_BITS[int])
    if isinstance(value, int) and value.bit_length() > most:
        raise UsageError(
            f"{where} is an integer of {value.bit_length()} bits, more than {most}",
            "give a smaller number",
        )


def _from_python(path: Path, data: bytes, keys: Mapping[str, Key]) -> Settings:
    module = Assignments(path, data)
    taken = SIZE_KEYS if keys.keys() >= SIZE_KEYS else frozenset()
    known = {name: key for name, key in keys.items() if name not in TRAINING_KEYS - taken}
    for name, line in module.unread.items():
        if name in known:
            raise UsageError(
                f"config {str(path)!r} line {line}: {name} is set by more than a plain value",
                "write the value out: the file is read, never executed",
            )
    values: dict[str, Any] = {}
    unknown: list[str] = []
    for name, (value, line) in module.values.items():
        if name in known:
            found = 0 if name == "top_k" and value is None else value
            where = f"config {str(path)!r} line {line}: {name}"
            values[known[name].name] = _checked(where, known[name], found)
        elif not (name in NANOGPT_KEYS or name.startswith("_") or name in module.used):
            unknown.append(name)
    if unknown:
        raise _unknown(path, unknown, known)
    passed_over = NANOGPT_KEYS.difference(known).intersection({*module.values, *module.unread})
    return Settings(values, len(passed_over))
