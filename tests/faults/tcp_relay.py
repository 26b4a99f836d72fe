"""A TCP relay in front of a server: counts bytes, and cuts, stalls or delays what it carries."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Literal

__all__ = ["Relay"]

Direction = Literal["up", "down"]
_PIECE = 4096


class Relay:
    """Relays connections to a loopback port; "up" is towards the server.

    Attributes:
        port: Where it listens.
        carried: Bytes of each direction, over all connections.
        cut_at: Byte of a direction at which every connection is reset; None for never.
        delay_s: Seconds that each piece waits.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self.carried: dict[Direction, int] = {"up": 0, "down": 0}
        self.cut_at: dict[Direction, int | None] = {"up": None, "down": None}
        self.delay_s = 0.0
        self.was_cut = threading.Event()
        self._flows = threading.Event()
        self._flows.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it and what it carries."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._flows.set()
        self.cut()
        self._thread.join(120.0)

    def cut(self) -> None:
        """Resets every connection."""
        self.was_cut.set()
        with self._lock:
            ends, self._open = self._open, set()
        for end in ends:
            # a reset at once, nothing lingers
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def stall(self) -> None:
        """Carries nothing until ``flow``; connections stay open."""
        self._flows.clear()

    def flow(self) -> None:
        """Carries on, with no cut in the plan."""
        self.cut_at = {"up": None, "down": None}
        self.was_cut.clear()
        self._flows.set()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            ways: tuple[tuple[socket.socket, socket.socket, Direction], ...] = (
                (near, far, "up"),
                (far, near, "down"),
            )
            for source, target, direction in ways:
                arguments = (source, target, direction)
                threading.Thread(target=self._carry, args=arguments, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        try:
            while data := source.recv(_PIECE):
                self._flows.wait()
                if self.delay_s:
                    time.sleep(self.delay_s)
                limit = self.cut_at[direction]
                if limit is not None and self.carried[direction] + len(data) >= limit:
                    part = data[: max(0, limit - self.carried[direction])]
                    self.carried[direction] += len(part)
                    target.sendall(part)
                    self.cut()
                    return
                self.carried[direction] += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # one side was reset, as by a server that was killed: the other side hears of it
            with contextlib.suppress(OSError):
                source.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
