"""The command: `python -m benchmarks` from the root of the checkout; README.md here says more."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.bandwidth import open_probe
from benchmarks.compare import Comparison, say
from benchmarks.figures import Outcome
from benchmarks.machine import describe_machine
from benchmarks.participants import Place
from benchmarks.random_model import ensure_model
from benchmarks.shapes import Workload, find_shape
from benchmarks.table import render, to_json
from benchmarks.variants import PEERS, VARIANTS, YARDSTICK, Variant, find_variants
from benchmarks.venvs import InstallError, ensure_venv

CACHE = Path.home() / ".cache" / "nanogpt-bench"

QUICK_ENGINES = "ours,nanogpt,hf/float32"
QUICK_WORKLOADS = (Workload((16, 16), 32), Workload((1, 60), 24, batch=5))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 done, 1 an engine failed or made other ids, 2 wrong usage."""
    parser = build_parser()
    args = parser.parse_args(arguments)
    try:
        if args.command == "list":
            print("\n".join(variant.name for variant in VARIANTS))
            return 0
        if args.command == "install":
            return install(args.venvs or args.cache / "venvs")
        return quick() if args.command == "quick" else compare(args)
    except ValueError as error:
        parser.error(str(error))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("quick", help="a tiny model, ours and its references: ids, not figures")
    commands.add_parser("list", help="the names that --engines takes")
    installing = commands.add_parser("install", help="make every peer's environment now")
    comparing = commands.add_parser("compare", help="time engines side by side")
    for command in (installing, comparing):
        command.add_argument("--cache", type=Path, default=CACHE, help="models and probe")
        command.add_argument("--venvs", type=Path, help="the peers' environments (CACHE/venvs)")
    comparing.add_argument("--shape", default="gpt2", help="gpt2, gpt2-medium, ..., tiny")
    comparing.add_argument(
        "--prompt-tokens", type=parse_range, default=(16, 16), help="N, or A-B for ragged batches"
    )
    comparing.add_argument("--new-tokens", type=int, default=200)
    comparing.add_argument("--batch", type=int, default=1)
    comparing.add_argument("--rounds", type=int, default=7)
    comparing.add_argument(
        "--tries", type=int, default=3, help="of a sample that other processes disturb"
    )
    comparing.add_argument(
        "--patience", type=float, default=30, help="seconds to wait for them before each try"
    )
    comparing.add_argument("--threads", type=int, default=torch.get_num_threads())
    comparing.add_argument("--engines", default="*", help="names with *, or peers, by commas")
    comparing.add_argument("--one-at-a-time", action="store_true", help="where memory is short")
    comparing.add_argument("--here", action="store_true", help="transformers from this environment")
    comparing.add_argument("--json", type=Path, help="write all figures to this file")
    return parser


def parse_range(text: str) -> tuple[int, int]:
    """Return `N` as (N, N), and `A-B` as (A, B).

    Raises:
        ValueError: not so, or not 1 <= A <= B.
    """
    low, _, high = text.partition("-")
    shortest, longest = int(low), int(high or low)
    if not 1 <= shortest <= longest:
        raise ValueError(f"{text!r} is no range of 1 and more")
    return shortest, longest


def compare(args: argparse.Namespace) -> int:
    """Run one comparison and print its table."""
    config = find_shape(args.shape)
    if args.new_tokens < 2:
        raise ValueError("--new-tokens must be at least 2: the first is not part of decoding")
    variants = find_variants(args.engines)
    workload = Workload(args.prompt_tokens, args.new_tokens, args.batch)
    workload.prompts(config)
    args.cache.mkdir(parents=True, exist_ok=True)
    model = ensure_model(args.cache, args.shape, config)
    logs = args.cache / "logs"
    logs.mkdir(exist_ok=True)
    place = Place(model, args.venvs or args.cache / "venvs", logs, args.threads, args.here)
    comparison = Comparison(
        config,
        workload,
        variants,
        place,
        args.rounds,
        tries=args.tries,
        patience=args.patience,
        one_at_a_time=args.one_at_a_time,
    )
    probe = open_probe(args.cache, args.threads)
    try:
        outcomes = comparison.run(probe)
    finally:
        probe.close()
    machine = describe_machine(probe.name, comparison.rates)
    if args.json is not None:
        report = to_json(outcomes, comparison.settings(), machine)
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print(render(outcomes, YARDSTICK))
    print(json.dumps(machine))
    return int(has_faults(outcomes))


def quick() -> int:
    """Check ids on a tiny model, in this environment; time it once so that timing is tried too."""
    config = find_shape("tiny")
    faulty = False
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        place = Place(ensure_model(cache, "tiny", config), cache, cache, 1, here=True)
        probe = open_probe(cache, 1)
        variants = [
            keep_steps(variant, cache / "steps") for variant in find_variants(QUICK_ENGINES)
        ]
        for workload in QUICK_WORKLOADS:
            comparison = Comparison(config, workload, variants, place, 1)
            outcomes = comparison.run(probe)
            faulty |= has_faults(outcomes)
            print(render(outcomes, YARDSTICK))
        probe.close()
    print("The model is tiny: these figures compare nothing but ids.")
    return int(faulty)


def keep_steps(variant: Variant, folder: Path) -> Variant:
    """Return ours with one compilation for all: what it costs is not asked here."""
    if not variant.options.get("compile"):
        return variant
    return replace(variant, options={**variant.options, "folder": str(folder)})


def has_faults(outcomes: Sequence[Outcome]) -> bool:
    """Whether an engine failed; one that offers no such variant did not."""
    return any(one.fault is not None and one.fatal for one in outcomes)


def install(venvs: Path) -> int:
    """Make the environments; 1 where one cannot be made."""
    failed = 0
    for name, peer in PEERS.items():
        try:
            ensure_venv(venvs, name, peer)
        except InstallError as error:
            say(f"{name}: {error}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
