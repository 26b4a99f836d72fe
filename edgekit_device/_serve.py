"""The server: one loop over its clients, its workers and the signals that it gets.

It never reads a tensor and never waits for anybody: what can hang or crash is a worker's.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional

from ._errors import DeviceError
from ._notify import Notifier
from ._root import App
from ._serve_crew import Worker
from ._serve_door import Door
from ._serve_health import Health, Record, is_clients_fault
from ._serve_line import Line, Peer, Request
from ._serve_log import Log
from ._serve_releases import Releases
from ._serve_wire import MAX_HEAD, VERSION, Closed, pack, read_head

__all__ = ["Options", "Server"]

_TICK_S = 0.2
_STALL_S = 10.0  # a message that begins is whole by then
_DRAIN_S = 30.0
_MOST_CLIENTS = 256
_FAULTS = 3  # in a row: an engine whose device is lost fails for ever
_MOST_WITHIN_S = 3600.0


@dataclass(frozen=True)
class Options:
    """How a server serves: ``timeout_s`` bounds a request's wait, and then its run."""

    workers: int = 1
    queue: int = 64
    timeout_s: float = 30.0
    threads: int = 0


class Server:
    """Serves one app until it is told to end."""

    def __init__(self, app: App, door: Door, options: Options, log: Log, loader: List[str]) -> None:
        self.app, self.door, self.options, self.log = app, door, options, log
        self.health, self.record = Health(), Record(app)
        self.line = Line(options.queue)
        self.peers: Dict[int, Peer] = {}
        self.stopping: Optional[float] = None
        self._selector = selectors.DefaultSelector()
        self._notifier = Notifier(os.environ)
        self._told_at, self._ready = 0.0, False
        self._numbers = 0
        self._signals: List[int] = []
        self.releases = Releases(
            app, options.workers, options.threads, self.health, self.record,
            self._listen, self._unlisten, log.say, loader,
        )  # fmt: skip

    def run(self) -> None:
        """Serves until a signal or a client says stop, and what was taken is answered."""
        wake, poke = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            signal.set_wakeup_fd(poke)
            for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(name, lambda number, frame: self._signals.append(number))
            self._selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, 4096))
            self._watch_door()
            self.record.write(pid=os.getpid(), socket=str(self.door.path), release=None)
            if (self.app.folder / "deployment.json").exists():
                self.releases.command("resume")
            self.releases.look()
            looked = 0.0
            while not self._ended():
                for key, _ in self._selector.select(_TICK_S):
                    key.data()
                now = time.monotonic()
                if now - looked >= _TICK_S or self._signals:
                    looked = now
                    self._tick(now)
                self._dispatch(now)
                self._tell_waiting()
        finally:
            signal.set_wakeup_fd(-1)
            self._notifier.tell("STOPPING=1")
            self.releases.end()
            for peer in list(self.peers.values()):
                peer.close()
            self.record.write(pid=None, release=None)
            self._selector.close()
            os.close(wake)
            os.close(poke)

    def status(self) -> Dict[str, Any]:
        """An ``edgekit.serving/1``."""
        serving, loading = self.releases.serving, self.releases.loading
        facts = (serving.facts if serving is not None else None) or {}
        return dict(
            self.health.to_json(),
            schema="edgekit.serving/1",
            app=self.app.name,
            release=None if serving is None else serving.release,
            digest=facts.get("digest"),
            pid=os.getpid(),
            workers=[] if serving is None else [w.process.pid for w in serving.workers],
            socket=str(self.door.path),
            clients=len(self.peers),
            queue=len(self.line),
            queue_most=self.line.most,
            loading=None if loading is None else loading.release,
            stopping=self.stopping is not None,
        )

    # clients

    def _enter(self) -> None:
        taken = self.door.accept()
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
        self._selector.register(peer.socket, selectors.EVENT_READ, lambda: self._hear(peer))

    def _hear(self, peer: Peer) -> None:
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
            data, descriptors = message
            request = Request(peer, data, descriptors, time.monotonic(), 0.0)
            try:
                self._take(peer, read_head(data), request)
            except DeviceError as error:
                request.close()
                self._refuse(peer, error)
        if not peer.busy and peer.reader.begun:
            peer.since = peer.since or time.monotonic()
        else:
            peer.since = None
        if peer.reader.held > 2 * MAX_HEAD:
            raise Closed("it sends without waiting for answers")

    def _take(self, peer: Peer, head: Dict[str, Any], request: Request) -> None:
        known: Dict[str, Callable[[], Dict[str, Any]]] = {
            "status": lambda: {"serving": self.status()},
            "describe": self._describe,
        }
        op = head.get("op")
        if op == "run":
            self._take_run(peer, head, request)
            return
        request.close()
        if op == "reload":
            self.releases.look(again=True)
            peer.waits = True
        elif op == "stop":
            self._stop()
            peer.say({"edgekit": VERSION, "pid": os.getpid()})
        elif isinstance(op, str) and op in known:
            peer.say(dict(known[op](), edgekit=VERSION))
        else:
            raise DeviceError("no such request", code="serve.protocol", where=str(op)[:40])

    def _take_run(self, peer: Peer, head: Dict[str, Any], request: Request) -> None:
        if not peer.known:
            peer.known = True
            self.log.say("client {}: process {} of {}".format(peer.number, peer.pid, peer.uid))
        within = head.get("within_s", self.options.timeout_s)
        if type(within) not in (int, float) or not 0 < within <= _MOST_WITHIN_S:
            raise DeviceError(
                "within_s is not within 0 to {:g}".format(_MOST_WITHIN_S), code="serve.protocol"
            )
        if self.stopping is not None:
            raise DeviceError("the server is about to end", code="serve.stopping")
        if self.releases.serving is None and self.releases.loading is None:
            raise self._not_ready()
        if self.line.full:
            raise DeviceError(
                "{} requests wait already".format(len(self.line)),
                code="serve.busy",
                hint="ask later, or start it with more --workers or a longer --queue",
            )
        request.until = request.arrived + within
        peer.request = request
        self.line.add(request)

    def _describe(self) -> Dict[str, Any]:
        crew = self.releases.serving
        facts = None if crew is None else crew.facts
        if crew is None or facts is None:
            raise self._not_ready()
        return {
            "release": crew.release,
            "digest": facts["digest"],
            "inputs": facts["inputs"],
            "outputs": facts["outputs"],
        }

    def _not_ready(self) -> DeviceError:
        failed = self.releases.failed
        why = "it has no current release" if failed is None else failed[1].get("message", "")
        if self.releases.loading is not None or self.releases.serving is not None:
            why = "it loads"
        return DeviceError(
            "no release is loaded: {}".format(why),
            code="serve.not-ready",
            where=self.app.name,
            hint="ask its status",
        )

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

    # workers

    def _listen(self, worker: Worker) -> None:
        self._selector.register(
            worker.socket, selectors.EVENT_READ, lambda: self._hear_worker(worker)
        )

    def _unlisten(self, worker: Worker) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(worker.socket)

    def _hear_worker(self, worker: Worker) -> None:
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
            self._finish(request, pack(answer), error)
        crew = self.releases.serving
        if error is None or is_clients_fault(str(error.get("code", ""))):
            worker.faults = 0
            if crew is not None and worker in crew.workers:
                crew.streak = 0
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
        told = worker.verdict
        if told is None and request.tries < 2 and request.peer.open:
            self.line.add_first(request)
            return
        if told is None:
            told = {
                "code": "serve.crashed",
                "message": "the worker ended ({}) while it ran this, twice".format(how),
                "where": "{}/{}".format(self.app.name, worker.release),
                "hint": "look at the server's log",
            }
        self._finish(request, pack({"edgekit": VERSION, "error": told}), told)

    def _finish(
        self, request: Request, data: bytes, error: Optional[Mapping[str, Any]] = None
    ) -> None:
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

    def _dispatch(self, now: float) -> None:
        crew = self.releases.serving
        while crew is not None and len(self.line):
            worker = crew.idle()
            request = None if worker is None else self.line.take()
            if worker is None or request is None:
                return
            if not worker.run(request):
                worker.kill()

    # time, signals and the door

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
        elif self.stopping is None and not self.door.stands():
            self.log.say("the socket's file was removed: it is made again")
            self._selector.unregister(self.door.socket)
            self.door.open()
            self._watch_door()
        self.releases.tick(now, _TICK_S)
        for request in self.line.overdue(now):
            told = DeviceError(
                "no worker was free in time", code="serve.timeout", hint="ask its status"
            )
            self._finish(request, pack(dict(told.to_json(), edgekit=VERSION)), _fields(told))
        for worker in self.releases.workers:
            late = worker.request is not None and now - worker.since > self.options.timeout_s
            if late and worker.verdict is None:
                told = DeviceError(
                    "the engine did not answer in {:g} s".format(self.options.timeout_s),
                    code="serve.timeout",
                    where="{}/{}".format(self.app.name, worker.release),
                )
                worker.kill(_fields(told))
        for peer in list(self.peers.values()):
            if peer.since is not None and now - peer.since > _STALL_S:
                self._leave(peer)
        self._notify(now)

    def _notify(self, now: float) -> None:
        lines = []
        if not self._ready and (self.releases.serving is not None or self.releases.settled()):
            self._ready = True
            lines.append("READY=1")
        every = self._notifier.every_s
        if lines or now - self._told_at >= (every or 10.0):
            self._told_at = now
            crew = self.releases.serving
            lines.append("STATUS=" + ("no release" if crew is None else crew.release))
            if every is not None:
                lines.append("WATCHDOG=1")
            self._notifier.tell(*lines)

    def _tell_waiting(self) -> None:
        waiting = [peer for peer in self.peers.values() if peer.waits]
        if not waiting or not self.releases.settled():
            return
        wanted, failed = self.app.link("current"), self.releases.failed
        answer: Dict[str, Any] = {"serving": self.status()}
        if failed is not None and failed[0] == wanted:
            answer = {"error": failed[1]}
        elif self.releases.serving is None:
            answer = self._not_ready().to_json()
        for peer in waiting:
            peer.waits = False
            try:
                peer.say(dict(answer, edgekit=VERSION))
                self._next(peer)
            except Closed:
                self._leave(peer)

    def _watch_door(self) -> None:
        self._selector.register(self.door.socket, selectors.EVENT_READ, self._enter)

    def _stop(self) -> None:
        if self.stopping is None:
            self.log.say("ending: what was taken is answered first")
            self.stopping = time.monotonic()
            self._selector.unregister(self.door.socket)
            self.door.close()

    def _ended(self) -> bool:
        if self.stopping is None:
            return False
        busy = len(self.line) or any(w.request is not None for w in self.releases.workers)
        return not busy or time.monotonic() - self.stopping > _DRAIN_S


def _fields(error: DeviceError) -> Dict[str, str]:
    fields: Dict[str, str] = error.to_json()["error"]
    return fields
