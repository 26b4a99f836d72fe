"""Memory that is allocated once and used again: leases of device and pinned host memory.

A lease goes back to its pool with its last user, so that frames in flight never share a buffer and
nothing is allocated once as many frames were in flight as ever will be; where shapes change, what
lies idle is at most as much as ever was in use at once. On an integrated GPU
(Jetson) pinned memory is the same DRAM; copies through it are still what keeps caches right.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Deque, Dict, Iterator, List, Optional, Tuple

from ._errors import DeviceError

if TYPE_CHECKING:
    import numpy as np

    from ._cuda import Cuda

__all__ = ["Lease", "Pool"]

_LARGER = 2  # a buffer so many times as large as wanted still serves


class Pool:
    """Free memory by size.

    Args:
        cuda: The device.
        pinned: Host memory for copies instead of device memory.
        staging: For device memory: the pinned pool through which it is copied to the host.
    """

    def __init__(self, cuda: Cuda, pinned: bool = False, staging: Optional[Pool] = None) -> None:
        self.cuda = cuda
        self.staging = staging
        self.pinned = pinned
        self._free: Dict[int, List[int]] = {}
        self._lock = threading.Lock()
        # Leases come back from __del__, which the collector may run in any thread at any place,
        # within ``take`` too: that must wait for nothing, so it only appends to a deque
        self._back: Deque[Tuple[int, int]] = deque()
        self._streams: Deque[int] = deque()
        self._used = self._most = 0  # bytes
        self.allocated = 0

    def take(self, nbytes: int) -> Lease:
        """Memory of ``nbytes`` (what it holds is undefined).

        Raises:
            DeviceError: "cuda.no-memory".
        """
        with self._lock:
            self._most = max(self._most, self._used)
            while self._back:
                ptr, size = self._back.popleft()
                self._used -= size
                # the size used last is the last one to be given up
                self._free[size] = [*self._free.pop(size, ()), ptr]
            fits = [n for n, free in self._free.items() if free and nbytes <= n <= _LARGER * nbytes]
            room = min(fits, default=nbytes)
            found = self._free[room].pop() if fits else None
            idle = self._idle() if found is None else []
            self._used += room
            self.allocated += found is None
        for ptr in idle:
            self._release(ptr)
        if found is not None:
            return Lease(self, found, nbytes, room)
        try:
            ptr = (self.cuda.host_alloc if self.pinned else self.cuda.malloc)(nbytes)
        except DeviceError:
            with self._lock:
                self._used -= nbytes
            raise
        return Lease(self, ptr, nbytes, nbytes)

    def _idle(self) -> List[int]:
        """Takes what lies idle, as far as it is more than ever was in use at once.

        Frames of one shape never get that far; shapes that change would keep every size for ever.
        """
        idle = sum(size * len(free) for size, free in self._free.items())
        found = []
        for size, free in list(self._free.items()):
            while free and idle > self._most:
                found.append(free.pop())
                idle -= size
            if not free:
                del self._free[size]
        return found

    def _release(self, ptr: int) -> None:
        with suppress(DeviceError):  # nobody misses it; the next call tells what is wrong
            (self.cuda.host_free if self.pinned else self.cuda.free)(ptr)

    def give(self, ptr: int, nbytes: int) -> None:
        """Takes memory back; never waits."""
        self._back.append((ptr, nbytes))

    @contextmanager
    def stream(self) -> Iterator[int]:
        """A stream that nobody else uses within the block."""
        try:
            stream = self._streams.pop()
        except IndexError:
            stream = self.cuda.stream()
        try:
            yield stream
        finally:
            self._streams.append(stream)

    def __del__(self) -> None:
        for stream in self._streams:
            try:
                self.cuda.destroy_stream(stream)
            except Exception:  # at the process's end the context may be gone already
                return
        release = self.cuda.host_free if self.pinned else self.cuda.free
        unused = [ptr for pointers in self._free.values() for ptr in pointers]
        for ptr in unused + [ptr for ptr, _ in self._back]:
            try:
                release(ptr)
            except Exception:  # at the process's end the context may be gone already
                return


class Lease:
    """Memory in use.

    Attributes:
        ptr: Its address.
        nbytes: Its size.
    """

    def __init__(self, pool: Pool, ptr: int, nbytes: int, room: int) -> None:
        self.pool = pool
        self.ptr = ptr
        self.nbytes = nbytes
        self._room = room

    @property
    def cuda(self) -> Cuda:
        """The device."""
        return self.pool.cuda

    def array(self) -> np.ndarray:
        """Pinned memory as bytes; the lease lasts as long as the array."""
        import ctypes

        import numpy as np

        memory = (ctypes.c_uint8 * self.nbytes).from_address(self.ptr)
        # the array keeps what it is made over, and that keeps the lease
        memory.lease = self  # type: ignore[attr-defined]
        found: np.ndarray = np.ctypeslib.as_array(memory)
        return found

    def fetch(self) -> np.ndarray:
        """Its bytes on the host: a view of pinned memory where the pool has some.

        Raises:
            DeviceError: "cuda.*".
        """
        import numpy as np

        staging = self.pool.staging
        pinned = None if staging is None else staging.take(self.nbytes)
        memory = np.empty(self.nbytes, np.uint8) if pinned is None else pinned.array()
        with self.pool.stream() as stream:
            self.cuda.copy(memory.ctypes.data, self.ptr, self.nbytes, "d2h", stream)
            self.cuda.synchronize(stream)
        return memory

    def __del__(self) -> None:
        self.pool.give(self.ptr, self._room)
