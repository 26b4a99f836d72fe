"""The server: a loop over its listening socket, its clients, its workers and signals; its answers,
its log, and its notices to systemd.

It never reads a tensor and never waits for another process: only workers can hang or crash.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import socket
import stat
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Type

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import write_durably
from edgekit_device.protocol.codec import dump
from edgekit_device.protocol.failure import Failure
from edgekit_device.protocol.server import (
    MAX_HEAD,
    RECORD,
    Closed,
    frame_message,
    pack,
    parse_head,
    read_answer,
    read_request,
    short_path,
)
from edgekit_device.protocol.serving import (
    Description,
    FailedAnswer,
    Ready,
    Request,
    RunAnswer,
    RunRequest,
    ServingRecord,
    ServingStatus,
    StatusAnswer,
    StopAnswer,
)
from edgekit_device.release.journal import timestamp
from edgekit_device.serve.pool import (
    Peer,
    ServeOptions,
    ServeRequest,
    Worker,
    child_environment,
)
from edgekit_device.serve.releases import ServedReleases, ServerCounters, is_clients_fault
from edgekit_device.store.root import App

_TICK_S = 0.2
_DRAIN_S = 30.0
_FAULTS = 3  # consecutive failures: an engine that lost its device always fails
_STALL_S = 10.0  # time for a message to arrive completely
_MOST_CLIENTS = 256  # two descriptors each: half of the 1,024 that a process has by default
_IDLE_S = 1.0  # after this an idle connection may be closed for a waiting connection
_BACKLOG = 1024

_MOST_LOG = 4 << 20  # bytes of a log in a file, which nothing rotates


class Server:
    """Serves one app until it is stopped."""

    def __init__(
        self,
        app: App,
        listener: ListeningSocket,
        options: ServeOptions,
        log: ServerLog,
        loader: List[str],
    ) -> None:
        self.app, self.options, self.log, self._loader = app, options, log, loader
        self._resuming: Optional[subprocess.Popen[bytes]] = None
        self.stopping: Optional[float] = None
        self._selector = selectors.DefaultSelector()
        self._notifier = Notifier(os.environ)
        self._reported_at, self._ready = 0.0, False
        self._signals: List[int] = []
        self.health = ServerCounters()
        self.releases = ServedReleases(
            app, options, self.health, log.say, self._listen, self._unlisten
        )
        self.connections = ConnectionHandler(
            listener, options, log, self.releases, self._selector, self._stop
        )

    def run(self) -> None:
        """Serves until a signal or a client stops it and accepted requests are answered."""
        wake, poke = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            # a signal's byte ends select at once; Python would otherwise continue it (PEP 475)
            signal.set_wakeup_fd(poke)
            for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                # only noted here: a handler runs between any two statements of the loop
                signal.signal(name, lambda number, frame: self._signals.append(number))
            self._selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, 4096))
            self.connections.open()
            where = str(self.connections.listener.path)
            # after the socket exists: clients find it through this record
            self._record(ServingRecord(os.getpid(), where))
            if (self.app.folder / "deployment.json").exists():
                self._resume()
            self.releases.check_current()
            looked = 0.0
            while not self._is_finished():
                for key, _ in self._selector.select(_TICK_S):
                    key.data()
                now = time.monotonic()
                if now - looked >= _TICK_S or self._signals:
                    looked = now
                    self._tick(now)
                self._dispatch()
                self.connections.notify_waiting()
        finally:
            signal.set_wakeup_fd(-1)
            self._notifier.notify("STOPPING=1")
            self.releases.end()
            self.connections.close()
            self._record(ServingRecord())
            self._selector.close()
            os.close(wake)
            os.close(poke)

    def _record(self, record: ServingRecord) -> None:
        """Writes serving.json; a full disk does not stop a server."""
        with contextlib.suppress(OSError):
            write_durably(self.app.folder / RECORD, dump(record))

    def _resume(self) -> None:
        """Starts the continuation of an interrupted deployment; logs the result."""
        root = str(self.app.root.folder)
        self._resuming = subprocess.Popen(
            [*self._loader, "resume", "--root", root, "--app", self.app.name],
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
            env=child_environment(),
        )

    # workers

    def _listen(self, worker: Worker) -> None:
        self._selector.register(
            worker.socket, selectors.EVENT_READ, lambda: self._read_worker(worker)
        )

    def _unlisten(self, worker: Worker) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(worker.socket)

    def _read_worker(self, worker: Worker) -> None:
        if worker.socket.fileno() < 0:
            return  # it was closed in the same iteration of the loop
        kind: Type[Any] = Ready if worker.facts is None else RunAnswer
        try:
            data = worker.receive()
            if data is None:
                return
            answer = read_answer(kind, data)
        except (Closed, DeviceError):
            self._handle_lost(worker)
            return
        if worker.facts is None:
            self.releases.handle_loaded(worker, answer)
            return
        request, worker.request = worker.request, None
        error = answer.error if isinstance(answer, FailedAnswer) else None
        if request is not None:
            self.connections.finish(request, frame_message(data), error)
        pool = self.releases.serving
        # a refused request, too: the worker has answered it
        if error is None or is_clients_fault(error.code):
            worker.faults = 0
            # an answer ends a series of crashes: the next worker is replaced without delay
            if pool is not None and worker in pool.workers:
                pool.streak = 0
        else:
            worker.faults += 1
            if worker.faults >= _FAULTS:
                worker.kill(error)
        if worker.retiring:
            self.releases.retire(worker)

    def _handle_lost(self, worker: Worker) -> None:
        """Handles the end of a worker: another worker runs its request once more."""
        self._unlisten(worker)
        worker.close()
        # it may still live: an unreadable answer leads here, too
        worker.process.kill()
        how = worker.wait_for_exit()
        request, worker.request = worker.request, None
        self.releases.handle_exit(worker, how)
        if request is None:
            return
        error = worker.verdict
        # only once more: a request that crashes engines must not end every worker in turn
        if error is None and request.tries < 2 and request.peer.open:
            # the oldest request: it does not queue again
            self.connections.line.appendleft(request)
            return
        error = error or Failure(
            "serve.crashed",
            "the worker ended ({}) while running this request, twice".format(how),
            "{}/{}".format(self.app.name, worker.release),
            "check the server's log",
        )
        self.connections.fail(request, error)

    def _dispatch(self) -> None:
        pool = self.releases.serving
        while pool is not None and self.connections.line:
            worker = pool.idle()
            if worker is None:
                return
            # the worker holds the request, so _handle_lost gives it to another worker
            if not worker.run(self.connections.line.popleft()):
                worker.kill()

    # timeouts, signals and the listening socket

    def _tick(self, now: float) -> None:
        signals, self._signals = self._signals, []
        for number in signals:
            if number == signal.SIGHUP:
                self.releases.check_current(again=True)
            else:
                self._stop()
        if not self.app.folder.is_dir():
            self.log.say("the app was removed, so the server ends")
            self._stop()
        if self._resuming is not None and self._resuming.poll() is not None:
            # poll has reaped the child
            self._resuming = None
        self.connections.tick(now)
        self.releases.tick(now)
        for worker in self.releases.workers:
            late = worker.request is not None and now - worker.since > self.options.timeout_s
            if late and worker.verdict is None:
                message = "the engine did not answer within {:g} s".format(self.options.timeout_s)
                where = "{}/{}".format(self.app.name, worker.release)
                worker.kill(Failure("serve.timeout", message, where, ""))
        self._notify(now)

    def _notify(self, now: float) -> None:
        lines = []
        # also if the release does not load: systemd would otherwise end the server at its start
        # timeout, and with it the clients' error message
        if not self._ready and (self.releases.serving is not None or self.releases.is_settled()):
            self._ready = True
            lines.append("READY=1")
        every = self._notifier.every_s
        if lines or now - self._reported_at >= (every or 10.0):
            self._reported_at = now
            pool = self.releases.serving
            lines.append("STATUS=" + ("no release" if pool is None else pool.release))
            if every is not None:
                lines.append("WATCHDOG=1")
            self._notifier.notify(*lines)

    def _stop(self) -> None:
        if self.stopping is None:
            self.log.say("ending: accepted requests are answered first")
            self.stopping = time.monotonic()
            self.connections.shut()

    def _is_finished(self) -> bool:
        if self.stopping is None:
            return False
        busy = self.connections.line or any(w.request is not None for w in self.releases.workers)
        return not busy or time.monotonic() - self.stopping > _DRAIN_S


class ConnectionHandler:
    """Accepts connections and requests; a request waits in ``line`` until a worker takes it.

    Attributes:
        line: The waiting requests.
        stopping: True if no new requests are accepted.
    """

    def __init__(
        self,
        listener: ListeningSocket,
        options: ServeOptions,
        log: ServerLog,
        releases: ServedReleases,
        selector: selectors.BaseSelector,
        stop: Callable[[], None],
    ) -> None:
        self.listener, self.options, self.log = listener, options, log
        self.app, self.health, self.releases = releases.app, releases.health, releases
        self.line: Deque[ServeRequest] = deque()
        self.peers: Dict[int, Peer] = {}
        self.stopping = False
        self._selector, self._stop = selector, stop
        self._numbers = 0
        self._taking = False

    def open(self) -> None:
        """Begins to accept connections."""
        self._watch_listener(True)

    def shut(self) -> None:
        """Stops accepting connections and requests."""
        self.stopping = True
        self._watch_listener(False)
        self.listener.close()

    def close(self) -> None:
        """Closes every connection; waiting clients get an error with the reason."""
        error = DeviceError("the server has ended", code="serve.stopping", where=self.app.name)
        for peer in list(self.peers.values()):
            if peer.busy:
                with contextlib.suppress(Closed):
                    peer.refuse(error)
            peer.close()

    def tick(self, now: float) -> None:
        """Checks the listening socket, and ends requests and clients that have waited too long."""
        if not self.stopping and not self.listener.exists():
            self.log.say("the socket's file was removed: creating it again")
            self._watch_listener(False)
            self.listener.open()
            self.open()
        # also after accept failed, for example because no descriptors were left
        if not self.stopping and self._make_room(now):
            self._watch_listener(True)
        # a copy: ``fail`` may take the client's next request, which changes the line
        for request in [waiting for waiting in self.line if waiting.until <= now]:
            self.line.remove(request)
            message = "no worker was free in time"
            self.fail(request, Failure("serve.timeout", message, "", "check its status"))
        for peer in list(self.peers.values()):
            # an incomplete message holds one of the places for clients
            if peer.since is not None and now - peer.since > _STALL_S:
                self._remove_peer(peer)

    def fail(self, request: ServeRequest, error: Failure) -> None:
        """Answers a request with an error."""
        self.finish(request, pack(FailedAnswer(error)), error)

    def finish(self, request: ServeRequest, data: bytes, error: Optional[Failure]) -> None:
        """Answers a request; ``error`` is the answer's error, for the counters."""
        request.close()
        peer = request.peer
        peer.request = None
        self.health.count_answer(time.monotonic() - request.arrived, error)
        if not peer.open:
            return
        try:
            peer.answer(data)
            self._handle_next(peer)
        except Closed:
            self._remove_peer(peer)

    def notify_waiting(self) -> None:
        """Answers clients that wait for a reload, once its result is known."""
        waiting = [peer for peer in self.peers.values() if peer.waits]
        if not waiting or not self.releases.is_settled():
            return
        wanted, failed = self.app.link("current"), self.releases.failed
        answer: Any = StatusAnswer(self.status())
        if failed is not None and failed[0] == wanted:
            answer = FailedAnswer(failed[1])
        for peer in waiting:
            peer.waits = False
            try:
                peer.say(answer)
                self._handle_next(peer)
            except Closed:
                self._remove_peer(peer)

    def _watch_listener(self, accepting: bool) -> None:
        """Accepts connections (``accepting``), or leaves them in the kernel's queue."""
        if accepting and not self._taking:
            self._selector.register(self.listener.socket, selectors.EVENT_READ, self._accept)
        elif self._taking and not accepting:
            self._selector.unregister(self.listener.socket)
        self._taking = accepting

    def _make_room(self, now: float) -> bool:
        """Returns True if another client may connect; closes the longest idle client if others
        wait.
        """
        if len(self.peers) < _MOST_CLIENTS:
            return True
        if not self.listener.has_waiting():
            return False
        # clients reconnect by themselves, so an idle one loses only time
        idle = [peer for peer in self.peers.values() if peer.is_idle(now, _IDLE_S)]
        if not idle:
            return False
        self._remove_peer(min(idle, key=lambda peer: peer.answered_at))
        return True

    def _accept(self) -> None:
        if not self._make_room(time.monotonic()):
            self._watch_listener(False)
            return
        taken = self.listener.accept()
        if taken is None:
            self._watch_listener(False)  # descriptors may be exhausted; a tick tries again
            return
        self._numbers += 1
        peer = Peer(self._numbers, taken)
        # in addition to the mode of the socket's file, which somebody may have changed
        if peer.uid not in (0, os.geteuid()):
            refusal = DeviceError("only the server's own account may use it", code="serve.refused")
            self.log.say(
                "rejected process {} of account {}: {}".format(peer.pid, peer.uid, refusal.message)
            )
            with contextlib.suppress(Closed):
                peer.refuse(refusal)
            peer.close()
            return
        self.peers[peer.number] = peer
        self._selector.register(peer.socket, selectors.EVENT_READ, lambda: self._read(peer))

    def _read(self, peer: Peer) -> None:
        if not peer.open:
            return
        try:
            peer.reader.receive(peer.socket)
            self._handle_next(peer)
        except BlockingIOError:
            return
        except Closed:
            self._remove_peer(peer)

    def _handle_next(self, peer: Peer) -> None:
        """Takes the client's next message once its last request is answered."""
        # one request at a time: later messages stay in its buffer and then in the kernel's
        while peer.open and not peer.busy:
            message = peer.reader.take()
            if message is None:
                break
            try:
                self._handle_message(peer, message)
            except DeviceError as error:
                if is_clients_fault(error.code):
                    self.health.refused += 1
                peer.refuse(error)
        peer.reader.check()
        if not peer.busy and peer.reader.received_bytes:
            peer.since = peer.since or time.monotonic()
        else:
            peer.since = None
        # bounds the memory that a client can take by sending without reading
        if peer.reader.received_bytes > 2 * MAX_HEAD:
            raise Closed("it sends without reading answers")

    def _handle_message(self, peer: Peer, data: bytes) -> None:
        document = parse_head(data)
        if isinstance(document, dict) and document.get("op") == "run":
            now, memory = time.monotonic(), peer.reader.claim()
            if memory is None:
                raise DeviceError("the request came without memory", code="serve.memory")
            # made before the head is read: from here on its ``close`` closes the descriptor
            request = ServeRequest(peer, data, memory, now, now)
            try:
                within_s = read_request(RunRequest, document).within_s
                self._handle_run(request, within_s or self.options.timeout_s)
            except DeviceError:
                request.close()
                raise
            return
        head = read_request(Request, document)
        if head.op == "reload":
            self.releases.check_current(again=True)
            peer.waits = True
        elif head.op == "stop":
            self._stop()
            peer.say(StopAnswer(os.getpid()))
        elif head.op == "status":
            peer.say(StatusAnswer(self.status()))
        else:
            pool = self.releases.serving
            facts = None if pool is None else pool.facts
            if pool is None or facts is None:
                raise self._not_ready()
            peer.say(
                Description(pool.release, facts.digest, facts.inputs, facts.outputs, facts.variants)
            )

    def _handle_run(self, request: ServeRequest, within_s: float) -> None:
        peer = request.peer
        if not peer.known:
            peer.known = True
            self.log.say("client {}: process {} of {}".format(peer.number, peer.pid, peer.uid))
        if self.stopping:
            raise DeviceError("the server is ending", code="serve.stopping")
        # while the first release loads, requests wait in the line
        if self.releases.serving is None and self.releases.loading is None:
            raise self._not_ready()
        if len(self.line) >= self.options.queue:
            raise DeviceError(
                "{} requests are already waiting".format(len(self.line)),
                code="serve.busy",
                hint="ask again later, or start it with more --workers or a longer --queue",
            )
        request.until = request.arrived + within_s
        peer.request = request
        self.line.append(request)

    def _remove_peer(self, peer: Peer) -> None:
        if not peer.open:
            return
        self._selector.unregister(peer.socket)
        request = peer.request
        if request is not None and request in self.line:
            self.line.remove(request)
        if request is not None:
            request.close()  # a worker that runs it has its own descriptor
        for worker in self.releases.workers:
            worker.forget(peer.number)
        del self.peers[peer.number]
        peer.close()
        if not self.stopping:
            self._watch_listener(True)

    def status(self) -> ServingStatus:
        """Returns the server's status."""
        health, serving, loading = self.health, self.releases.serving, self.releases.loading
        facts = None if serving is None else serving.facts
        return ServingStatus(
            app=self.app.name,
            release=None if serving is None else serving.release,
            digest=None if facts is None else facts.digest,
            pid=os.getpid(),
            workers=tuple(w.process.pid for w in ([] if serving is None else serving.workers)),
            socket=str(self.listener.path),
            uptime_s=health.uptime_s,
            requests=health.requests,
            errors=health.errors,
            refused=health.refused,
            restarts=health.restarts,
            running=sum(worker.request is not None for worker in self.releases.workers),
            queue=len(self.line),
            queue_most=self.options.queue,
            clients=len(self.peers),
            latency_ms=health.latency(),
            loading=None if loading is None else loading.release,
            last_error=health.last_error,
            stopping=self.stopping,
        )

    def _not_ready(self) -> DeviceError:
        """Returns the error that no release serves, with the reason."""
        failed = self.releases.failed
        why = "it has no current release" if failed is None else failed[1].message
        if self.releases.loading is not None or self.releases.serving is not None:
            why = "it is loading"
        return DeviceError(
            "no release is loaded: {}".format(why),
            code="serve.not-ready",
            where=self.app.name,
            hint="check its status",
        )


class ListeningSocket:
    """A listening Unix stream socket at ``path``, mode 0600."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket: socket.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._facts: Optional[os.stat_result] = None

    def open(self) -> None:
        """Creates the socket; replaces a socket that a dead server left.

        Raises:
            DeviceError: "serve.socket" if another kind of file has its path, "board.*".
        """
        self.socket.close()
        with map_os_errors(str(self.path)):
            if self.path.exists() and not stat.S_ISSOCK(os.stat(str(self.path)).st_mode):
                raise DeviceError(
                    "another file that is not a socket is here",
                    code="serve.socket",
                    where=str(self.path),
                    hint="give another --socket",
                )
            # bound under a temporary name, made private, then renamed: clients find it complete
            temporary = self.path.with_name(".{}.{}".format(self.path.name[:32], os.getpid()))
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.setblocking(False)
            name, folder = short_path(temporary)
            # bind makes the file with the umask: at no time may another account connect
            before = os.umask(0o177)
            try:
                self.socket.bind(name)
            finally:
                os.umask(before)
                if folder is not None:
                    os.close(folder)
            self.socket.listen(_BACKLOG)
            # the inode, which a rename keeps: ``exists`` recognises a file that replaced this one
            self._facts = os.stat(str(temporary))
            os.replace(str(temporary), str(self.path))

    def exists(self) -> bool:
        """Returns True if the file still exists and is this socket's."""
        try:
            return self._facts is not None and os.path.samestat(
                os.stat(str(self.path)), self._facts
            )
        except OSError:
            return False

    def has_waiting(self) -> bool:
        """Returns True if a connection waits."""
        waiting = select.poll()
        waiting.register(self.socket, select.POLLIN)
        return bool(waiting.poll(0))

    def accept(self) -> Optional[socket.socket]:
        """Returns the next connection; None if it has disappeared."""
        try:
            peer, _ = self.socket.accept()
        except OSError:
            return None
        peer.setblocking(False)
        return peer

    def close(self) -> None:
        """Stops accepting connections; removes the file if it is this socket's."""
        if self.exists():
            with contextlib.suppress(OSError):
                self.path.unlink()
        self.socket.close()


class ServerLog:
    """Writes lines with the time, except to a journal, which adds its own."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._stamped = "JOURNAL_STREAM" not in os.environ

    def say(self, text: str) -> None:
        """Writes a line."""
        stamp = timestamp() + " " if self._stamped else ""
        # parts of the text come from requests, and terminals show journals
        line = "".join(
            char if char.isprintable() else "\\u{:04x}".format(ord(char))
            for char in " ".join(text.splitlines())
        )
        with contextlib.suppress(OSError, ValueError):
            facts = os.fstat(2)
            if stat.S_ISREG(facts.st_mode) and facts.st_size > _MOST_LOG:
                # opened with O_APPEND, so the next line goes to the start
                os.ftruncate(2, 0)
            print("{}serve {}: {}".format(stamp, self._app, line), file=sys.stderr, flush=True)


class Notifier:
    """Sends notices to systemd if it started the server.

    Attributes:
        every_s: How often the watchdog expects "WATCHDOG=1"; None without a watchdog.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._path = environment.get("NOTIFY_SOCKET", "")
        self.every_s: Optional[float] = None
        interval = environment.get("WATCHDOG_USEC", "")
        meant = environment.get("WATCHDOG_PID", "")
        # microseconds; sd_watchdog_enabled(3) recommends half of the time
        if interval.isdigit() and int(interval) and (not meant or meant == str(os.getpid())):
            self.every_s = int(interval) / 1e6 / 2

    def notify(self, *lines: str) -> None:
        """Sends ``lines`` ("READY=1", "STATUS=...") as one datagram."""
        if self._path[:1] not in ("/", "@"):
            return
        name = os.fsencode(self._path)
        if name.startswith(b"@"):
            # "@" is systemd's way to write an abstract socket's leading zero byte (sd_notify(3))
            name = b"\0" + name[1:]
        with contextlib.suppress(OSError):
            sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            with sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode("utf-8"), name)
