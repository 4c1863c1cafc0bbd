"""`--engine ray` on a cluster of this machine: two workers, kills, resuming."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import CACHE
from model_files import build, save_meta, save_nanogpt
from ray_extra import needs_ray

from nanogpt_cli.cli import main

pytestmark = [
    *needs_ray,
    pytest.mark.skipif(sys.platform != "linux", reason="finds workers by /proc"),
]

PATIENCE_SECONDS = 240.0
ROWS = 600
OPTIONS = ["--no-compile", "-m", "12", "-n", "2"]


@dataclass(frozen=True)
class Files:
    """A checkpoint, its prompts, and what the local engine makes of them."""

    checkpoint: Path
    prompts: Path
    expected: bytes


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("letters")
    save_meta(folder)
    checkpoint = save_nanogpt(folder / "ckpt.pt", build(n_layer=6))
    prompts, out = folder / "prompts.jsonl", folder / "local.jsonl"
    rows = [{"prompt": f"ROW {row} {'X' * (row % 5)}", "id": f"é{row}"} for row in range(ROWS)]
    lines = [json.dumps(row) for row in rows]
    lines[3], lines[400] = '{"prompt": 5}', "not JSON"
    prompts.write_text("\n\n".join(lines))
    words = ["sample", str(checkpoint), "--prompts", str(prompts), "-o", str(out), *OPTIONS]
    assert main(words) == 3
    return Files(checkpoint, prompts, out.read_bytes())


def children_of(root: int) -> dict[int, str]:
    """Return the processes below one, and what they are."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
            names[int(folder.name)] = (folder / "cmdline").read_text(errors="replace")
        except OSError:
            continue
    below, size = {root}, 0
    while size < len(below):
        size = len(below)
        below |= {pid for pid, parent in parents.items() if parent in below}
    return {pid: names[pid] for pid in below if pid in names}


@dataclass(frozen=True)
class Cluster:
    """A cluster, by its first process, and what is to be set to reach it."""

    process: subprocess.Popen[bytes]
    environment: dict[str, str]

    @property
    def workers(self) -> list[int]:
        below = children_of(self.process.pid)
        return [pid for pid, name in below.items() if "MapWorker" in name]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="ray-")
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "XDG_CACHE_HOME": CACHE.name,
    }
    words = ["start", "--head", "--block", "--num-cpus=2", "--include-dashboard=false"]
    words += [f"--port={port}", f"--temp-dir={folder}"]
    words += ["--object-store-memory=100000000"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("ray")), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        try:
            yield Cluster(process, {**environment, "RAY_ADDRESS": f"127.0.0.1:{port}"})
        finally:
            left = children_of(process.pid)
            for pid in left:  # asked to end, they take half a minute
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(PATIENCE_SECONDS)
            wait_for_the_end(left)
            shutil.rmtree(folder, ignore_errors=True)


def wait_for_the_end(processes: dict[int, str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(Path("/proc", str(pid), "exe").exists() for pid in processes):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def command(files: Files, out: Path | str, prompts: str | None = None) -> list[str]:
    words = [sys.executable, "-m", "nanogpt_cli", "sample", str(files.checkpoint), *OPTIONS]
    places = ["--prompts", prompts or str(files.prompts), "-o", str(out)]
    return [*words, *places, "--engine", "ray", "--num-workers", "2"]


def run(words: list[str], environment: dict[str, str]) -> tuple[int, str, list[str]]:
    done = subprocess.run(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.splitlines()


def start(words: list[str], environment: dict[str, str], out: Path) -> subprocess.Popen[bytes]:
    """Start a run, and wait for its first part."""
    process = subprocess.Popen(
        words, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(out.glob("part-*")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return process


def whole(out: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(out.glob("part-*.jsonl")))


def check_manifest(out: Path) -> None:
    """Compare the manifest with the parts that are there."""
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["schema"], manifest["complete"]) == ("nanogpt.parts/1", True)
    assert (manifest["prompts"], manifest["rows"], manifest["failed"]) == (ROWS, 2 * ROWS - 2, 2)
    assert [part["name"] for part in manifest["parts"]] == sorted(
        path.name for path in out.glob("part-*")
    )
    for part in manifest["parts"]:
        data = (out / part["name"]).read_bytes()
        found = (part["bytes"], part["rows"], part["sha256"])
        assert found == (len(data), data.count(b"\n"), hashlib.sha256(data).hexdigest())


def test_two_workers_make_the_local_file_and_a_resumed_run_what_it_lacks(
    cluster: Cluster, files: Files, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "rows"
    code, stdout, said = run(command(files, out), cluster.environment)
    assert (code, stdout) == (3, ""), said
    assert whole(out) == files.expected
    check_manifest(out)
    assert said[-3].startswith("1,198 rows, 5 parts, 14,352 tokens, ")
    assert said[-3].endswith("2 workers of 1 CPU, seed 1337, finished by length 1,196")
    assert said[-2] == (
        "error: 2 of 1,198 rows have an error and no text, the first is row 3: "
        "'prompt' is a number: it must be text"
    )
    assert [line for line in said[:-3] if not line.startswith("note: ")] == []

    manifest = (out / "manifest.json").read_bytes()
    (out / "part-000000000128.jsonl").unlink()
    (out / ".part-000000000128.jsonl.0123456789abcdef.nanogpt").write_bytes(b"half of it")
    words = command(files, f"file://{out}", f"file://{files.prompts}")
    code, stdout, said = run([*words, "--resume"], cluster.environment)
    assert (code, stdout) == (3, "")
    assert said[-3].startswith("256 rows after 942 that were there, 5 parts, 3,072 tokens, ")
    assert whole(out) == files.expected
    assert (out / "manifest.json").read_bytes() == manifest
    assert len(list(out.iterdir())) == 6


def test_a_killed_worker_loses_nothing_and_repeats_nothing(
    cluster: Cluster, files: Files, tmp_path: Path
) -> None:
    out = tmp_path / "rows"
    process = start(command(files, out), cluster.environment, out)
    os.kill(cluster.workers[0], signal.SIGKILL)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 3, said
    assert whole(out) == files.expected
    check_manifest(out)


def test_a_killed_run_goes_on_to_the_same_parts(
    cluster: Cluster, files: Files, tmp_path: Path
) -> None:
    out = tmp_path / "rows"
    process = start(command(files, out), cluster.environment, out)
    process.kill()
    process.communicate()
    assert json.loads((out / "manifest.json").read_text())["complete"] is False
    code, _, said = run([*command(files, out), "--resume"], cluster.environment)
    assert code == 3, said
    assert [line for line in said if " that were there, 5 parts, " in line], said
    assert whole(out) == files.expected
    check_manifest(out)


def test_a_cluster_of_its_own_for_more_workers_than_it_has(files: Files, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    environment |= {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    words = [*command(files, tmp_path / "rows"), "--num-workers", "5000"]
    code, stdout, said = run(words, environment)
    assert (code, stdout) == (2, "")
    assert said[-2].startswith("error: --num-workers 5000: the cluster has CPUs for ")
    assert not (tmp_path / "rows").exists()
