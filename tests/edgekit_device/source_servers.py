"""Servers that bundles are taken from: plain files with Range, faults on demand; and a registry."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Fault = Callable[["Handler", str], bool]


@dataclass
class Server:
    """A running server; ``asked`` has each request as (method, path, Range or "")."""

    url: str = ""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    connections: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    fault: Fault | None = None

    def blobs_asked(self) -> list[str]:
        return [path.rsplit("/", 1)[1] for method, path, _ in self.asked if "/blobs/" in path]


class Handler(BaseHTTPRequestHandler):
    """Answers GET from a folder, with Range as RFC 9110 has it; ``fault`` may answer instead."""

    protocol_version = "HTTP/1.1"
    state: Server
    folder: Path

    def setup(self) -> None:
        super().setup()
        self.state.connections += 1

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range") or ""
        self.state.asked.append((self.command, self.path, wanted))
        if self.state.fault is not None and self.state.fault(self, self.path):
            return
        path = self.folder / self.path.lstrip("/")
        if not path.is_file():
            self.answer(404, b"not here")
            return
        self.answer_bytes(path.read_bytes(), wanted)

    def answer_bytes(self, data: bytes, wanted: str, cut: int | None = None) -> None:
        found = re.fullmatch(r"bytes=(\d+)-", wanted)
        start = int(found.group(1)) if found else 0
        part = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if found else {}
        self.answer(206 if found else 200, data[start:], part, cut)

    def answer(
        self, status: int, data: bytes, headers: dict[str, str] | None = None,
        cut: int | None = None,
    ) -> None:  # fmt: skip
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data if cut is None else data[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A board that has read enough closes its connection."""


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler], **attributes: object) -> Iterator[Server]:
    """Runs a server on loopback until the block ends."""
    state = Server(files=attributes.get("files") or {})  # type: ignore[arg-type]
    attributes["files"] = state.files
    kind = type("Serving", (handler,), {"state": state, **attributes})
    server = _Quiet(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class RegistryHandler(Handler):
    """A strict double of OCI's distribution API, with Docker's token flow in front.

    ``files`` holds blobs and manifests by path, ``login`` the one user and password.
    """

    files: dict[str, bytes]
    login: str

    def do_GET(self) -> None:
        self.state.asked.append((self.command, self.path, self.headers.get("Range") or ""))
        parts = urlsplit(self.path)
        if parts.path == "/token":
            self._token(parse_qs(parts.query))
        elif self._allowed("pull" if self.command in ("GET", "HEAD") else "pull,push"):
            self._act(parts.path, parse_qs(parts.query))

    do_HEAD = do_POST = do_PUT = do_GET

    def _act(self, path: str, query: dict[str, list[str]]) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if self.command in ("GET", "HEAD"):
            data = self.files.get(path)
            if data is None:
                self.answer(404, b'{"errors": []}')
            elif "/manifests/" in path:
                assert "image.manifest.v1+json" in (self.headers.get("Accept") or "")
                self.answer(200, data)
            else:
                self.answer_bytes(data, self.headers.get("Range") or "")
        elif self.command == "POST":
            assert path.endswith("/blobs/uploads/"), path
            self.answer(202, b"", {"Location": path + "some-id?_state=x%3Dy"})
        elif "/blobs/uploads/" in path:
            (digest,) = query["digest"]
            assert query["_state"] == ["x=y"], "a Location's own query has to stay"
            if digest != "sha256:" + hashlib.sha256(body).hexdigest():
                self.answer(400, b'{"errors": [{"code": "DIGEST_INVALID"}]}')
                return
            self.files[path.split("uploads/", maxsplit=1)[0] + digest] = body
            self.answer(201, b"", {"Location": path})
        else:
            self._put_manifest(path, body)

    def _put_manifest(self, path: str, body: bytes) -> None:
        document = json.loads(body)
        assert document["mediaType"] == self.headers["Content-Type"]
        blobs = path.split("manifests/", maxsplit=1)[0] + "blobs/"
        for entry in [document["config"], *document["layers"]]:
            if len(self.files.get(blobs + entry["digest"], b"")) != entry["size"]:
                self.answer(400, b'{"errors": [{"code": "MANIFEST_BLOB_UNKNOWN"}]}')
                return
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        self.files[path] = self.files[path.rsplit("/", 1)[0] + "/" + digest] = body
        self.answer(201, b"", {"Location": path})

    def _allowed(self, actions: str) -> bool:
        scope = f"repository:boards/net:{actions}"
        given = self.headers.get("Authorization") or ""
        granted = given.removeprefix("Bearer ").split(" ")[-1]
        if granted in (_token_of(scope), _token_of("repository:boards/net:pull,push")):
            return True
        realm = f"{self.state.url}token"
        value = f'Bearer realm="{realm}",service="double, quoted",scope="{scope}"'
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.answer(401, b"{}", {"WWW-Authenticate": value})
        return False

    def _token(self, query: dict[str, list[str]]) -> None:
        assert query["service"] == ["double, quoted"]
        wanted = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.headers.get("Authorization") != wanted:
            self.answer(401, b"{}", {"WWW-Authenticate": 'Basic realm="x"'})
            return
        (scope,) = query["scope"]
        self.answer(200, json.dumps({"token": _token_of(scope)}).encode())


def _token_of(scope: str) -> str:
    return hashlib.sha256(b"secret" + scope.encode()).hexdigest()


def write_login(path: Path, host: str, login: str) -> None:
    """Writes a registries.json (or Docker's config.json)."""
    auth = base64.b64encode(login.encode()).decode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    path.chmod(0o600)


@contextlib.contextmanager
def real_registry(folder: Path, program: str) -> Iterator[str]:
    """Runs Docker's registry (Debian: docker-registry); yields host and port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder)}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    file = folder / "config.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(config))
    process = subprocess.Popen(
        [program, "serve", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "OTEL_TRACES_EXPORTER": "none"},
    )  # fmt: skip
    try:
        _await(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _await(port: int, process: subprocess.Popen[Any]) -> None:
    for _ in range(500):
        assert process.poll() is None, "the registry did not start"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
            return
        threading.Event().wait(0.02)
    raise AssertionError("the registry does not listen")


def registry_program() -> str | None:
    """Docker's registry, where it is installed."""
    return shutil.which("docker-registry")
