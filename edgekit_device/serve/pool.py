"""The server's clients with their requests, and the pool of workers that hold a loaded release and
answer requests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Deque, Dict, List, Optional, Set

from edgekit_device.errors import DeviceError
from edgekit_device.processes import child_argv
from edgekit_device.protocol.failure import Failure
from edgekit_device.protocol.server import MAX_HEAD, Closed, MessageReader, pack, send_with
from edgekit_device.protocol.serving import FailedAnswer, Ready
from edgekit_device.serve.worker import CODE, frame
from edgekit_device.store.root import App

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: SO_PEERCRED, unix(7)
_DELAY_S, _MOST_DELAY_S = 0.1, 10.0


@dataclass(frozen=True)
class ServeOptions:
    """A server's options; ``timeout_s`` bounds a request's wait, and then its run, in seconds."""

    workers: int = 1
    queue: int = 64
    timeout_s: float = 30.0
    threads: int = 0


@dataclass(eq=False)
class ServeRequest:
    """An accepted request: its unchanged head, and its memory.

    Attributes:
        until: Monotonic clock reading at which it has waited too long.
        tries: Number of workers that it was given to.
    """

    peer: Peer
    data: bytes
    descriptor: int
    arrived: float
    until: float
    tries: int = 0

    def close(self) -> None:
        """Closes its memory's descriptor."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Peer:
    """A client's connection; it has at most a single request at a time.

    Attributes:
        request: Its pending request; None without.
        waits: True if it waits for a reload.
        since: Monotonic time at which an incomplete message began to arrive; None without.
        answered_at: Monotonic time of its connection or its last answer.
    """

    def __init__(self, number: int, peer: socket.socket) -> None:
        self.number = number
        self.socket = peer
        self.reader = MessageReader()
        size = _CREDENTIALS.size
        self.pid, self.uid, _ = _CREDENTIALS.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        )
        self.request: Optional[ServeRequest] = None
        self.waits = False
        self.known = False
        self.since: Optional[float] = None
        self.answered_at = time.monotonic()
        self.open = True

    @property
    def busy(self) -> bool:
        """True if it waits for an answer."""
        return self.request is not None or self.waits

    def is_idle(self, now: float, seconds: float) -> bool:
        """Returns True if it has sent no request for ``seconds`` and has none pending."""
        if self.busy or self.since is not None or now - self.answered_at < seconds:
            return False
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False  # a request to read, or the end of the connection

    def answer(self, data: bytes) -> None:
        """Sends an answer.

        Raises:
            Closed: It disconnected, or did not read earlier answers.
        """
        self.answered_at = time.monotonic()
        try:
            sent = send_with(self.socket, data)
        except OSError as error:
            raise Closed(str(error)) from error
        if sent < len(data):
            raise Closed("it does not read its answers")

    def say(self, answer: Any) -> None:
        """Sends an answer's document; raises as :meth:`answer`."""
        self.answer(pack(answer))

    def refuse(self, error: DeviceError) -> None:
        """Sends an error; raises as :meth:`answer`."""
        self.say(FailedAnswer(Failure.of(error)))

    def close(self) -> None:
        """Ends the connection."""
        self.open = False
        self.reader.close()
        self.socket.close()


def child_environment() -> Dict[str, str]:
    """Returns the environment of children, without systemd's variables: only the server notifies
    systemd.
    """
    hidden = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
    return {name: value for name, value in os.environ.items() if name not in hidden}


class Worker:
    """A child process that loads a release and runs requests.

    Attributes:
        facts: Its message when it was ready; None before.
        request: The request that it runs; None if it is idle.
        since: Monotonic time at which it began to load, or to run the request.
        retiring: True if it ends after its request.
        faults: Number of consecutive requests that failed in its engines.
        verdict: Why the server killed it; None if it did not.
    """

    def __init__(self, app: App, release: str, threads: int) -> None:
        self.release = release
        self.reader = MessageReader(MAX_HEAD)
        self.facts: Optional[Ready] = None
        self.request: Optional[ServeRequest] = None
        self.retiring = False
        self.faults = 0
        self.verdict: Optional[Failure] = None
        self.since = time.monotonic()
        self._clients: Set[int] = set()
        self._left: Deque[int] = deque()
        # ``theirs`` is closed here after the start, so that the worker's end closes the connection
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            number = theirs.fileno()
            words = [str(number), str(app.root.folder), app.name, release, str(threads)]
            # its own session: only the server handles a Ctrl-C at its terminal
            self.process = subprocess.Popen(
                child_argv(CODE, *words),
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[number],
                start_new_session=True,
                env=child_environment(),
            )
        self.socket.setblocking(False)

    def run(self, request: ServeRequest) -> bool:
        """Gives it a request; returns False if it has ended."""
        request.tries += 1
        # the worker keeps this client's memory mapped until ``forget``
        self._clients.add(request.peer.number)
        self.request, self.since = request, time.monotonic()
        data = frame(request.peer.number, request.data)
        try:
            return send_with(self.socket, data, [request.descriptor]) == len(data)
        except OSError:
            return False

    def forget(self, client: int) -> None:
        """Notifies it that a client's memory is no longer needed, if it ever ran its requests."""
        if client in self._clients:
            self._clients.remove(client)
            self._left.append(client)
            self.flush()

    def flush(self) -> bool:
        """Sends pending notices of ``forget``; returns False if its socket is still full."""
        while self._left:
            data = frame(self._left[0], b"")
            try:
                if send_with(self.socket, data) < len(data):
                    self.kill()  # a partial message was sent: it cannot find the next one's start
                    return False
            except BlockingIOError:
                return False
            except OSError:
                pass  # it has ended: its socket's reader notices
            self._left.popleft()
        return True

    def receive(self) -> Optional[bytes]:
        """Returns its next message; None if it is still incomplete.

        Raises:
            Closed: It has ended.
        """
        with contextlib.suppress(BlockingIOError):
            self.reader.receive(self.socket)
        return self.reader.take()

    def kill(self, verdict: Optional[Failure] = None) -> None:
        """Kills it; its socket's reader then notices."""
        self.verdict = verdict
        self.process.kill()

    def close(self) -> None:
        """Makes it end by closing its socket."""
        self.reader.close()
        self.socket.close()

    def wait_for_exit(self) -> str:
        """Returns how its process ended; waits a second for that, then kills it."""
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


class WorkerPool:
    """The workers of one release.

    Attributes:
        workers: The living workers.
        since: Monotonic time at which it began to load.
        streak: Number of crashes since a request was answered.
        start_at: Monotonic time from which a crashed worker may be replaced.
    """

    def __init__(self, app: App, release: str, count: int, threads: int) -> None:
        self.app = app
        self.release = release
        self.count = count
        self.threads = threads
        self.workers: List[Worker] = []
        self.since = time.monotonic()
        self.start_at = 0.0
        self.streak = 0

    @property
    def facts(self) -> Optional[Ready]:
        """The first ready worker's message; None before."""
        return next((w.facts for w in self.workers if w.facts is not None), None)

    @property
    def ready(self) -> bool:
        """True if all its workers are ready."""
        return len(self.workers) == self.count and all(w.facts is not None for w in self.workers)

    def idle(self) -> Optional[Worker]:
        """Returns a ready worker without a request; None if there is none."""
        for worker in self.workers:
            # a killed worker keeps its verdict until its socket ends, and must not get a request
            free = worker.facts is not None and worker.request is None and worker.verdict is None
            if free and worker.flush():
                return worker
        return None

    def hire(self) -> Worker:
        """Starts another worker."""
        worker = Worker(self.app, self.release, self.threads)
        self.workers.append(worker)
        return worker

    def note_crash(self, now: float) -> None:
        """Records a crash: the first is replaced at once, later crashes after growing delays."""
        self.streak += 1
        # min(): the power of a long series would overflow a float
        wait = 0.0 if self.streak == 1 else _DELAY_S * 2.0 ** min(self.streak - 2, 10)
        self.start_at = now + min(wait, _MOST_DELAY_S)
