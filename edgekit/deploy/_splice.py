"""Memory given to a program's input without a copy, where Linux can.

vmsplice(2) puts references to this process's pages into a pipe: half of what feeding OpenSSH's
client costs this side. The pages must stay as they are until the program has read them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from typing import Any

from edgekit.deploy._local import _Child
from edgekit.deploy._transport import Buffer
from edgekit.errors import BoardError

__all__ = ["Spliced"]

# below, a copy is as quick
_LEAST = 64 << 10
_NONBLOCK = 2  # SPLICE_F_NONBLOCK of linux/splice.h
# a full pipe wakes its writer for each page that is read: a moment later there is room for many
_MOMENT_S = 0.0005


class _Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Spliced(_Child):
    """A child process that is fed so; views are spliced, bytes (frames' heads) are written."""

    _vmsplice: Any = None

    def send(self, data: Buffer) -> None:
        """Returns when all of it is in the pipe."""
        if self._vmsplice is None:
            self._vmsplice = _find()
        if not self._vmsplice or not isinstance(data, memoryview) or data.nbytes < _LEAST:
            super().send(data)
            return
        done = self._splice(data)
        super().send(data.cast("B")[done:])

    def _splice(self, data: memoryview) -> int:
        """Returns how much went in so: less than all where the kernel has refused."""
        import numpy as np

        start = int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])
        done = 0
        while done < data.nbytes:
            vector = _Vector(start + done, data.nbytes - done)
            count = self._vmsplice(self._handle, ctypes.byref(vector), 1, _NONBLOCK)
            if count >= 0:
                done += count
            else:
                code = ctypes.get_errno()
                if code == errno.EPIPE:
                    raise BrokenPipeError(code, os.strerror(code))
                if code not in (errno.EAGAIN, errno.EINTR):
                    self._vmsplice = False
                    break
            if done < data.nbytes:
                self._await_room()
                time.sleep(_MOMENT_S)
        return done

    def wait(self, timeout: float | None) -> int | None:
        """Its status, None when the time is over; BoardError when it was killed, on this machine:
        a command that was killed on the board has a status of ssh's own."""
        status = super().wait(timeout)
        if self._child.returncode is not None and self._child.returncode < 0:
            number = -self._child.returncode
            raise BoardError(
                f"this machine's ssh was ended by signal {number} ({signal.strsignal(number)})",
                code="board.connection-lost",
                where=self._where,
                hint="what had arrived is kept and the current release still serves; "
                "run the same command again",
            )
        return status


def _find() -> Any:
    """The C library's function; False where it has none."""
    try:
        found = ctypes.CDLL(None, use_errno=True).vmsplice
    except (OSError, AttributeError):
        return False
    found.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_uint)
    found.restype = ctypes.c_ssize_t
    return found
