"""The byte stream that SSH runs over: TCP, a channel of a jump host, or a proxy command."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from edgekit.deploy._sshconfig import Endpoint

if TYPE_CHECKING:
    import paramiko

__all__ = ["open_link"]


def open_link(
    hop: Endpoint, through: paramiko.Transport | None, connect_s: float, silence_s: float
) -> Any:
    """Returns a socket-like object for paramiko.

    Args:
        hop: Where to.
        through: Connection to the jump host before it, if there is one.
        connect_s: Limit on connecting, in seconds.
        silence_s: How long sent data may stay unacknowledged until the link counts as cut.

    Raises:
        OSError, UnicodeError, paramiko.SSHException: It cannot be reached.
    """
    if through is not None:
        there, here = (hop.host, hop.port), ("127.0.0.1", 0)
        return through.open_channel("direct-tcpip", there, here, timeout=connect_s)
    if hop.proxy_command:
        return _Proxy(hop.proxy_command)
    sock = socket.create_connection((hop.host, hop.port), timeout=connect_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":
        milliseconds = int(silence_s * 1000)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return sock


class _Proxy(socket.socket):
    """OpenSSH's ProxyCommand on one end of a socket pair (paramiko's own leaves its pipes open)."""

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        with theirs:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def close(self) -> None:
        """Ends the command too."""
        super().close()
        self._process.terminate()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
