"""A stream's work as a CUDA graph: noted once, launched with one call.

Captured in CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, as trtexec does (samples/common/sampleDevice.h,
TrtCudaGraph): this thread may call nothing meanwhile that would wait or allocate.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Callable

from ._cuda import Cuda
from ._errors import DeviceError

__all__ = ["Graph"]

_THREAD_LOCAL = 1


class Graph:
    """What ``work`` put on ``stream``, to be launched there again and again.

    Raises:
        DeviceError: What ``work`` raised, or "cuda.failed" where it cannot be captured.
    """

    def __init__(self, cuda: Cuda, stream: int, work: Callable[[], object]) -> None:
        self._cuda = cuda
        self._stream = stream
        self._made = 0
        cuda.call("cuStreamBeginCapture", stream, _THREAD_LOCAL)
        try:
            work()
        except BaseException:
            # a stream that went on noting would take no other work
            with suppress(DeviceError):
                self._destroy("cuGraphDestroy", cuda.call("cuStreamEndCapture", stream))
            raise
        graph = cuda.call("cuStreamEndCapture", stream)
        if not graph:
            raise DeviceError("the capture gave no graph", code="cuda.failed")
        try:
            self._made = int(cuda.call("cuGraphInstantiateWithFlags", graph, 0))
        finally:
            self._destroy("cuGraphDestroy", graph)

    def launch(self) -> None:
        """Puts all of it behind the stream's work."""
        self._cuda.call("cuGraphLaunch", self._made, self._stream)

    def _destroy(self, how: str, graph: int) -> None:
        if graph:
            self._cuda.call(how, graph)

    def __del__(self) -> None:
        try:
            self._destroy("cuGraphExecDestroy", self._made)
        except Exception:  # at the process's end the context may be gone already
            return
