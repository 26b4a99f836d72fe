"""The server's socket in the file system: private from its first moment, and watched."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Optional

from ._errors import DeviceError, map_os_errors
from ._serve_wire import reach

__all__ = ["Door"]

_BACKLOG = 128


class Door:
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
            # bound beside its place, made private, then renamed: nobody finds it half made
            beside = self.path.with_name(".{}.{}".format(self.path.name[:32], os.getpid()))
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.setblocking(False)
            name, folder = reach(beside)
            before = os.umask(0o177)
            try:
                self.socket.bind(name)
            finally:
                os.umask(before)
                if folder is not None:
                    os.close(folder)
            self.socket.listen(_BACKLOG)
            self._facts = os.stat(str(beside))
            os.replace(str(beside), str(self.path))

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
