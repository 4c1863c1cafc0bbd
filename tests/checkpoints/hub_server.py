"""A local server that speaks the Hugging Face hub's protocol, as far as its client asks.

Small files are served where they are asked for; large ones are redirected to a second server, as
the hub does with its storage. Faults are switched on by a repository's fields.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
API = re.compile(r"/api/models/([^/]+/[^/]+?)(?:/revision/([^/?]+))?(?:\?.*)?")


@dataclass
class Repository:
    """One model on the server.

    Args:
        files: name to content.
        revisions: branch or tag to commit.
        stored: files that are redirected to the storage server.
        denied: status and X-Error-Code of the answer to every request for a file.
        cut: file name to how many bytes come before the connection is closed, for each GET in
            turn; without an entry left the whole file comes.
        claimed: file name to the size that its headers claim.
        hold: file name to an event that its body waits for after the first byte.
        chunked: files that are offered from the hub's chunked storage, which has nothing here.
        named: whether answers name the commit, as nothing but a hub does.
    """

    files: Mapping[str, bytes]
    revisions: dict[str, str] = field(default_factory=lambda: {"main": "a" * 40})
    stored: frozenset[str] = frozenset({"model.safetensors", "pytorch_model.bin"})
    denied: tuple[int, str] | None = None
    cut: dict[str, list[int]] = field(default_factory=dict)
    claimed: dict[str, int] = field(default_factory=dict)
    hold: dict[str, threading.Event] = field(default_factory=dict)
    chunked: frozenset[str] = frozenset()
    named: bool = True


@dataclass(frozen=True)
class Request:
    """What the client sent; `server` is "hub" or "storage", header names are in lower case."""

    server: str
    method: str
    path: str
    headers: dict[str, str]


class HubServer:
    """The two servers and what they were asked."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.asked = threading.Condition()
        self._hub = _listen(self, "hub", _answer_hub)
        self._storage = _listen(self, "storage", _answer_storage)

    @property
    def url(self) -> str:
        """What HF_ENDPOINT is to be."""
        return _url(self._hub)

    @property
    def storage_url(self) -> str:
        """Where large files are redirected to."""
        return _url(self._storage)

    def paths(self, method: str = "GET") -> list[str]:
        """Return the file names that were asked for with `method`, in order."""
        return [
            request.path.rpartition("/")[2]
            for request in self.requests
            if request.method == method and not request.path.startswith("/api/")
        ]

    def wait_for(self, method: str, name: str, seconds: float = 30) -> None:
        """Block until `name` has been asked for."""
        with self.asked:
            assert self.asked.wait_for(lambda: name in self.paths(method), seconds)

    def close(self) -> None:
        """Stop both servers; later connections are refused."""
        for server in (self._hub, self._storage):
            server.shutdown()
            server.server_close()


@contextmanager
def running_hub() -> Iterator[HubServer]:
    """Run a hub for the length of a `with` block."""
    server = HubServer()
    try:
        yield server
    finally:
        server.close()


def _url(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def _listen(
    hub: HubServer, name: str, answer: Callable[[HubServer, _Handler], None]
) -> ThreadingHTTPServer:
    class Handler(_Handler):
        def handle_request(self) -> None:
            headers = {key.lower(): value for key, value in self.headers.items()}
            request = Request(name, self.command, self.path, headers)
            with hub.asked:
                hub.requests.append(request)
                hub.asked.notify_all()
            answer(hub, self)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_request(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.handle_request()

    def do_POST(self) -> None:
        self.handle_request()
        self.close_connection = True  # its body has not been read

    def do_HEAD(self) -> None:
        self.handle_request()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def reply(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _answer_hub(hub: HubServer, request: _Handler) -> None:
    if match := RESOLVE.fullmatch(request.path):
        _answer_file(hub, request, *match.groups())
    elif match := API.fullmatch(request.path):
        _answer_api(hub, request, *match.groups())
    else:
        # The client's list of agents, for one, and its leave to use the chunked storage.
        leave = {
            "X-Xet-Cas-Url": hub.storage_url,
            "X-Xet-Access-Token": "token",
            "X-Xet-Token-Expiration": str(2**31),
        }
        request.reply(HTTPStatus.OK, leave, b"{}")


def _answer_api(hub: HubServer, request: _Handler, repo_id: str, revision: str | None) -> None:
    repository = hub.repositories.get(repo_id)
    commit = repository.revisions.get(revision or "main") if repository else None
    if repository is None or commit is None:
        request.reply(HTTPStatus.NOT_FOUND, {"X-Error-Code": "RepoNotFound"})
        return
    siblings = [{"rfilename": name} for name in repository.files]
    body = json.dumps({"id": repo_id, "sha": commit, "siblings": siblings}).encode()
    request.reply(HTTPStatus.OK, {"Content-Type": "application/json"}, body)


def _answer_file(hub: HubServer, request: _Handler, repo_id: str, revision: str, name: str) -> None:
    repository = hub.repositories.get(repo_id)
    if repository is None:
        request.reply(HTTPStatus.UNAUTHORIZED, {"X-Error-Code": "RepoNotFound"})
        return
    if repository.denied is not None:
        status, code = repository.denied
        request.reply(status, {"X-Error-Code": code} if code else {})
        return
    commits = {
        **repository.revisions,
        **{commit: commit for commit in repository.revisions.values()},
    }
    commit = commits.get(revision)
    if commit is None:
        request.reply(HTTPStatus.NOT_FOUND, {"X-Error-Code": "RevisionNotFound"})
        return
    headers = {"X-Repo-Commit": commit} if repository.named else {}
    content = repository.files.get(name)
    if content is None:
        request.reply(HTTPStatus.NOT_FOUND, {"X-Error-Code": "EntryNotFound", **headers})
        return
    digest = hashlib.sha256(content).hexdigest()
    if name not in repository.stored:
        _send(request, repository, name, {"ETag": f'"{digest[:40]}"', **headers})
        return
    headers |= {
        "X-Linked-Etag": f'"{digest}"',
        "X-Linked-Size": str(repository.claimed.get(name, len(content))),
        "Location": f"{hub.storage_url}/{repo_id}/{name}",
    }
    if name in repository.chunked:
        route = f"{hub.url}/api/models/{repo_id}/xet-read-token/{commit}"
        headers |= {"X-Xet-Hash": digest, "X-Xet-Refresh-Route": route}
    request.reply(HTTPStatus.FOUND, headers)


def _answer_storage(hub: HubServer, request: _Handler) -> None:
    repo_id, _, name = request.path[1:].rpartition("/")
    repository = hub.repositories.get(repo_id)
    if repository is None:
        request.reply(HTTPStatus.NOT_FOUND, {})
    else:
        _send(request, repository, name, {})


def _send(request: _Handler, repository: Repository, name: str, headers: dict[str, str]) -> None:
    content = repository.files[name]
    status, begin = HTTPStatus.OK, 0
    if match := re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", "")):
        status, begin = HTTPStatus.PARTIAL_CONTENT, int(match.group(1))
        headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
    body = content[begin:]
    if request.command == "HEAD":
        request.reply(status, headers, body)
        return
    headers["Content-Length"] = str(len(body))
    if held := repository.hold.get(name):
        request.reply(status, headers, body[:1])
        held.wait(30)
        request.close_connection = True
        return
    cuts = repository.cut.get(name)
    kept = cuts.pop(0) if cuts else len(body)
    request.reply(status, headers, body[:kept])
    request.close_connection = kept < len(body)
