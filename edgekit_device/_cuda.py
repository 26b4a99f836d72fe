"""CUDA as the loader needs it: memory, streams, events and kernels, through the driver's own API.

One way of three is taken (``_cuda_ways``): cuda-python's package ``cuda.bindings``, its older
modules ``cuda.cuda``, or ctypes on libcuda, which every driver brings. All speak the driver API in
the device's primary context, which is the one that TensorRT and the runtime API use too, so that
pointers, streams and events can be handed to them as plain integers.
Names and arguments: CUDA Driver API, https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Dict, Optional, Sequence, Tuple

from ._cuda_ways import Way, open_way
from ._errors import DeviceError

__all__ = ["Cuda", "Grid", "open_cuda"]

Grid = Tuple[int, int, int]

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: no hidden waiting for the default stream
_COPIES = {"h2d": "cuMemcpyHtoDAsync", "d2h": "cuMemcpyDtoHAsync", "d2d": "cuMemcpyDtoDAsync"}
# CUdevice_attribute
_INTEGRATED, _MAJOR, _MINOR = 18, 75, 76


class Cuda:
    """One device's primary context; every method may be called from any thread.

    Pointers and handles are integers. A stream of 0 is the default stream.

    Raises:
        DeviceError: Every method: "cuda.no-memory", or "cuda.failed" with CUDA's own error name.
    """

    def __init__(self, way: Way, device: int = 0) -> None:
        self._way = way
        self._thread = threading.local()
        way.call("cuInit", 0)
        self.device: int = way.call("cuDeviceGet", device)
        self._context = way.call("cuDevicePrimaryCtxRetain", self.device)

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls the driver within the device's context; what ``Way.call`` returns."""
        # the context is a thread's own: bound once in each
        if not getattr(self._thread, "bound", False):
            self._way.call("cuCtxSetCurrent", self._context)
            self._thread.bound = True
        return self._way.call(name, *arguments)

    def bind(self) -> None:
        """Makes the context current in the calling thread, for libraries that ask for one."""
        self._thread.bound = False
        self.call("cuDriverGetVersion")

    def malloc(self, size: int) -> int:
        """Allocates device memory (at least one byte, since CUDA refuses none)."""
        return int(self.call("cuMemAlloc", _bytes(size)))

    def free(self, pointer: int) -> None:
        """Frees what ``malloc`` gave."""
        self.call("cuMemFree", pointer)

    def host_alloc(self, size: int) -> int:
        """Allocates pinned host memory, which copies can read and write asynchronously."""
        return int(self.call("cuMemAllocHost", _bytes(size)))

    def host_free(self, pointer: int) -> None:
        """Frees what ``host_alloc`` gave."""
        self.call("cuMemFreeHost", pointer)

    def copy(self, dst: int, src: int, size: int, kind: str, stream: int = 0) -> None:
        """Copies bytes in stream order; ``kind`` is "h2d", "d2h" or "d2d".

        The host's side must stay untouched until the stream was synchronised.
        """
        if not size:
            return
        self._marked(kind, stream, (_COPIES[kind], dst, src, size, stream))

    def _marked(self, phase: str, stream: int, call: Tuple[Any, ...]) -> None:
        marks = self.marks
        if marks is None:
            self.call(*call)
            return
        # nothing else between the two: an idle stream passes the first event at once
        first, last = marks.pair(phase)
        self.call("cuEventRecord", first, stream)
        self.call(*call)
        self.call("cuEventRecord", last, stream)

    def observe(self, marks: Any) -> None:
        """Has ``marks`` (``_cuda_marks``) told of this thread's work from now on; None: nobody."""
        self._thread.marks = marks

    @property
    def marks(self) -> Any:
        """Who is told of this thread's work, None where nobody is."""
        return getattr(self._thread, "marks", None)

    def stream(self) -> int:
        """Makes a stream that does not wait for the default one."""
        return int(self.call("cuStreamCreate", _NON_BLOCKING))

    def destroy_stream(self, stream: int) -> None:
        """Destroys a stream."""
        self.call("cuStreamDestroy", stream)

    def synchronize(self, stream: int = 0) -> None:
        """Waits until the stream's work is done; a kernel's failure is raised here."""
        self.call("cuStreamSynchronize", stream)

    def event(self) -> int:
        """Makes an event that keeps time."""
        return int(self.call("cuEventCreate", 0))

    def destroy_event(self, event: int) -> None:
        """Destroys an event."""
        self.call("cuEventDestroy", event)

    def record(self, event: int, stream: int = 0) -> None:
        """Puts the event behind the stream's work."""
        self.call("cuEventRecord", event, stream)

    def elapsed_ms(self, first: int, second: int) -> float:
        """Milliseconds between two events that have passed."""
        return float(self.call("cuEventElapsedTime", first, second))

    def wait(self, stream: int, event: int) -> None:
        """Lets the stream's later work wait for the event."""
        self.call("cuStreamWaitEvent", stream, event, 0)

    def memory(self) -> Tuple[int, int]:
        """Free bytes of the device's memory, and all of them."""
        free, total = self.call("cuMemGetInfo")
        return int(free), int(total)

    def load_module(self, image: bytes) -> int:
        """Loads PTX (text that ends with a zero byte) or a cubin."""
        return int(self.call("cuModuleLoadData", image))

    def function(self, module: int, name: str) -> int:
        """A kernel of a module by its name as the image has it (extern "C", or mangled)."""
        return int(self.call("cuModuleGetFunction", module, name.encode("utf-8")))

    def launch(
        self,
        function: int,
        grid: Grid,
        block: Grid,
        args: Sequence[Any],
        stream: int = 0,
        shared: int = 0,
    ) -> None:
        """Launches a kernel.

        Args:
            function: From :meth:`function`.
            grid: Blocks along x, y and z.
            block: Threads of a block along x, y and z.
            args: ctypes values in the order of the kernel's parameters (pointers: c_uint64 or
                c_void_p).
            stream: Where it is put.
            shared: Bytes of dynamic shared memory.
        """
        places = (ctypes.c_void_p * max(len(args), 1))(*[ctypes.addressof(one) for one in args])
        said = (function, *grid, *block, shared, stream, ctypes.addressof(places), 0)
        self._marked("compute", stream, ("cuLaunchKernel", *said))

    def facts(self) -> Dict[str, Any]:
        """Describes driver and device.

        Returns:
            ``{"way", "driver" ("12.6"), "device", "compute_capability" ("8.7"), "integrated"}``;
            an integrated GPU shares its memory with the processor.
        """
        version = int(self.call("cuDriverGetVersion"))
        attribute = [
            int(self.call("cuDeviceGetAttribute", which, self.device))
            for which in (_MAJOR, _MINOR, _INTEGRATED)
        ]
        return {
            "way": self._way.name,
            "driver": "{}.{}".format(version // 1000, version % 1000 // 10),
            "device": self._way.call("cuDeviceGetName", 256, self.device),
            "compute_capability": "{}.{}".format(*attribute[:2]),
            "integrated": bool(attribute[2]),
        }


def _bytes(size: int) -> int:
    if size < 0:  # a buffer made all the same would be written past its end
        raise DeviceError("a buffer of {} bytes was asked for".format(size), code="cuda.failed")
    return max(size, 1)


_OPEN: Dict[int, Cuda] = {}
_LOCK = threading.Lock()


def open_cuda(device: int = 0, way: Optional[Way] = None) -> Cuda:
    """Opens a device's primary context; one for the process, since the context is shared.

    Args:
        device: Number of the device.
        way: How to call the driver; by default what ``_cuda_ways.open_way`` finds.

    Raises:
        DeviceError: "cuda.no-driver" without a driver, "cuda.no-device" without a GPU.
    """
    if way is not None:
        return Cuda(way, device)
    with _LOCK:
        if device not in _OPEN:
            _OPEN[device] = Cuda(open_way(), device)
        return _OPEN[device]
