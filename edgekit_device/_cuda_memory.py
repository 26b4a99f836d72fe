"""Memory that is allocated once and used again: leases of device and pinned host memory.

A lease goes back to its pool with its last user, so that frames in flight never share a buffer and
nothing is allocated once as many frames were in flight as ever will be. On an integrated GPU
(Jetson) pinned memory is the same DRAM; copies through it are still what keeps caches right.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Deque, Dict, Iterator, List, Optional, Tuple

if TYPE_CHECKING:
    import numpy as np

    from ._cuda import Cuda

__all__ = ["Lease", "Pool"]


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
        self.allocated = 0

    def take(self, nbytes: int) -> Lease:
        """Memory of ``nbytes`` (what it holds is undefined).

        Raises:
            DeviceError: "cuda.no-memory".
        """
        with self._lock:
            while self._back:
                ptr, size = self._back.popleft()
                self._free.setdefault(size, []).append(ptr)
            free = self._free.get(nbytes)
            found = free.pop() if free else None
            self.allocated += found is None
        if found is not None:
            return Lease(self, found, nbytes)
        allocate = self.cuda.host_alloc if self.pinned else self.cuda.malloc
        return Lease(self, allocate(nbytes), nbytes)

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

    def __init__(self, pool: Pool, ptr: int, nbytes: int) -> None:
        self.pool = pool
        self.ptr = ptr
        self.nbytes = nbytes

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
        self.pool.give(self.ptr, self.nbytes)
