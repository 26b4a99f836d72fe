"""What connections have carried: as the kernel counts it, and as OpenSSH's client says itself."""

from __future__ import annotations

import re
import socket
import struct
import sys

__all__ = ["ssh_bytes", "tcp_bytes"]

# where struct tcp_info has tcpi_bytes_acked and tcpi_bytes_received (linux/tcp.h, since 4.1)
_TCP_BYTES = slice(120, 136)
# what ssh says at LogLevel VERBOSE and edgekit has no other use for
_TRANSFERRED = re.compile(rb"^Transferred: sent (\d+), received (\d+) bytes\b.*$", re.MULTILINE)
_CHATTER = re.compile(
    rb"^(Authenticated to |Transferred: sent |Bytes per second: ).*\r?\n?", re.MULTILINE
)


def tcp_bytes(sock: object) -> int | None:
    """Returns the bytes of a TCP connection, both ways; None where they are not known.

    Linux counts them (tcpi_bytes_acked and tcpi_bytes_received of struct tcp_info, tcp(7)).
    """
    option = getattr(socket, "TCP_INFO", None)
    if option is None or not isinstance(sock, socket.socket) or sys.platform != "linux":
        return None
    try:
        facts = sock.getsockopt(socket.IPPROTO_TCP, option, _TCP_BYTES.stop)
    except OSError:
        return None
    if len(facts) < _TCP_BYTES.stop:
        return None
    sent, received = struct.unpack("=QQ", facts[_TCP_BYTES])
    return int(sent) + int(received)


def ssh_bytes(complaint: bytes) -> tuple[int | None, bytes]:
    """Returns the bytes that OpenSSH's client has carried, and what else it complains of.

    Args:
        complaint: Its stderr, at LogLevel VERBOSE.

    Returns:
        Its packets' bytes both ways, the handshake's among them; None where it does not say, as of
        a connection that was cut. And its stderr without what it says at that level.
    """
    found = _TRANSFERRED.findall(complaint)
    carried = sum(map(int, found[-1])) if found else None
    return carried, _CHATTER.sub(b"", complaint)
