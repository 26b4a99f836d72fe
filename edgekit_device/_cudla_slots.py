"""What a loadable's runs hold: memory that is registered once, and the way back out of it all."""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Dict, List

from ._errors import DeviceError
from ._tensor import DeviceBuffer

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Handle", "Lease", "Part", "Slot"]


class Handle:
    """Undoes what was done, in reverse order; what fails then is told by the first error."""

    def __init__(self, bind: Callable[[], None]) -> None:
        self._bind = bind
        self._undo: List[Callable[[], None]] = []
        self._lock = threading.Lock()

    def later(self, undo: Callable[[], None]) -> None:
        with self._lock:
            self._undo.append(undo)

    def close(self) -> None:
        with self._lock:
            left, self._undo = self._undo, []
        faults = []
        if left:
            self._bind()
        for undo in reversed(left):
            try:
                undo()
            except DeviceError as error:  # the rest must still be undone
                faults.append(error)
        if faults:
            raise faults[0]

    def close_quietly(self) -> None:
        """As ``close``, where nobody could be told or another error is on its way."""
        with suppress(DeviceError):
            self.close()


class Slot:
    """Memory and a stream for one frame: every tensor allocated and registered once."""

    def __init__(
        self,
        cuda: Any,
        handle: Handle,
        sizes: Dict[str, int],
        register: Callable[[DeviceBuffer], int],
    ) -> None:
        self.cuda = cuda
        self.stream = stream = cuda.stream()
        handle.later(lambda: cuda.destroy_stream(stream))
        self.buffers: Dict[str, DeviceBuffer] = {}
        self.registered: Dict[str, int] = {}
        for name, size in sizes.items():
            self.buffers[name] = DeviceBuffer(cuda, size)
            self.registered[name] = register(self.buffers[name])


class Lease:
    """Keeps a slot from being used again while tensors of it are alive."""

    def __init__(self, slot: Slot, give_back: Callable[[Slot], None]) -> None:
        self._end = weakref.finalize(self, give_back, slot)


class Part:
    """One tensor's share of a lease: the owner of a ``DeviceTensor``."""

    def __init__(self, lease: Lease, cuda: Any, ptr: int, nbytes: int) -> None:
        self.cuda = cuda
        self._lease = lease
        self._ptr = ptr
        self._nbytes = nbytes

    def fetch(self) -> np.ndarray:
        """Its bytes on the host.

        Raises:
            DeviceError: "cuda.*".
        """
        import numpy as np

        memory = np.empty(self._nbytes, np.uint8)
        self.cuda.copy(memory.ctypes.data, self._ptr, self._nbytes, "d2h")
        self.cuda.synchronize()
        return memory
