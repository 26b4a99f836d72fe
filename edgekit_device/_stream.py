"""The stream of frames that ``receive`` reads: an input that cannot hang."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import time
from typing import BinaryIO

from ._errors import DeviceError

__all__ = ["Input"]

_MAX_LINE = 4096
_BLOCK = 512 << 10
# sshd writes packets of 32 KiB into a pipe of 64 KiB: each would wake this process. With the most
# that Linux grants an account, and a moment until more has come, few do
_PIPE = 1 << 20
_SET_PIPE = 1031  # F_SETPIPE_SZ of linux/fcntl.h; Python knows it since 3.10
_LITTLE = 256 << 10
_MOMENT_S = 0.0005
# a host that is gone without a word (a pulled cable) must not hold a blob's part for ever
_SILENCE_S = 30.0


class Input:
    """The stream of frames.

    Args:
        stdin: Where from; nothing has been read of it yet.
        silence_s: How long nothing may come until the host counts as gone.
    """

    def __init__(self, stdin: BinaryIO, silence_s: float = _SILENCE_S) -> None:
        self._stdin = stdin
        self._silence_s = silence_s
        self._ahead = memoryview(b"")
        self._ended = False
        try:
            self._handle = stdin.fileno()
        except OSError:
            self._handle = -1
            return
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._handle, _SET_PIPE, _PIPE)

    def line(self) -> bytes:
        """The next line, its end included.

        Raises:
            DeviceError: "transfer.truncated" or "protocol.invalid".
        """
        while True:
            found = bytes(self._ahead).find(b"\n", 0, _MAX_LINE)
            if found >= 0:
                line, self._ahead = bytes(self._ahead[: found + 1]), self._ahead[found + 1 :]
                return line
            if len(self._ahead) >= _MAX_LINE:
                raise DeviceError("a line is too long", code="protocol.invalid", where="stdin")
            block = bytearray(_MAX_LINE)
            count = self._read(memoryview(block))
            if not count:
                raise _truncated("the stream ended before its end mark", "")
            self._ahead = memoryview(bytes(self._ahead) + bytes(block[:count]))

    def fill(self, view: memoryview) -> memoryview:
        """Fills ``view`` and returns it; what there was, where the stream ended."""
        done = min(len(view), len(self._ahead))
        view[:done] = self._ahead[:done]
        self._ahead = self._ahead[done:]
        while done < len(view):
            count = self._read(view[done:])
            done += count
            self._ended = not count
            if self._ended:
                break
            if count < _LITTLE < len(view) - done:
                time.sleep(_MOMENT_S)
        return view[:done]

    def check(self, digest: str, left: int) -> None:
        """Raises "transfer.truncated" when the stream has ended although ``left`` bytes lack."""
        if self._ended and left:
            raise _truncated("the stream ended {} bytes early".format(left), digest)

    def take(self, size: int, digest: str) -> bytes:
        """The next ``size`` bytes."""
        data = bytearray(size)
        got = len(self.fill(memoryview(data)))
        self.check(digest, size - got)
        return bytes(data)

    def skip(self, size: int, digest: str) -> None:
        """Passes over ``size`` bytes."""
        block = memoryview(bytearray(_BLOCK))
        while size:
            size -= len(self.fill(block[: min(len(block), size)]))
            self.check(digest, size)

    def _read(self, view: memoryview) -> int:
        if self._handle < 0:
            return int(self._stdin.readinto(view))  # type: ignore[attr-defined]
        if not select.select([self._handle], [], [], self._silence_s)[0]:
            raise DeviceError(
                "nothing came for {:g} s".format(self._silence_s),
                code="transfer.stalled",
                where="stdin",
                hint="the connection is gone or far too slow; deploy again, what came is kept",
            )
        return os.readv(self._handle, [view])


def _truncated(message: str, digest: str) -> DeviceError:
    return DeviceError(
        message,
        code="transfer.truncated",
        where=digest,
        hint="the connection broke; deploy again, what came is kept",
    )
