"""What a Ray cluster costs on one machine: `python -m benchmarks.clusters CKPT`.

The same rows by the local engine and by workers of a cluster of this machine, in turn; the bytes
must be equal before anything is timed. Two lengths of run tell what is paid once from what is paid
a row. Needs the extra `ray`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

WORDS = [
    "To",
    "be",
    "or",
    "not",
    "the",
    "king",
    "shall",
    "speak",
    "of",
    "a",
    "node",
    "and",
    "then",
    "return",
    "this",
    "value",
]


@dataclass(frozen=True)
class Cost:
    """Seconds of a run of N rows: `once + N * a_row`.

    Args:
        name: of the engine.
        walls: seconds of the short and of the long run, a pair a round.
        lengths: rows of the two.
    """

    name: str
    walls: list[tuple[float, float]]
    lengths: tuple[int, int]

    @property
    def a_row(self) -> float:
        """Seconds a row, the median over rounds."""
        short, long = self.lengths
        return median((wall[1] - wall[0]) / (long - short) for wall in self.walls)

    @property
    def once(self) -> float:
        """Seconds that do not depend on the rows, the median over rounds."""
        long = self.lengths[1]
        return median(wall[1] for wall in self.walls) - long * self.a_row


def main() -> int:
    """Measure, print a line an engine and an estimate; 1 where the bytes differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clusters", description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--rows", type=int, nargs=2, default=(500, 2500), metavar=("SHORT", "LONG"))
    parser.add_argument("--new-tokens", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    engines = {
        "local": ["--threads", str(os.cpu_count())],
        "ray": ["--engine", "ray", "--num-workers", str(args.workers)],
    }
    walls: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for rows in args.rows:
            write_prompts(folder / f"{rows}.txt", rows)
        for number in range(args.rounds + 1):
            made = {
                name: tuple(
                    sample(args.checkpoint, folder, rows, args.new_tokens, name, options)
                    for rows in args.rows
                )
                for name, options in engines.items()
            }
            if any(one[1] != two[1] for one, two in zip(*made.values(), strict=True)):
                print("the engines' rows are not the same", file=sys.stderr)
                return 1
            if number:  # the first one compiles, and brings files into memory
                for name, runs in made.items():
                    walls[name].append((runs[0][0], runs[1][0]))
                print({name: walls[name][-1] for name in walls}, file=sys.stderr, flush=True)
    costs = {name: Cost(name, walls[name], tuple(args.rows)) for name in engines}
    report(costs, args.workers)
    return 0


def write_prompts(path: Path, rows: int) -> None:
    """Write prompts of 1 to 12 words, no two alike."""
    lines = (" ".join(WORDS[: 1 + row % 12]) + f" {row}"[: row % 3] for row in range(rows))
    path.write_text("\n".join(lines) + "\n")


def sample(
    checkpoint: str, folder: Path, rows: int, new_tokens: int, name: str, options: list[str]
) -> tuple[float, bytes]:
    """Return the seconds of a run, from the command to its end, and the rows."""
    out = folder / f"{name}-{rows}"
    command = [sys.executable, "-m", "nanogpt_cli", "sample", checkpoint, "--compile", "--force"]
    command += ["--prompts", str(folder / f"{rows}.txt"), "-m", str(new_tokens), "-o", str(out)]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    started = time.perf_counter()
    done = subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    if out.is_dir():
        return seconds, b"".join(part.read_bytes() for part in sorted(out.glob("part-*")))
    return seconds, out.read_bytes()


def report(costs: dict[str, Cost], workers: int) -> None:
    """Print the figures, and what they mean for a million rows on machines like this one."""
    for cost in costs.values():
        print(
            f"{cost.name:6} once {cost.once:6.1f} s, a row {1e3 * cost.a_row:6.2f} ms, "
            f"{1 / cost.a_row:7.1f} rows/s"
        )
    ratio = costs["local"].a_row / costs["ray"].a_row
    print(f"{workers} workers over one process, by the row: {ratio:.2f}")
    print(f"a cluster's start: {costs['ray'].once - costs['local'].once:.1f} s more")
    machine = costs["ray"].a_row
    for machines in (1, 4, 16, 64):
        seconds = costs["ray"].once + 1e6 * machine / machines
        ideal = 1e6 * machine / machines
        print(f"1,000,000 rows on {machines:2} machines: {seconds:8.0f} s, {ideal / seconds:.1%}")
    print(json.dumps({name: cost.walls for name, cost in costs.items()}))


if __name__ == "__main__":
    sys.exit(main())
