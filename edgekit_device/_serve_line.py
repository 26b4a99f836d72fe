"""Clients of the server and what they wait for: a fair, bounded queue."""

from __future__ import annotations

import os
import socket
import struct
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, Deque, List, Mapping, Optional

from ._serve_wire import Closed, Reader, pack, send_with

__all__ = ["Line", "Options", "Peer", "Request"]

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: SO_PEERCRED, unix(7)


@dataclass(frozen=True)
class Options:
    """How a server serves: ``timeout_s`` bounds a request's wait, and then its run."""

    workers: int = 1
    queue: int = 64
    timeout_s: float = 30.0
    threads: int = 0


class Request:
    """A request that was taken: its head as it came, and its memory.

    Attributes:
        until: Monotonic clock reading at which it has waited too long.
        tries: Workers that it was given to.
    """

    __slots__ = ("arrived", "data", "descriptor", "peer", "tries", "until")

    def __init__(
        self, peer: Peer, data: bytes, descriptor: int, arrived: float, until: float
    ) -> None:
        self.peer = peer
        self.data = data
        self.descriptor = descriptor
        self.arrived = arrived
        self.until = until
        self.tries = 0

    def close(self) -> None:
        """Lets go of its memory."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Peer:
    """A client's connection; it has one request at a time.

    Attributes:
        request: The one that is not answered yet.
        waits: Whether it waits for a reload.
        since: When a message began to arrive that is not whole; None when there is none.
    """

    def __init__(self, number: int, peer: socket.socket) -> None:
        self.number = number
        self.socket = peer
        self.reader = Reader()
        size = _CREDENTIALS.size
        self.pid, self.uid, _ = _CREDENTIALS.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        )
        self.request: Optional[Request] = None
        self.waits = False
        self.known = False
        self.since: Optional[float] = None
        self.open = True

    @property
    def busy(self) -> bool:
        """Whether it waits for an answer."""
        return self.request is not None or self.waits

    def answer(self, data: bytes) -> None:
        """Sends an answer.

        Raises:
            Closed: It has gone, or did not read the answers before.
        """
        try:
            sent = send_with(self.socket, data)
        except OSError as error:
            raise Closed(str(error)) from error
        if sent < len(data):
            raise Closed("it does not read its answers")

    def say(self, head: Mapping[str, Any]) -> None:
        """Sends a head as :meth:`answer` does."""
        self.answer(pack(head))

    def close(self) -> None:
        """Ends the connection."""
        self.open = False
        self.reader.close()
        self.socket.close()


class Line:
    """Requests that wait for a worker: processes take turns, each one's own come in order."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._count = 0
        self._queues: OrderedDict[int, Deque[Request]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether it takes no more."""
        return self._count >= self.most

    def add(self, request: Request) -> None:
        """Puts a request behind those of its process."""
        self._queues.setdefault(request.peer.pid, deque()).append(request)
        self._count += 1

    def add_first(self, request: Request) -> None:
        """Puts a request before all others: a worker had it already."""
        pid = request.peer.pid
        self._queues.setdefault(pid, deque()).appendleft(request)
        self._queues.move_to_end(pid, last=False)
        self._count += 1

    def take(self) -> Optional[Request]:
        """The next one: of the process whose turn is longest ago."""
        if not self._count:
            return None
        pid, queue = next(iter(self._queues.items()))
        request = queue.popleft()
        self._count -= 1
        if queue:
            self._queues.move_to_end(pid)
        else:
            del self._queues[pid]
        return request

    def drop(self, peer: Peer) -> None:
        """Forgets what a client waits for."""
        request = peer.request
        queue = self._queues.get(peer.pid)
        if request is not None and queue is not None and request in queue:
            queue.remove(request)
            self._count -= 1
            if not queue:
                del self._queues[peer.pid]

    def overdue(self, now: float) -> List[Request]:
        """Takes out those that have waited too long."""
        late = [r for queue in self._queues.values() for r in queue if r.until <= now]
        for request in late:
            self.drop(request.peer)
        return late
