"""Workers: child processes that have a release loaded, and the crew of a release."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional

from ._child import child_argv
from ._root import App
from ._serve_line import Request
from ._serve_wire import MAX_HEAD, Reader, send_with
from ._serve_worker import CODE, frame

__all__ = ["Crew", "Worker", "environment"]

_DELAY_S, _MOST_DELAY_S = 0.1, 10.0
_WINDOW_S = 60.0


def environment() -> Dict[str, str]:
    """The environment of children: systemd is spoken to by the server alone."""
    hidden = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
    return {name: value for name, value in os.environ.items() if name not in hidden}


class Worker:
    """A child process with a release, from its start.

    Attributes:
        facts: What it said when it was ready: "digest", "inputs", "outputs", "notes".
        request: The one that it runs.
        since: When it began to load, or to run the request (monotonic).
        retiring: It ends after its request.
        faults: Requests in a row that its engines failed.
        verdict: Why the server killed it, as an error's fields.
    """

    def __init__(self, app: App, release: str, threads: int) -> None:
        self.release = release
        self.reader = Reader(MAX_HEAD)
        self.facts: Optional[Dict[str, Any]] = None
        self.request: Optional[Request] = None
        self.retiring = False
        self.faults = 0
        self.verdict: Optional[Dict[str, Any]] = None
        self.since = time.monotonic()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            number = theirs.fileno()
            words = [str(number), str(app.root.folder), app.name, release, str(threads)]
            # its own session: a Ctrl-C at the server's terminal is the server's to answer
            self.process = subprocess.Popen(
                child_argv(CODE, *words),
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[number],
                start_new_session=True,
                env=environment(),
            )
        self.socket.setblocking(False)

    def run(self, request: Request) -> bool:
        """Gives it a request; False when it has gone."""
        request.tries += 1
        self.request, self.since = request, time.monotonic()
        data = frame(request.peer.number, request.data)
        try:
            return send_with(self.socket, data, [request.descriptor]) == len(data)
        except OSError:
            return False

    def forget(self, client: int) -> None:
        """Tells it that a client's memory is no longer needed."""
        with contextlib.suppress(OSError):
            send_with(self.socket, frame(client, b""))

    def receive(self) -> Optional[bytes]:
        """What it says; None when that is not whole yet.

        Raises:
            Closed: It has gone.
        """
        with contextlib.suppress(BlockingIOError):
            self.reader.receive(self.socket)
        return self.reader.take()

    def kill(self, verdict: Optional[Dict[str, Any]] = None) -> None:
        """Ends it at once; its socket then says so."""
        self.verdict = verdict
        self.process.kill()

    def close(self) -> None:
        """Asks it to end, by closing its socket."""
        self.reader.close()
        self.socket.close()

    def ending(self) -> str:
        """How its process ended, which it has or is about to."""
        try:
            status = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if status >= 0:
            return "exit status {}".format(status)
        with contextlib.suppress(ValueError):
            return signal.Signals(-status).name
        return "signal {}".format(-status)


class Crew:
    """The workers of one release.

    Attributes:
        workers: Those that live.
        crashes: When its workers crashed within the last minute (monotonic).
        since: When it came to serve, or when its last crash was: a minute after that it is proven.
        start_at: When the next worker in place of a crashed one may start.
    """

    def __init__(self, app: App, release: str, count: int, threads: int) -> None:
        self.app = app
        self.release = release
        self.count = count
        self.threads = threads
        self.workers: List[Worker] = []
        self.crashes: Deque[float] = deque()
        self.since = time.monotonic()
        self.start_at = 0.0
        self.streak = 0

    @property
    def facts(self) -> Optional[Dict[str, Any]]:
        """What the first ready worker said."""
        return next((w.facts for w in self.workers if w.facts is not None), None)

    @property
    def ready(self) -> bool:
        """Whether all its workers are."""
        return len(self.workers) == self.count and all(w.facts is not None for w in self.workers)

    def idle(self) -> Optional[Worker]:
        """A worker that is ready and has nothing to do."""
        for worker in self.workers:
            if worker.facts is not None and worker.request is None and worker.verdict is None:
                return worker
        return None

    def hire(self) -> Worker:
        """Starts one worker more."""
        worker = Worker(self.app, self.release, self.threads)
        self.workers.append(worker)
        return worker

    def crashed(self, now: float) -> None:
        """Notes a crash: the first is made good at once, those after it later and later."""
        self.streak += 1
        self.since = now
        self.crashes.append(now)
        self.recent(now)
        wait = 0.0 if self.streak == 1 else _DELAY_S * 2.0 ** min(self.streak - 2, 10)
        self.start_at = now + min(wait, _MOST_DELAY_S)

    def recent(self, now: float) -> int:
        """Crashes within the last minute."""
        while self.crashes and self.crashes[0] < now - _WINDOW_S:
            self.crashes.popleft()
        return len(self.crashes)

    def steady(self, now: float) -> bool:
        """Whether it has served for a minute without a crash."""
        return now - self.since >= _WINDOW_S
