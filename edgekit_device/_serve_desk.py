"""The server's clients: who comes in, what they ask, and how they are answered."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from typing import Any, Callable, Dict, Mapping, Optional

from ._errors import DeviceError
from ._root import App
from ._serve_door import Door
from ._serve_health import Health, is_clients_fault
from ._serve_line import Line, Options, Peer, Request
from ._serve_log import Log
from ._serve_releases import Releases
from ._serve_told import describe, not_ready, status
from ._serve_wire import MAX_HEAD, VERSION, Closed, pack, read_head

__all__ = ["Desk"]

_STALL_S = 10.0  # a message that begins is whole by then
_MOST_CLIENTS = 256
_MOST_WITHIN_S = 3600.0


class Desk:
    """Takes connections and requests; a request waits in ``line`` until a worker has it.

    Attributes:
        line: What waits.
        stopping: Whether nothing new is taken.
    """

    def __init__(
        self,
        app: App,
        door: Door,
        options: Options,
        log: Log,
        health: Health,
        releases: Releases,
        selector: selectors.BaseSelector,
        stop: Callable[[], None],
    ) -> None:
        self.app, self.door, self.options, self.log = app, door, options, log
        self.health, self.releases = health, releases
        self.line = Line(options.queue)
        self.peers: Dict[int, Peer] = {}
        self.stopping = False
        self._selector, self._stop = selector, stop
        self._numbers = 0

    def open(self) -> None:
        """Begins to take connections."""
        self._selector.register(self.door.socket, selectors.EVENT_READ, self._enter)

    def shut(self) -> None:
        """Takes no more connections and requests."""
        self.stopping = True
        self._selector.unregister(self.door.socket)
        self.door.close()

    def close(self) -> None:
        """Ends every connection; who still waits is told why."""
        told = DeviceError("the server has ended", code="serve.stopping", where=self.app.name)
        for peer in list(self.peers.values()):
            if peer.busy:
                with contextlib.suppress(Closed):
                    peer.say(dict(told.to_json(), edgekit=VERSION))
            peer.close()

    def tick(self, now: float) -> None:
        """Looks after the door, and clients and requests that wait for too long."""
        if not self.stopping and not self.door.stands():
            self.log.say("the socket's file was removed: it is made again")
            self._selector.unregister(self.door.socket)
            self.door.open()
            self.open()
        for request in self.line.overdue(now):
            told = DeviceError(
                "no worker was free in time", code="serve.timeout", hint="ask its status"
            ).to_json()
            self.finish(request, pack(dict(told, edgekit=VERSION)), told["error"])
        for peer in list(self.peers.values()):
            if peer.since is not None and now - peer.since > _STALL_S:
                self._leave(peer)

    def finish(
        self, request: Request, data: bytes, error: Optional[Mapping[str, Any]] = None
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

    def tell_waiting(self) -> None:
        """Answers those that wait for a reload, once it is known how that ended."""
        waiting = [peer for peer in self.peers.values() if peer.waits]
        if not waiting or not self.releases.settled():
            return
        wanted, failed = self.app.link("current"), self.releases.failed
        answer: Dict[str, Any] = {"serving": status(self)}
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
            "status": lambda: {"serving": status(self)},
            "describe": lambda: describe(self.releases),
        }
        op = head.get("op")
        if op == "run":
            now, memory = time.monotonic(), peer.reader.claim()
            if memory is None:
                raise DeviceError("no memory came with the request", code="serve.memory")
            request = Request(peer, data, memory, now, now)
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

    def _take_run(self, request: Request, head: Dict[str, Any]) -> None:
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
