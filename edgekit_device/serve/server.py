"""The server: one loop over its listening socket, its clients, its workers and signals; what it
answers, its log, and how it notifies systemd that it is ready.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.serve.messages import MAX_HEAD, VERSION, Closed, pack, reach, read_head
from edgekit_device.serve.pool import Peer, RequestQueue, ServeOptions, ServeRequest, Worker
from edgekit_device.serve.releases import (
    CrashRollback,
    ServedReleases,
    ServerCounters,
    ServerRecord,
    is_clients_fault,
)
from edgekit_device.store.root import App

# The server: one loop over its clients, its workers and the signals that it gets.
#
# It never reads a tensor and never waits for anybody: what can hang or crash is a worker's.


_TICK_S = 0.2
_DRAIN_S = 30.0
_FAULTS = 3  # in a row: an engine whose device is lost fails for ever
_STALL_S = 10.0  # a message that begins is whole by then
_MOST_CLIENTS = 256
_MOST_WITHIN_S = 3600.0

_BACKLOG = 128

_MOST = 4 << 20


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
        self.app, self.options, self.log = app, options, log
        self.health, self.record = ServerCounters(), ServerRecord(app)
        self.stopping: Optional[float] = None
        self._selector = selectors.DefaultSelector()
        self._notifier = Notifier(os.environ)
        self._reported_at, self._ready = 0.0, False
        self._signals: List[int] = []
        self.rescue = CrashRollback(app, self.health, self.record, log.say, loader)
        self.releases = ServedReleases(
            app, options.workers, options.threads, self.health, self.record,
            self._listen, self._unlisten, log.say, self.rescue,
        )  # fmt: skip
        self.connections = ConnectionHandler(
            app, listener, options, log, self.health, self.releases, self._selector, self._stop
        )

    def run(self) -> None:
        """Serves until a signal or a client says stop, and what was taken is answered."""
        wake, poke = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            signal.set_wakeup_fd(poke)
            for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(name, lambda number, frame: self._signals.append(number))
            self._selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, 4096))
            self.connections.open()
            self.record.write(
                pid=os.getpid(), socket=str(self.connections.listener.path), release=None
            )
            if (self.app.folder / "deployment.json").exists():
                self.rescue.command("resume")
            self.releases.look()
            looked = 0.0
            while not self._ended():
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
            self.record.write(pid=None, release=None)
            self._selector.close()
            os.close(wake)
            os.close(poke)

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
            return  # let go in the same turn of the loop
        try:
            data = worker.receive()
            if data is None:
                return
            answer = read_head(data)
        except (Closed, DeviceError):
            self._lose(worker)
            return
        if worker.facts is None:
            self.releases.loaded(worker, answer)
            return
        request, worker.request = worker.request, None
        error = answer.get("error")
        if request is not None:
            self.connections.finish(request, pack(answer), error)
        pool = self.releases.serving
        if error is None or is_clients_fault(str(error.get("code", ""))):
            worker.faults = 0
            if pool is not None and worker in pool.workers:
                pool.streak = 0
        else:
            worker.faults += 1
            if worker.faults >= _FAULTS:
                worker.kill(error)
        if worker.retiring:
            self.releases.retire(worker)

    def _lose(self, worker: Worker) -> None:
        """A worker has gone: its request is run once more, elsewhere."""
        self._unlisten(worker)
        worker.close()
        worker.process.kill()
        how = worker.ending()
        request, worker.request = worker.request, None
        self.releases.gone(worker, how)
        if request is None:
            return
        error = worker.verdict
        if error is None and request.tries < 2 and request.peer.open:
            self.connections.line.add_first(request)
            return
        if error is None:
            error = {
                "code": "serve.crashed",
                "message": "the worker ended ({}) while it ran this, twice".format(how),
                "where": "{}/{}".format(self.app.name, worker.release),
                "hint": "look at the server's log",
            }
        self.connections.finish(request, pack({"edgekit": VERSION, "error": error}), error)

    def _dispatch(self) -> None:
        pool = self.releases.serving
        while pool is not None and len(self.connections.line):
            worker = pool.idle()
            request = None if worker is None else self.connections.line.take()
            if worker is None or request is None:
                return
            if not worker.run(request):
                worker.kill()

    # timeouts, signals and the listening socket

    def _tick(self, now: float) -> None:
        signals, self._signals = self._signals, []
        for number in signals:
            if number == signal.SIGHUP:
                self.releases.look(again=True)
            else:
                self._stop()
        if not self.app.folder.is_dir():
            self.log.say("the app is gone, so the server ends")
            self._stop()
        self.connections.tick(now)
        self.releases.tick(now)
        for worker in self.releases.workers:
            late = worker.request is not None and now - worker.since > self.options.timeout_s
            if late and worker.verdict is None:
                error = DeviceError(
                    "the engine did not answer in {:g} s".format(self.options.timeout_s),
                    code="serve.timeout",
                    where="{}/{}".format(self.app.name, worker.release),
                )
                worker.kill(_fields(error))
        self._notify(now)

    def _notify(self, now: float) -> None:
        lines = []
        if not self._ready and (self.releases.serving is not None or self.releases.settled()):
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
            self.log.say("ending: what was taken is answered first")
            self.stopping = time.monotonic()
            self.connections.shut()

    def _ended(self) -> bool:
        if self.stopping is None:
            return False
        busy = len(self.connections.line) or any(
            w.request is not None for w in self.releases.workers
        )
        return not busy or time.monotonic() - self.stopping > _DRAIN_S


def _fields(error: DeviceError) -> Dict[str, str]:
    fields: Dict[str, str] = error.to_json()["error"]
    return fields


class ConnectionHandler:
    """Takes connections and requests; a request waits in ``line`` until a worker has it.

    Attributes:
        line: What waits.
        stopping: Whether nothing new is taken.
    """

    def __init__(
        self,
        app: App,
        listener: ListeningSocket,
        options: ServeOptions,
        log: ServerLog,
        health: ServerCounters,
        releases: ServedReleases,
        selector: selectors.BaseSelector,
        stop: Callable[[], None],
    ) -> None:
        self.app, self.listener, self.options, self.log = app, listener, options, log
        self.health, self.releases = health, releases
        self.line = RequestQueue(options.queue)
        self.peers: Dict[int, Peer] = {}
        self.stopping = False
        self._selector, self._stop = selector, stop
        self._numbers = 0

    def open(self) -> None:
        """Begins to take connections."""
        self._selector.register(self.listener.socket, selectors.EVENT_READ, self._enter)

    def shut(self) -> None:
        """Takes no more connections and requests."""
        self.stopping = True
        self._selector.unregister(self.listener.socket)
        self.listener.close()

    def close(self) -> None:
        """Ends every connection; clients that still wait get an error that says why."""
        error = DeviceError("the server has ended", code="serve.stopping", where=self.app.name)
        for peer in list(self.peers.values()):
            if peer.busy:
                with contextlib.suppress(Closed):
                    peer.say(dict(error.to_json(), edgekit=VERSION))
            peer.close()

    def tick(self, now: float) -> None:
        """Checks the listening socket, and ends requests and clients that wait for too long."""
        if not self.stopping and not self.listener.stands():
            self.log.say("the socket's file was removed: it is made again")
            self._selector.unregister(self.listener.socket)
            self.listener.open()
            self.open()
        for request in self.line.overdue(now):
            error = DeviceError(
                "no worker was free in time", code="serve.timeout", hint="ask its status"
            ).to_json()
            self.finish(request, pack(dict(error, edgekit=VERSION)), error["error"])
        for peer in list(self.peers.values()):
            if peer.since is not None and now - peer.since > _STALL_S:
                self._leave(peer)

    def finish(
        self, request: ServeRequest, data: bytes, error: Optional[Mapping[str, Any]] = None
    ) -> None:
        """Answers a request; ``error`` is the answer's, for the counters."""
        request.close()
        peer = request.peer
        peer.request = None
        self.health.answered(time.monotonic() - request.arrived, error)
        if not peer.open:
            return
        try:
            peer.answer(data)
            self._next(peer)
        except Closed:
            self._leave(peer)

    def notify_waiting(self) -> None:
        """Answers those that wait for a reload, once it is known how that ended."""
        waiting = [peer for peer in self.peers.values() if peer.waits]
        if not waiting or not self.releases.settled():
            return
        wanted, failed = self.app.link("current"), self.releases.failed
        answer: Dict[str, Any] = {"serving": server_status(self)}
        if failed is not None and failed[0] == wanted:
            answer = {"error": failed[1]}
        for peer in waiting:
            peer.waits = False
            try:
                peer.say(dict(answer, edgekit=VERSION))
                self._next(peer)
            except Closed:
                self._leave(peer)

    def _enter(self) -> None:
        taken = self.listener.accept()
        if taken is None:
            return
        self._numbers += 1
        peer = Peer(self._numbers, taken)
        refusal = None
        if peer.uid not in (0, os.geteuid()):
            refusal = DeviceError("only the server's own account may use it", code="serve.refused")
        elif len(self.peers) >= _MOST_CLIENTS:
            refusal = DeviceError("too many clients are connected", code="serve.busy")
        if refusal is not None:
            self.log.say(
                "turned away process {} of account {}: {}".format(
                    peer.pid, peer.uid, refusal.message
                )
            )
            with contextlib.suppress(Closed):
                peer.say(dict(refusal.to_json(), edgekit=VERSION))
            peer.close()
            return
        self.peers[peer.number] = peer
        self._selector.register(peer.socket, selectors.EVENT_READ, lambda: self._read(peer))

    def _read(self, peer: Peer) -> None:
        if not peer.open:
            return
        try:
            peer.reader.receive(peer.socket)
            self._next(peer)
        except BlockingIOError:
            return
        except Closed:
            self._leave(peer)

    def _next(self, peer: Peer) -> None:
        """Takes the client's next message when it has been answered."""
        while peer.open and not peer.busy:
            message = peer.reader.take()
            if message is None:
                break
            try:
                self._take(peer, read_head(message), message)
            except DeviceError as error:
                self._refuse(peer, error)
        peer.reader.check()
        if not peer.busy and peer.reader.begun:
            peer.since = peer.since or time.monotonic()
        else:
            peer.since = None
        if peer.reader.held > 2 * MAX_HEAD:
            raise Closed("it sends without waiting for answers")

    def _take(self, peer: Peer, head: Dict[str, Any], data: bytes) -> None:
        known: Dict[str, Callable[[], Dict[str, Any]]] = {
            "status": lambda: {"serving": server_status(self)},
            "describe": lambda: describe_serving(self.releases),
        }
        op = head.get("op")
        if op == "run":
            now, memory = time.monotonic(), peer.reader.claim()
            if memory is None:
                raise DeviceError("no memory came with the request", code="serve.memory")
            request = ServeRequest(peer, data, memory, now, now)
            try:
                self._take_run(request, head)
            except DeviceError:
                request.close()
                raise
        elif op == "reload":
            self.releases.look(again=True)
            peer.waits = True
        elif op == "stop":
            self._stop()
            peer.say({"edgekit": VERSION, "pid": os.getpid()})
        elif isinstance(op, str) and op in known:
            peer.say(dict(known[op](), edgekit=VERSION))
        else:
            raise DeviceError("no such request", code="serve.protocol", where=str(op)[:40])

    def _take_run(self, request: ServeRequest, head: Dict[str, Any]) -> None:
        peer = request.peer
        if not peer.known:
            peer.known = True
            self.log.say("client {}: process {} of {}".format(peer.number, peer.pid, peer.uid))
        within = head.get("within_s", self.options.timeout_s)
        if type(within) not in (int, float) or not 0 < within <= _MOST_WITHIN_S:
            raise DeviceError(
                "within_s is not within 0 to {:g}".format(_MOST_WITHIN_S), code="serve.protocol"
            )
        if self.stopping:
            raise DeviceError("the server is about to end", code="serve.stopping")
        if self.releases.serving is None and self.releases.loading is None:
            raise not_ready(self.releases)
        if self.line.full:
            raise DeviceError(
                "{} requests wait already".format(len(self.line)),
                code="serve.busy",
                hint="ask later, or start it with more --workers or a longer --queue",
            )
        request.until = request.arrived + within
        peer.request = request
        self.line.add(request)

    def _refuse(self, peer: Peer, error: DeviceError) -> None:
        if is_clients_fault(error.code):
            self.health.refused += 1
        peer.say(dict(error.to_json(), edgekit=VERSION))

    def _leave(self, peer: Peer) -> None:
        if not peer.open:
            return
        self._selector.unregister(peer.socket)
        self.line.drop(peer)
        request = peer.request
        if request is not None and all(w.request is not request for w in self.releases.workers):
            request.close()
        for worker in self.releases.workers:
            worker.forget(peer.number)
        del self.peers[peer.number]
        peer.close()


def describe_serving(releases: ServedReleases) -> Dict[str, Any]:
    """What serves, as ``describe`` answers it.

    Raises:
        DeviceError: "serve.not-ready".
    """
    pool = releases.serving
    facts = None if pool is None else pool.facts
    if pool is None or facts is None:
        raise not_ready(releases)
    return {
        "release": pool.release,
        "digest": facts["digest"],
        "inputs": facts["inputs"],
        "outputs": facts["outputs"],
    }


def not_ready(releases: ServedReleases) -> DeviceError:
    """Why nothing serves."""
    failed = releases.failed
    why = "it has no current release" if failed is None else failed[1].get("message", "")
    if releases.loading is not None or releases.serving is not None:
        why = "it loads"
    return DeviceError(
        "no release is loaded: {}".format(why),
        code="serve.not-ready",
        where=releases.app.name,
        hint="ask its status",
    )


def server_status(connections: ConnectionHandler) -> Dict[str, Any]:
    """An ``edgekit.serving/1``."""
    serving, loading = connections.releases.serving, connections.releases.loading
    facts = (serving.facts if serving is not None else None) or {}
    return dict(
        connections.health.to_json(),
        schema="edgekit.serving/1",
        app=connections.app.name,
        release=None if serving is None else serving.release,
        digest=facts.get("digest"),
        pid=os.getpid(),
        workers=[] if serving is None else [w.process.pid for w in serving.workers],
        socket=str(connections.listener.path),
        clients=len(connections.peers),
        running=sum(worker.request is not None for worker in connections.releases.workers),
        queue=len(connections.line),
        queue_most=connections.line.most,
        loading=None if loading is None else loading.release,
        stopping=connections.stopping,
    )


class ListeningSocket:
    """A listening Unix stream socket at ``path``, mode 0600."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket: socket.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._facts: Optional[os.stat_result] = None

    def open(self) -> None:
        """Makes the socket; takes the place of one that a dead server left.

        Raises:
            DeviceError: "serve.socket" when something else lies there, "board.*".
        """
        self.socket.close()
        with map_os_errors(str(self.path)):
            if self.path.exists() and not stat.S_ISSOCK(os.stat(str(self.path)).st_mode):
                raise DeviceError(
                    "something that is no socket lies here",
                    code="serve.socket",
                    where=str(self.path),
                    hint="name another --socket",
                )
            # bound under a temporary name, made private, then renamed: no client finds it half made
            temporary = self.path.with_name(".{}.{}".format(self.path.name[:32], os.getpid()))
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.setblocking(False)
            name, folder = reach(temporary)
            before = os.umask(0o177)
            try:
                self.socket.bind(name)
            finally:
                os.umask(before)
                if folder is not None:
                    os.close(folder)
            self.socket.listen(_BACKLOG)
            self._facts = os.stat(str(temporary))
            os.replace(str(temporary), str(self.path))

    def stands(self) -> bool:
        """Whether the file is there still, and is this socket's."""
        try:
            return self._facts is not None and os.path.samestat(
                os.stat(str(self.path)), self._facts
            )
        except OSError:
            return False

    def accept(self) -> Optional[socket.socket]:
        """The next connection; None when there is none after all."""
        try:
            peer, _ = self.socket.accept()
        except OSError:
            return None
        peer.setblocking(False)
        return peer

    def close(self) -> None:
        """Takes no connections any more; removes the file if it is this socket's."""
        if self.stands():
            with contextlib.suppress(OSError):
                self.path.unlink()
        self.socket.close()


class ServerLog:
    """Writes lines with the time; a journal adds its own."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._stamped = "JOURNAL_STREAM" not in os.environ

    def say(self, text: str) -> None:
        """Writes one line."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()) if self._stamped else ""
        # requests bring some of it, and terminals show journals
        line = "".join(
            char if char.isprintable() else "\\u{:04x}".format(ord(char))
            for char in " ".join(text.splitlines())
        )
        with contextlib.suppress(OSError, ValueError):
            facts = os.fstat(2)
            if stat.S_ISREG(facts.st_mode) and facts.st_size > _MOST:
                os.ftruncate(2, 0)
            print("{}serve {}: {}".format(stamp, self._app, line), file=sys.stderr, flush=True)


class Notifier:
    """Speaks to systemd where it listens; silent elsewhere.

    Attributes:
        every_s: How often the watchdog expects "WATCHDOG=1"; None without a watchdog.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._path = environment.get("NOTIFY_SOCKET", "")
        self.every_s: Optional[float] = None
        interval = environment.get("WATCHDOG_USEC", "")
        meant = environment.get("WATCHDOG_PID", "")
        if interval.isdigit() and int(interval) and (not meant or meant == str(os.getpid())):
            self.every_s = int(interval) / 1e6 / 2

    def notify(self, *lines: str) -> None:
        """Sends ``lines`` ("READY=1", "STATUS=...") as one datagram."""
        if self._path[:1] not in ("/", "@"):
            return
        name = os.fsencode(self._path)
        if name.startswith(b"@"):
            name = b"\0" + name[1:]
        with contextlib.suppress(OSError):
            sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            with sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode("utf-8"), name)
