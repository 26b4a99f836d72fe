"""Common parts of the fleets' benchmarks: a relay that counts bytes, and the form of figures."""

from __future__ import annotations

import contextlib
import socket
import threading

__all__ = ["BOARDS", "Relay", "amount", "duration", "table"]

#: How many boards the extrapolated tables are for.
BOARDS = (100, 1_000, 10_000)


class Relay:
    """A TCP port in front of an sshd that counts the bytes of both ways."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._server.getsockname()[1])
        self.bytes = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(a, b), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with self._lock:
                    self.bytes += len(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def table(*rows: str) -> str:
    """Returns a Markdown table: its cells separated by ``|``, the first row its heads."""
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]])


def duration(seconds: float) -> str:
    """Returns seconds as docs/fleet.md writes them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.2g} min" if seconds < 3600 else f"{seconds / 3600:.2g} h"


def amount(count: float) -> str:
    """Returns bytes in GB (1e9)."""
    return f"{count / 1e9:,.1f} GB" if count < 1e10 else f"{count / 1e9:,.0f} GB"
