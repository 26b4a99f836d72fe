"""Tells systemd how a service is: one datagram on $NOTIFY_SOCKET (sd_notify(3))."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Mapping, Optional

__all__ = ["Notifier"]


class Notifier:
    """Speaks to systemd where it listens; silent elsewhere.

    Attributes:
        every_s: How often the watchdog wants to hear "WATCHDOG=1"; None when it does not.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._path = environment.get("NOTIFY_SOCKET", "")
        self.every_s: Optional[float] = None
        told = environment.get("WATCHDOG_USEC", "")
        meant = environment.get("WATCHDOG_PID", "")
        if told.isdigit() and int(told) and (not meant or meant == str(os.getpid())):
            self.every_s = int(told) / 1e6 / 2

    def tell(self, *lines: str) -> None:
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
