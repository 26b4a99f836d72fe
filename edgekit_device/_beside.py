"""What is done beside reading and writing a blob: it is hashed, and made durable bit by bit."""

from __future__ import annotations

import errno
import hashlib
import os
import queue
import threading
from typing import Any, Optional, Tuple, Union

__all__ = ["Hashing", "Syncing"]

_BLOCK = 512 << 10
_BLOCKS = 6
_SYNC_EVERY = 32 << 20

# a block and its bytes, a file and what to read of it first, the end of a blob, the end of all
_Work = Union[Tuple[bytearray, int], Tuple[int, int], str, None]


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
