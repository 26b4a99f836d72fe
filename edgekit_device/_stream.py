"""What ``receive`` is made of: an input that cannot hang, hashing and syncing beside writing."""

from __future__ import annotations

import errno
import hashlib
import os
import queue
import select
import threading
from typing import Any, BinaryIO, Optional, Tuple, Union

from ._errors import DeviceError

__all__ = ["Hashing", "Input", "Syncing"]

_MAX_LINE = 4096
_BLOCK = 512 << 10
_BLOCKS = 6
_SYNC_EVERY = 32 << 20
# a host that is gone without a word (a pulled cable) must not hold a blob's part for ever
_SILENCE_S = 30.0

# a block and its bytes, a file and what to read of it first, the end of a blob, the end of all
_Work = Union[Tuple[bytearray, int], Tuple[int, int], str, None]


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
            if not count:
                self._ended = True
                break
            done += count
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


class Hashing:
    """SHA-256 of blobs in a thread beside the one that reads and writes them.

    For each blob ``begin``, then ``buffer`` for a block to fill and ``add`` to hand it over, then
    ``digest``. A block may be read until the next ``buffer``; it is used again once it is hashed.
    """

    def __init__(self) -> None:
        self._free: "queue.SimpleQueue[bytearray]" = queue.SimpleQueue()
        self._full: "queue.SimpleQueue[_Work]" = queue.SimpleQueue()
        self._done: "queue.SimpleQueue[Union[str, OSError]]" = queue.SimpleQueue()
        self._made = 0
        self._thread: Optional[threading.Thread] = None

    def __enter__(self) -> "Hashing":
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._thread is not None:
            self._full.put(None)
            self._thread.join()

    def begin(self, handle: int, start: int) -> None:
        """Begins a blob, whose first ``start`` bytes are read from the file ``handle``."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._full.put((handle, start))

    def buffer(self) -> bytearray:
        """A block that nobody reads any more."""
        if self._made < _BLOCKS:
            self._made += 1
            return bytearray(_BLOCK)
        return self._free.get()

    def add(self, block: bytearray, count: int) -> None:
        """Hashes the block's first ``count`` bytes."""
        self._full.put((block, count))

    def digest(self) -> str:
        """The blob's hash in hex."""
        self._full.put("end")
        found = self._done.get()
        if isinstance(found, OSError):
            raise found
        return found

    def _run(self) -> None:
        found = hashlib.sha256()
        error: Optional[OSError] = None
        while True:
            item = self._full.get()
            if item is None:
                return
            if isinstance(item, str):
                self._done.put(error or found.hexdigest())
                continue
            what, count = item
            if isinstance(what, bytearray):
                found.update(memoryview(what)[:count])
                self._free.put(what)
                continue
            found, error = hashlib.sha256(), None
            try:
                _hash_kept(found, what, count)
            except OSError as caught:
                error = caught


def _hash_kept(found: Any, handle: int, start: int) -> None:
    block = memoryview(bytearray(min(_BLOCK, start)))
    done = 0
    while done < start:
        count = os.preadv(handle, [block[: start - done]], done)
        if not count:
            raise OSError(errno.EIO, "the kept part became shorter")
        found.update(block[:count])
        done += count


class Syncing:
    """Makes what is written durable every now and then, so that the end need not wait for all."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._last = 0
        self._wake = threading.Semaphore(0)
        self._over = False
        self._thread: Optional[threading.Thread] = None

    def __enter__(self) -> "Syncing":
        return self

    def __exit__(self, *exc: Any) -> None:
        self._over = True
        if self._thread is not None:
            self._wake.release()
            self._thread.join()

    def written(self, offset: int) -> None:
        """Says that the file is written up to ``offset``."""
        if offset - self._last < _SYNC_EVERY:
            return
        self._last = offset
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._wake.release()

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            if self._over:
                return
            try:
                os.fdatasync(self._handle)
            except OSError:
                return  # the fsync at the end says it
