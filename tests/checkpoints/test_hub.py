"""Fetching with the real client, unpatched, from a local server that speaks the hub's protocol.

The client reads its settings when it is imported, so every test runs it in a process of its own.
"""

from __future__ import annotations

import errno
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hub_server import HubServer, Repository, running_hub
from safetensors.torch import save

from nanogpt_cli.checkpoints.finding import hub, hub_errors
from nanogpt_cli.errors import NanoGPTError

COMMIT = "a" * 40
CONFIG = json.dumps(
    {"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 4, "n_positions": 8}
).encode()
WEIGHTS = save({"wte.weight": torch.arange(4000.0)})
SMALL = save({"wpe.weight": torch.arange(4.0)})
INDEX = json.dumps(
    {"weight_map": {"wte.weight": "part-1.safetensors", "wpe.weight": "part-2.safetensors"}}
).encode()
GPT2 = "openai-community/gpt2"

RUNNER = """
import json, sys, time
from nanogpt_cli.checkpoints.finding import hub
from nanogpt_cli.checkpoints.finding.refs import locate
from nanogpt_cli.errors import NanoGPTError

seconds, calls = json.loads(sys.argv[1])
if seconds:
    hub.READ_SECONDS, hub.ANSWER_SECONDS = seconds
for ref, offline in calls:
    start = time.monotonic()
    try:
        found = locate(ref, offline=offline)
        said = {"path": str(found.path), "kind": found.kind, "revision": found.revision,
                "notes": found.notes}
    except NanoGPTError as error:
        said = {"error": type(error).__name__, "message": error.message, "hint": error.hint,
                "exit_code": error.exit_code}
    except KeyboardInterrupt:
        said = {"error": "KeyboardInterrupt"}
    said["seconds"] = time.monotonic() - start
    print(json.dumps(said), flush=True)
print(json.dumps(sorted({"torch", "numpy", "transformers"} & set(sys.modules))))
"""


@pytest.fixture
def server() -> Iterator[HubServer]:
    with running_hub() as started:
        started.repositories[GPT2] = Repository(
            {"config.json": CONFIG, "model.safetensors": WEIGHTS}
        )
        yield started


@dataclass
class Client:
    """Runs `locate` in a fresh process whose hub is `endpoint` and whose cache is `home`."""

    endpoint: str
    home: Path

    def start(
        self,
        *refs: str,
        offline: bool = False,
        seconds: tuple[float, float] | None = None,
        stderr: int = subprocess.PIPE,
        **environment: str,
    ) -> subprocess.Popen[str]:
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("HF_", "HUGGING")) and not key.lower().endswith("_proxy")
        }
        known = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(self.home)}
        return subprocess.Popen(
            [sys.executable, "-c", RUNNER, json.dumps([seconds, [(ref, offline) for ref in refs]])],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**kept, **known, **environment},
        )

    def locate(self, *refs: str, **options: object) -> list[dict[str, object]]:
        """Return what was found for each reference; nothing heavy, and nothing on stderr."""
        process = self.start(*refs, **options)  # type: ignore[arg-type]
        out, err = process.communicate(timeout=60)
        assert (err, process.returncode) == ("", 0)
        *said, heavy = map(json.loads, out.splitlines())
        assert heavy == []
        assert len(said) == len(refs)
        return said

    def refused(self, ref: str, **options: object) -> tuple[object, object, object]:
        """Return message, hint and exit code for a reference that cannot be had."""
        (said,) = self.locate(ref, **options)
        assert "message" in said, said
        return said["message"], said["hint"], said["exit_code"]

    def cached(self, repo_id: str, commit: str = COMMIT) -> Path:
        return self.home / "hub" / f"models--{repo_id.replace('/', '--')}" / "snapshots" / commit

    def leftovers(self) -> list[str]:
        """Return the names of files that a broken download would leave."""
        return [path.name for path in self.home.rglob("*.incomplete")]


@pytest.fixture
def client(server: HubServer, tmp_path: Path) -> Client:
    return Client(server.url, tmp_path / "home")


def test_a_stock_name_is_fetched_whole_once_and_then_found(
    server: HubServer, client: Client
) -> None:
    first, second, offline = *client.locate("gpt2", GPT2), *client.locate("gpt2", offline=True)
    folder = client.cached(GPT2)
    for said in (first, second, offline):
        assert (said["path"], said["kind"], said["revision"]) == (str(folder), "hub", COMMIT)
        assert said["notes"] == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "config.json": CONFIG,
        "model.safetensors": WEIGHTS,
    }
    assert server.paths("GET") == ["config.json", "model.safetensors"]
    assert [r.server for r in server.requests if r.method == "GET" and "/api/" not in r.path] == [
        "hub",
        "storage",
    ]


def test_an_access_token_goes_to_the_hub_and_not_to_its_storage(
    server: HubServer, client: Client
) -> None:
    client.locate("gpt2", HF_TOKEN="hf_secret")
    for request in server.requests:
        sent = request.headers.get("authorization")
        if request.server == "storage":
            assert sent is None
        elif request.path.startswith(f"/{GPT2}"):
            assert sent == "Bearer hf_secret"


def test_the_tokenizer_comes_along(server: HubServer, client: Client) -> None:
    tokenizer = {"vocab.json": b"{}", "merges.txt": b"#", "tokenizer_config.json": b"{}"}
    server.repositories["some/model"] = Repository(
        {
            "config.json": CONFIG,
            "pytorch_model.bin": b"weights",
            "training_args.bin": b"",
            **tokenizer,
        }
    )
    (said,) = client.locate("some/model")
    names = {path.name for path in Path(str(said["path"])).iterdir()}
    assert names == {"config.json", "pytorch_model.bin", *tokenizer}


def test_shards_and_a_preference_for_safetensors(server: HubServer, client: Client) -> None:
    server.repositories["some/model"] = Repository(
        {
            "config.json": CONFIG,
            "model.safetensors.index.json": INDEX,
            "part-1.safetensors": WEIGHTS,
            "part-2.safetensors": SMALL,
            "pytorch_model.bin": b"not wanted",
        }
    )
    (said,) = client.locate("some/model")
    names = {path.name for path in Path(str(said["path"])).iterdir()}
    assert names == {
        "config.json",
        "model.safetensors.index.json",
        "part-1.safetensors",
        "part-2.safetensors",
    }
    (Path(str(said["path"])) / "part-2.safetensors").unlink()
    message, _, code = client.refused("some/model", offline=True)
    assert (message, code) == (
        "'some/model' is not in the hub's cache (part-2.safetensors is missing), "
        "and nothing is fetched offline",
        1,
    )


def test_a_shard_outside_the_folder_is_never_asked_for(server: HubServer, client: Client) -> None:
    shards = {
        "some/up": "../../escape.safetensors",
        "some/root": "/etc/passwd",
        "some/below": "a/b.safetensors",
        "some/windows": "..\\escape.safetensors",
    }
    for repo_id, shard in shards.items():
        index = json.dumps({"weight_map": {"wte.weight": shard}}).encode()
        server.repositories[repo_id] = Repository(
            {"config.json": CONFIG, "model.safetensors.index.json": index}
        )
    for shard, one in zip(shards.values(), client.locate(*shards), strict=True):
        assert f"puts tensor 'wte.weight' in {shard!r}: " in str(one["message"])
        assert one["exit_code"] == 1
    assert set(server.paths("GET")) == {"config.json", "model.safetensors.index.json"}


def test_a_shard_that_the_hub_lacks(server: HubServer, client: Client) -> None:
    server.repositories["some/model"] = Repository(
        {"config.json": CONFIG, "model.safetensors.index.json": INDEX, "part-1.safetensors": b"1"}
    )
    message, _, code = client.refused("some/model")
    assert str(message).startswith("'some/model' on the hub has no part-2.safetensors: it has ")
    assert code == 1


def test_revisions(server: HubServer, client: Client) -> None:
    repository = server.repositories[GPT2]
    repository.revisions = {"main": COMMIT, "v2": "b" * 40}
    by_tag, by_commit, missing = client.locate(f"{GPT2}@v2", f"{GPT2}@{'b' * 40}", f"{GPT2}@v3")
    assert by_tag["path"] == by_commit["path"] == str(client.cached(GPT2, "b" * 40))
    assert by_tag["revision"] == by_commit["revision"] == "b" * 40
    assert missing["message"] == f"'{GPT2}@v3': the hub has the model but not that revision"
    assert missing["exit_code"] == 1
    # A whole commit that is cached costs no request, so it works with the hub away.
    server.close()
    (again,) = client.locate(f"{GPT2}@{'b' * 40}")
    assert (again["revision"], again["notes"]) == ("b" * 40, [])


def test_a_new_commit_is_fetched(server: HubServer, client: Client) -> None:
    client.locate("gpt2")
    server.repositories[GPT2] = Repository(
        {"config.json": CONFIG, "model.safetensors": SMALL}, {"main": "c" * 40}
    )
    (said,) = client.locate("gpt2")
    assert said["revision"] == "c" * 40
    assert (Path(str(said["path"])) / "model.safetensors").read_bytes() == SMALL
    assert client.locate("gpt2", offline=True)[0]["revision"] == "c" * 40


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "llama"}, "config.json has model_type 'llama': only 'gpt2'"),
        ({"model_type": "gpt2", "n_inner": 64}, "config.json has n_inner 64: only 4 x n_embd"),
    ],
)
def test_another_architecture_costs_no_download_of_weights(
    server: HubServer, client: Client, config: dict[str, object], said: str
) -> None:
    server.repositories["meta/llama"] = Repository(
        {"config.json": json.dumps(config).encode(), "model.safetensors": WEIGHTS}
    )
    message, _, code = client.refused("meta/llama")
    assert str(message).startswith(f"cannot use 'meta/llama': {said}")
    assert code == 1
    assert server.paths("GET") == ["config.json"]
    assert "model.safetensors" not in server.paths("HEAD")


def test_a_repository_without_a_model(server: HubServer, client: Client) -> None:
    no_weights = "on the hub has no weights that are read here: it has"
    expected = {
        "none/here": ({"config.json": CONFIG, "a.md": b""}, f"{no_weights} 'config.json', 'a.md'"),
        "tf/alone": ({"config.json": CONFIG, "tf_model.h5": b""}, f"{no_weights} 'tf_model.h5'"),
        "nano/gpt": (
            {"ckpt.pt": b"", "meta.pkl": b""},
            "on the hub has no config.json: it has 'ckpt.pt', 'meta.pkl'",
        ),
    }
    for repo_id, (files, _) in expected.items():
        server.repositories[repo_id] = Repository(files)
    said = client.locate(*expected)
    for (repo_id, (_, message)), one in zip(expected.items(), said, strict=True):
        assert (one["message"], one["exit_code"]) == (f"{repo_id!r} {message}", 1)
        assert "can be downloaded by hand and named by its path" in str(one["hint"])


def test_what_the_hub_refuses(server: HubServer, client: Client) -> None:
    gated = "is gated: its owner lets in only those who asked"
    ask = "ask for access on the model's page, then log in with: hf auth login"
    log_in = "log in with: hf auth login"
    expected: dict[tuple[int, str], tuple[str, str]] = {
        (401, "GatedRepo"): (f"{{0}} {gated}", ask),
        (403, "GatedRepo"): (f"{{0}} {gated}", ask),
        (404, "RepoNotFound"): (
            "the hub has no model {0}, or it is private",
            f"check the spelling; for a private model {log_in}",
        ),
        (401, ""): ("the hub refuses 'config.json' of {0} (HTTP 401)", log_in),
        (403, ""): ("the hub refuses 'config.json' of {0} (HTTP 403)", log_in),
        (429, ""): ("the hub answered HTTP 429 for 'config.json' of {0}", "try again later"),
    }
    ids = [f"some/model-{number}" for number in range(len(expected))]
    for repo_id, denied in zip(ids, expected, strict=True):
        server.repositories[repo_id] = Repository({}, denied=denied)
    said = client.locate(*ids)
    assert [(one["message"], one["hint"], one["exit_code"]) for one in said] == [
        (message.format(repr(repo_id)), hint, 1)
        for repo_id, (message, hint) in zip(ids, expected.values(), strict=True)
    ]


def test_a_missing_repository_and_an_impossible_name(client: Client) -> None:
    missing, impossible = client.locate("no/such", "a--b/c..d")
    assert missing["message"] == "the hub has no model 'no/such', or it is private"
    assert (impossible["error"], impossible["exit_code"]) == ("UsageError", 2)
    assert str(impossible["message"]).startswith("'a--b/c..d' is no name that a model can have")


def test_no_network_names_the_model_and_the_local_way(server: HubServer, client: Client) -> None:
    server.close()
    (said,) = client.locate("gpt2")
    assert str(said["message"]).startswith(f"cannot reach the hub for '{GPT2}' (")
    assert str(said["message"]).endswith("), and it is not in the cache")
    assert said["hint"] == (
        "check the connection, or give a local folder that has config.json and model.safetensors"
    )
    assert said["exit_code"] == 1
    assert isinstance(said["seconds"], float)
    assert said["seconds"] < 10


def test_a_cached_model_is_used_when_the_hub_is_away(server: HubServer, client: Client) -> None:
    client.locate("gpt2")
    server.repositories[GPT2].denied = (503, "")
    note = [f"the hub cannot be reached: using the cached copy of '{GPT2}', commit {COMMIT[:7]}"]
    assert client.locate("gpt2")[0]["notes"] == note
    server.close()
    assert client.locate("gpt2")[0]["notes"] == note


@pytest.mark.parametrize(("read", "answer"), [(0.5, 20), (60, 0.5)])
def test_a_hub_that_never_answers_is_given_up(tmp_path: Path, read: float, answer: float) -> None:
    assert hub.READ_SECONDS < hub.ANSWER_SECONDS < 30
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
        (said,) = client.locate(GPT2, seconds=(read, answer))
    assert str(said["message"]).startswith(f"cannot reach the hub for '{GPT2}' (")
    assert isinstance(said["seconds"], float)
    assert said["seconds"] < 10


def test_what_answers_may_not_be_the_hub(server: HubServer, client: Client) -> None:
    server.repositories[GPT2].named = False
    message, _, _ = client.refused("gpt2")
    assert "what answers is not the hub" in str(message)


@pytest.mark.parametrize("switch", ["argument", "environment"])
def test_offline_asks_nothing(server: HubServer, client: Client, switch: str) -> None:
    environment = {"HF_HUB_OFFLINE": "1"} if switch == "environment" else {}
    message, hint, code = client.refused("gpt2", offline=switch == "argument", **environment)
    assert message == (
        f"'{GPT2}' is not in the hub's cache (config.json is missing), "
        "and nothing is fetched offline"
    )
    assert str(hint).startswith("run once without --offline and HF_HUB_OFFLINE, or give a local")
    assert code == 1
    assert server.requests == []


def test_a_cut_connection_is_resumed_where_it_broke(server: HubServer, client: Client) -> None:
    chunk = 10 * 2**20  # what the client writes at once
    weights = save({"wte.weight": torch.arange(2.75 * 2**20)})
    server.repositories[GPT2] = Repository(
        {"config.json": CONFIG, "model.safetensors": weights},
        cut={"model.safetensors": [chunk + 9]},
    )
    (said,) = client.locate("gpt2")
    assert (Path(str(said["path"])) / "model.safetensors").read_bytes() == weights
    resumed = [request for request in server.requests if request.server == "storage"][-1]
    assert resumed.headers["range"] == f"bytes={chunk}-"


def test_a_download_that_keeps_breaking_off_leaves_no_part(
    server: HubServer, client: Client
) -> None:
    repository = server.repositories[GPT2]
    repository.cut["model.safetensors"] = [5000] + [0] * 20
    message, hint, code = client.refused("gpt2")
    assert str(message).startswith(f"the download of 'model.safetensors' of '{GPT2}' broke off: ")
    assert hint == "run it again: files that are complete are kept"
    assert code == 1
    assert client.leftovers() == []
    assert not (client.cached(GPT2) / "model.safetensors").exists()
    assert client.refused("gpt2", offline=True)[0] == (
        f"'{GPT2}' is not in the hub's cache (model.safetensors is missing), "
        "and nothing is fetched offline"
    )
    repository.cut.clear()
    (said,) = client.locate("gpt2")
    assert (Path(str(said["path"])) / "model.safetensors").read_bytes() == WEIGHTS
    assert server.paths("GET").count("config.json") == 1


def test_a_chunked_download_that_fails_is_told_too(server: HubServer, client: Client) -> None:
    pytest.importorskip("hf_xet")
    server.repositories[GPT2].chunked = frozenset({"model.safetensors"})
    message, hint, code = client.refused("gpt2")
    assert str(message).startswith(f"the download of 'model.safetensors' of '{GPT2}' broke off: ")
    assert hint == "run it again, or with HF_HUB_DISABLE_XET=1: files that are complete are kept"
    assert code == 1
    assert client.leftovers() == []
    (said,) = client.locate("gpt2", HF_HUB_DISABLE_XET="1")
    assert (Path(str(said["path"])) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_file_of_another_size_than_promised_is_not_kept(
    server: HubServer, client: Client
) -> None:
    server.repositories[GPT2].claimed["model.safetensors"] = len(WEIGHTS) + 1
    message, _, _ = client.refused("gpt2")
    assert str(message).startswith(f"the download of 'model.safetensors' of '{GPT2}' broke off: ")
    assert not (client.cached(GPT2) / "model.safetensors").exists()


def test_a_file_that_no_disk_holds_is_refused_before_it_is_fetched(
    server: HubServer, client: Client
) -> None:
    server.repositories[GPT2].claimed["model.safetensors"] = 40 * 10**15
    message, hint, code = client.refused("gpt2")
    assert message == f"no room on the disk for 'model.safetensors' of '{GPT2}'"
    assert hint == "free some space, or set HF_HOME to a folder on a larger disk"
    assert code == 1
    assert "model.safetensors" not in server.paths("GET")


def test_a_disk_that_fills_up_is_said_to_be_full() -> None:
    told = hub_errors.explain(OSError(errno.ENOSPC, "No space left"), "'m'", "model.safetensors")
    assert isinstance(told, NanoGPTError)
    assert told.message == "no room on the disk for 'model.safetensors' of 'm'"


def test_what_is_no_fault_of_the_world_is_not_explained() -> None:
    assert hub_errors.explain(ValueError("a bug"), "'m'", "config.json") is None
    assert not hub_errors.is_unreachable(ValueError("a bug"))


def test_a_cache_that_cannot_be_written(server: HubServer, tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.write_text("in the way")
    message, hint, code = Client(server.url, home).refused("gpt2")
    assert str(message).startswith(f"cannot write 'config.json' of '{GPT2}' to the hub's cache at ")
    assert str(message).endswith(": Not a directory")
    assert hint == "set HF_HOME to a folder that can be written"
    assert code == 1


def test_an_interrupt_passes_through_and_leaves_no_part(server: HubServer, client: Client) -> None:
    release = threading.Event()
    server.repositories[GPT2].hold["model.safetensors"] = release
    process = client.start("gpt2")
    server.wait_for("GET", "model.safetensors")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    release.set()
    assert json.loads(out.splitlines()[0])["error"] == "KeyboardInterrupt"
    assert err == ""
    assert client.leftovers() == []


def test_progress_is_drawn_on_a_terminal_alone(client: Client) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = client.start("gpt2", stderr=theirs)
    out, _ = process.communicate(timeout=60)
    os.close(theirs)
    drawn = os.read(ours, 65536).decode()
    os.close(ours)
    assert "model.safetensors" in drawn
    assert json.loads(out.splitlines()[0])["kind"] == "hub"
