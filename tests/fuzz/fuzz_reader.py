"""Feed the reader broken files and see that each ends in an answer or one error.

    python tests/fuzz/fuzz_reader.py --inputs 200000 --zoo FOLDER

What ends otherwise (a crash, more than two seconds) is kept in --keep, with its traceback beside
it. The run ends with how often the reader met each opcode, and how many of these went on.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from mutations import Seed, make_seeds, mutate, read_seeds, scratch_folder

from nanogpt_cli.checkpoints import Checkpoint, open_checkpoint
from nanogpt_cli.errors import NanoGPTError
from nanogpt_cli.inspection.checks import check_checkpoint
from nanogpt_cli.inspection.listing import list_tensors
from nanogpt_cli.inspection.overview import survey
from nanogpt_cli.inspection.refusal import examine
from nanogpt_cli.inspection.statistics import gather_statistics
from nanogpt_cli.output import to_json
from nanogpt_cli.pickles import opcodes, reader
from nanogpt_cli.pickles.machine import Machine
from nanogpt_cli.tokenizers.meta import read_meta

SLOW_SECONDS = 2.0
MEMORY_BYTES = 6 << 30
TELL_EVERY = 10_000
READ_EVERY = 10
"""One of so many files that open has its tensors read, too."""


@dataclass
class Tally:
    """What came of the inputs.

    Args:
        outcomes: how each ended.
        reached: opcodes that were decoded.
        passed: opcodes whose step did not end the reading.
        findings: inputs that ended as none should.
        slowest: seconds that one input took at most.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    slowest: float = 0.0


def watch_opcodes(tally: Tally) -> Callable[[], None]:
    """Count the opcodes that the machine meets; return what ends the counting."""
    before = dict(reader.STEPS)

    def counted(name: str, step: reader.Step) -> reader.Step:
        def run(machine: Machine, argument: object) -> None:
            tally.reached[name] += 1
            step(machine, argument)
            tally.passed[name] += 1

        return run

    for name, step in before.items():
        reader.STEPS[name] = counted(name, step)
    return lambda: reader.STEPS.update(before)


def probe(path: Path, tally: Tally) -> str:
    """Read one file in every way; return how it ended."""
    try:
        checkpoint = open_checkpoint(str(path))
    except NanoGPTError as error:
        to_json(examine(path, error))
        return "refused"
    try:
        to_json(survey(checkpoint))
        to_json(list_tensors(checkpoint, optimizer=True))
        tally.outcomes["opened"] += 1
        if tally.outcomes["opened"] % READ_EVERY == 0:
            _read_tensors(checkpoint)
    except NanoGPTError:
        return "opened, then refused"
    return "opened and read"


def _read_tensors(checkpoint: Checkpoint) -> None:
    to_json(gather_statistics(checkpoint, optimizer=True))
    to_json(check_checkpoint(checkpoint))


def probe_meta(path: Path) -> str:
    """Read one file as a meta.pkl; return how it ended."""
    try:
        read_meta(path)
    except NanoGPTError:
        return "table refused"
    return "table read"


def run(seeds: list[Seed], inputs: int, seed: int, keep: Path | None = None) -> Tally:
    """Try so many broken relatives of the seeds."""
    tally = Tally()
    rng = random.Random(seed)
    stop_watching = watch_opcodes(tally)
    with scratch_folder() as folder:
        path = Path(folder) / "ckpt.pt"
        for number in range(inputs):
            start = seeds[rng.randrange(len(seeds))]
            data = mutate(start, rng)
            path.write_bytes(data)
            _try_one(path, start, tally, f"{seed}-{number}", keep)
            if keep is not None and (number + 1) % TELL_EVERY == 0:
                found = f"{number + 1:,} inputs, {len(tally.findings)} findings"
                print(found, file=sys.stderr, flush=True)
    stop_watching()
    return tally


def _try_one(path: Path, start: Seed, tally: Tally, label: str, keep: Path | None) -> None:
    began = time.process_time()
    try:
        tally.outcomes[probe(path, tally)] += 1
        if start.kind == "pickle":
            tally.outcomes[probe_meta(path)] += 1
    except Exception:
        _record(path, f"{label} ({start.name})", traceback.format_exc(), tally, keep)
    took = time.process_time() - began
    tally.slowest = max(tally.slowest, took)
    if took > SLOW_SECONDS:
        _record(path, f"{label} ({start.name})", f"took {took:.1f} s\n", tally, keep)


def _record(path: Path, label: str, why: str, tally: Tally, keep: Path | None) -> None:
    tally.findings.append(f"{label}: {why.splitlines()[-1]}")
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        name = label.partition(" ")[0]
        (keep / f"{name}.bin").write_bytes(path.read_bytes())
        (keep / f"{name}.txt").write_text(why)


def summarise(tally: Tally, inputs: int, seconds: float) -> str:
    """Return the report of a run."""
    known = sorted(name for name, _ in opcodes.OPCODES.values() if name != "STOP")
    lines = [
        f"{inputs:,} inputs in {seconds:,.0f} s, the slowest {tally.slowest:.2f} s",
        *(f"  {count:>9,} {name}" for name, count in tally.outcomes.most_common()),
        f"opcodes reached: {sum(name in tally.reached for name in known)} of {len(known)}",
        *(f"  {tally.reached[n]:>11,} {tally.passed[n]:>11,} went on  {n}" for n in known),
        f"findings: {len(tally.findings)}",
        *(f"  {finding}" for finding in tally.findings[:50]),
    ]
    return "\n".join(lines)


def main() -> int:
    """Run by hand; exit 1 where anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--zoo", type=Path, help="a folder of real checkpoints to start from, too")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    seeds = make_seeds() + (read_seeds(args.zoo) if args.zoo else [])
    began = time.monotonic()
    tally = run(seeds, args.inputs, args.seed, args.keep)
    print(summarise(tally, args.inputs, time.monotonic() - began))
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
