"""A server that bundles are taken from: plain files with Range, a password and faults on demand."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Fault = Callable[["Handler", str], bool]


@dataclass
class Server:
    """A running server; ``asked`` has each request as (method, path, Range or "")."""

    url: str = ""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    connections: int = 0
    fault: Fault | None = None

    def blobs_requested(self) -> list[str]:
        return [path.rsplit("/", 1)[1] for method, path, _ in self.requests if "/blobs/" in path]


class Handler(BaseHTTPRequestHandler):
    """Answers GET from a folder, with Range as RFC 9110 has it; ``fault`` may answer instead."""

    protocol_version = "HTTP/1.1"
    state: Server
    folder: Path
    login = ""  # USER:PASSWORD that is asked for

    def setup(self) -> None:
        super().setup()
        self.state.connections += 1

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range") or ""
        self.state.requests.append((self.command, self.path, wanted))
        wanted_login = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and self.headers.get("Authorization") != wanted_login:
            self.answer(401, b"who?", {"WWW-Authenticate": 'Basic realm="mirror"'})
            return
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
    state = Server()
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


def write_login(path: Path, host: str, login: str) -> None:
    """Writes a registries.json."""
    auth = base64.b64encode(login.encode()).decode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    path.chmod(0o600)
