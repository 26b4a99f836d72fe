"""A server in a process of its own, with workers that do what they are told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from edgekit_device.files import replace_link
from edgekit_device.protocol.codec import dump, write
from edgekit_device.protocol.server import MessageReader, connect_to, exchange, query_server
from edgekit_device.protocol.serving import RunAnswer
from edgekit_device.serve.memory import SharedMemory
from edgekit_device.store.root import App, Root
from edgekit_device.trust.accepted import accept
from edgekit_device.trust.bundle import ReleaseRecord
from tests.bundles.bundle_toys import toy_bundle

HERE = Path(__file__).resolve().parents[2]

# a worker that loads nothing: an input's name says what it does, a file what its release is
WORKER = """
import json, os, signal, socket, time
from pathlib import Path
from edgekit_device.protocol.server import Closed, MessageReader, pack

number, root, app, release, threads = sys.argv[1:]
server = os.getppid()
told = Path(root, "apps", app, "releases", release, "told")
told = told.read_text().split() if told.exists() else []
peer = socket.socket(fileno=int(number))
if "dies" in told:
    os.kill(os.getpid(), signal.SIGSEGV)
if "fails" in told:
    peer.sendall(pack({"edgekit": 1, "error": {"code": "engine.odd", "message": "it is odd",
                                               "where": "", "hint": ""}}))
    sys.exit()
peer.sendall(pack({"edgekit": 1, "digest": "d", "inputs": [], "outputs": []}))
reader = MessageReader(1 << 17)
try:
    while True:
        message = reader.wait(peer)
        if len(message) == 8:
            with open(os.path.join(root, "left"), "a") as left:
                left.write("x")
            continue
        os.close(reader.claim())
        what = json.loads(message[8:])["inputs"][0]["name"]
        if what == "crash" or "crashes" in told:
            os.kill(os.getpid(), signal.SIGSEGV)
        if what.startswith("until "):
            while not os.path.exists(what[6:]) and os.getppid() == server:
                time.sleep(0.01)
        # the time says which process answers
        answer = {"edgekit": 1, "release": release, "outputs": [], "engine_ms": os.getpid()}
        if what == "fail":
            answer = {"edgekit": 1, "error": {"code": "engine.failed", "message": "no",
                                              "where": "", "hint": ""}}
        peer.sendall(pack(answer))
except Closed:
    pass
"""

SERVER = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import edgekit_device.serve.pool as crew
crew.CODE = sys.argv.pop(1)
from edgekit_device.__main__ import main
sys.exit(main())
"""


def wait_for(what: Callable[[], Any], seconds: float = 300.0) -> Any:
    """Waits until ``what`` is true; returns it."""
    until = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.01)


class ServedBoard:
    """An app whose releases behave as their flags say, and a server of it."""

    def __init__(self, folder: Path) -> None:
        self.root = Root(folder)
        self.app: App = self.root.app("toy")
        self.app.releases_folder.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None

    def release(self, number: int, *flags: str) -> str:
        name = f"{number:06d}-{'0' * 12}"
        folder = self.app.releases_folder / name
        folder.mkdir()
        (folder / "told").write_text(" ".join(flags))
        (folder / "refit.json").write_text("{}")
        # what a rollback looks at before it lets a release serve
        (folder / "manifest.json").write_bytes(toy_bundle().manifest_bytes)
        record = ReleaseRecord("toy", name, "0" * 64, "reference", None, True, "")
        (folder / "release.json").write_bytes(dump(record))
        accept(self.root, toy_bundle().digest)
        return name

    def switch(self, name: str) -> None:
        before = self.app.link("current")
        if before is not None:
            replace_link(self.app.folder / "previous", "releases/" + before)
        replace_link(self.app.folder / "current", "releases/" + name)

    def start(self, *options: str, env: dict[str, str] | None = None) -> None:
        argv = [sys.executable, "-c", SERVER, str(HERE), WORKER, "serve", "--app", "toy"]
        self.process = subprocess.Popen(
            [*argv, "--root", str(self.root.folder), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "error", **(env or {})},
        )
        wait_for(
            lambda: (
                query_server(self.app.folder) or (self.process and self.process.poll() is not None)
            )
        )

    def stop(self, number: int = signal.SIGTERM) -> tuple[dict[str, Any], str]:
        """Ends it with a signal; returns its answer and its log."""
        assert self.process is not None
        self.process.send_signal(number)
        said, log = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, log.decode()
        self.process = None
        return json.loads(said), log.decode()

    def status(self) -> dict[str, Any]:
        found = query_server(self.app.folder)
        assert found is not None
        return dict(write(found))

    def serves(self, name: str) -> bool:
        return bool(self.status()["release"] == name)

    def client(self) -> Caller:
        return Caller(self.app.folder / "serve.sock")

    @contextlib.contextmanager
    def later(self, *what: str) -> Iterator[Sequence[Any]]:
        """Asks each in a thread of its own; after the block all have their answers."""
        answers: list[Any] = [None] * len(what)

        def ask(place: int) -> None:
            caller = self.client()
            try:
                answers[place] = caller.run(what[place])
            except Exception as error:
                answers[place] = error
            finally:
                caller.close()

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(what))]
        for thread in threads:
            thread.start()
        try:
            yield answers
        finally:
            for thread in threads:
                thread.join()


class Caller:
    """A connection that says what it wants to, to the letter."""

    def __init__(self, path: Path) -> None:
        peer = connect_to(path, 60.0)
        assert peer is not None
        self.peer: socket.socket = peer
        self.reader = MessageReader()
        self.memory = SharedMemory(4096)

    def run(self, name: str = "ok", **more: Any) -> dict[str, Any]:
        entry = {"name": name, "dtype": "float32", "shape": [], "offset": 0}
        head = {"op": "run", "inputs": [entry], **more}
        head["room"] = {"offset": 64, "bytes": 64}
        answer = exchange(RunAnswer, self.peer, self.reader, head, [self.memory.descriptor])
        return {**write(answer), "pid": answer.engine_ms}

    def close(self) -> None:
        self.reader.close()
        self.peer.close()
        self.memory.close()
