"""CUDA through the driver's own API: memory, streams, events, kernels and graphs. The driver is
called by cuda-python in either of its layouts, or by ctypes on libcuda.

cuda-python's functions return a tuple of the status and the values that the C function writes
through its pointers (https://nvidia.github.io/cuda-python/); the ctypes way is made to answer
alike. The function names are the C API's without their version suffix.

There are three ways: cuda-python's package ``cuda.bindings``, its older modules ``cuda.cuda``, or
ctypes on libcuda, which every driver has. All use the driver API in the device's primary context,
which TensorRT and the runtime API also use, so that pointers, streams and events can be passed to
them as plain integers. Names and arguments: CUDA Driver API,
https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from contextlib import suppress
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import document, flag, member, text

LIBRARY = "libcuda.so.1"

# CUresult
_NO_MEMORY, _NO_DEVICE, _INVALID_DEVICE = 2, 100, 101
_NO_DRIVER = (34, 35, 999)  # stub library, insufficient or unusable driver

_U64, _P, _I, _U, _SIZE = (
    ctypes.c_uint64,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_size_t,
)

# C name, type that it writes through its first pointer (a tuple: through its first ones) or None,
# types of the other arguments
_CALLS: Dict[str, Tuple[str, Any, List[Any]]] = {
    "cuInit": ("cuInit", None, [_U]),
    "cuDriverGetVersion": ("cuDriverGetVersion", _I, []),
    "cuDeviceGetCount": ("cuDeviceGetCount", _I, []),
    "cuDeviceGet": ("cuDeviceGet", _I, [_I]),
    "cuDeviceGetAttribute": ("cuDeviceGetAttribute", _I, [_I, _I]),
    "cuDevicePrimaryCtxRetain": ("cuDevicePrimaryCtxRetain", _P, [_I]),
    "cuCtxSetCurrent": ("cuCtxSetCurrent", None, [_P]),
    "cuMemAlloc": ("cuMemAlloc_v2", _U64, [_SIZE]),
    "cuMemFree": ("cuMemFree_v2", None, [_U64]),
    "cuMemAllocHost": ("cuMemAllocHost_v2", _P, [_SIZE]),
    "cuMemFreeHost": ("cuMemFreeHost", None, [_P]),
    "cuMemcpyHtoDAsync": ("cuMemcpyHtoDAsync_v2", None, [_U64, _P, _SIZE, _P]),
    "cuMemcpyDtoHAsync": ("cuMemcpyDtoHAsync_v2", None, [_P, _U64, _SIZE, _P]),
    "cuMemcpyDtoDAsync": ("cuMemcpyDtoDAsync_v2", None, [_U64, _U64, _SIZE, _P]),
    "cuStreamCreate": ("cuStreamCreate", _P, [_U]),
    "cuStreamDestroy": ("cuStreamDestroy_v2", None, [_P]),
    "cuStreamSynchronize": ("cuStreamSynchronize", None, [_P]),
    "cuStreamWaitEvent": ("cuStreamWaitEvent", None, [_P, _P, _U]),
    "cuEventCreate": ("cuEventCreate", _P, [_U]),
    "cuEventDestroy": ("cuEventDestroy_v2", None, [_P]),
    "cuEventRecord": ("cuEventRecord", None, [_P, _P]),
    "cuEventElapsedTime": ("cuEventElapsedTime", ctypes.c_float, [_P, _P]),
    "cuStreamBeginCapture": ("cuStreamBeginCapture_v2", None, [_P, _I]),
    "cuStreamEndCapture": ("cuStreamEndCapture", _P, [_P]),
    "cuGraphInstantiateWithFlags": ("cuGraphInstantiateWithFlags", _P, [_P, ctypes.c_ulonglong]),
    "cuGraphLaunch": ("cuGraphLaunch", None, [_P, _P]),
    "cuGraphExecDestroy": ("cuGraphExecDestroy", None, [_P]),
    "cuGraphDestroy": ("cuGraphDestroy", None, [_P]),
    "cuDevicePrimaryCtxSetFlags": ("cuDevicePrimaryCtxSetFlags_v2", None, [_I, _U]),
    "cuCtxGetFlags": ("cuCtxGetFlags", _U, []),
    "cuMemGetInfo": ("cuMemGetInfo_v2", (_SIZE, _SIZE), []),
    "cuModuleLoadData": ("cuModuleLoadData", _P, [ctypes.c_char_p]),
    "cuModuleUnload": ("cuModuleUnload", None, [_P]),
    "cuModuleGetFunction": ("cuModuleGetFunction", _P, [_P, ctypes.c_char_p]),
    "cuModuleGetLoadingMode": ("cuModuleGetLoadingMode", _I, []),
    "cuLaunchKernel": ("cuLaunchKernel", None, [_P, *[_U] * 7, _P, _P, _P]),
}

# calls that write through their last pointer instead
_LAST = ("cuStreamEndCapture",)

# the shorter name is cuda-python's for 12 and 13; older releases use it for another call
_ELSE = {"cuGraphInstantiateWithFlags": "cuGraphInstantiate"}

# cuda-python wants its enums: which argument, of which
_ENUMS = {
    "cuDeviceGetAttribute": (0, "CUdevice_attribute"),
    "cuStreamBeginCapture": (1, "CUstreamCaptureMode"),
}
Grid = Tuple[int, int, int]
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: no implicit wait for the default stream
_COPIES = {"h2d": "cuMemcpyHtoDAsync", "d2h": "cuMemcpyDtoHAsync", "d2d": "cuMemcpyDtoDAsync"}

# CUdevice_attribute
_INTEGRATED, _MAJOR, _MINOR, _PERSISTENT_L2 = 18, 75, 76, 108

_OPEN: List[Cuda] = []
_LOCK = threading.Lock()

# CUctx_flags: CU_CTX_SCHED_*
_FLAGS = {"auto": 0, "spin": 1, "yield": 2, "blocking": 4}
_SCHEDULE = 7  # CU_CTX_SCHED_MASK

_THREAD_LOCAL = 1

# Kernels are loaded when they are first used, which saves memory and time at the start (CUDA
# Programming Guide, "Lazy Loading"). The driver reads this once, when it starts.
_LOADING = "CUDA_MODULE_LOADING"
_LOADING_MODES = {1: "eager", 2: "lazy"}  # CUmoduleLoadingMode


class DriverApi:
    """A way to call the driver.

    Attributes:
        name: "cuda.bindings", "cuda.cuda" or "ctypes".
    """

    name = ""

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a function and returns its output (a tuple if there are several), None without.

        Raises:
            DeviceError: "cuda.*" if its status is not CUDA_SUCCESS.
        """
        raise NotImplementedError


class PythonDriverApi(DriverApi):
    """cuda-python's driver module, of either layout."""

    def __init__(self, driver: Any, name: str) -> None:
        self.driver = driver
        self.name = name

    def call(self, name: str, *arguments: Any) -> Any:
        if name in _ENUMS:
            place, kind = _ENUMS[name]
            enum = getattr(self.driver, kind)(arguments[place])
            arguments = (*arguments[:place], enum, *arguments[place + 1 :])
        try:
            function = getattr(self.driver, name, None)
            if function is None:
                function = getattr(self.driver, _ELSE.get(name, name))
            status, *found = function(*arguments)
        except RuntimeError as error:  # from its own loader if libcuda is missing
            raise _no_driver(str(error)) from error
        if int(status):
            _fail(name, int(status), getattr(status, "name", ""))
        if not found:
            return None
        # handles and sizes become plain integers, as with ctypes
        if len(found) > 1:
            return tuple(map(int, found))
        value = found[0]
        if isinstance(value, bytes):
            return value.split(b"\0", 1)[0].decode("utf-8", "replace")
        return value if isinstance(value, float) else int(value)


class CtypesDriverApi(DriverApi):
    """libcuda, called by ctypes."""

    name = "ctypes"

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def call(self, name: str, *arguments: Any) -> Any:
        if name == "cuDeviceGetName":
            text = ctypes.create_string_buffer(int(arguments[0]))
            self._check(name, self.library.cuDeviceGetName(text, *map(_I, arguments)))
            return text.value.decode("utf-8", "replace")
        symbol, written, kinds = _CALLS[name]
        values = [kind(value) for kind, value in zip(kinds, arguments)]  # noqa: B905
        if written is None:
            self._check(name, getattr(self.library, symbol)(*values))
            return None
        places = [make() for make in (written if isinstance(written, tuple) else (written,))]
        pointers = [ctypes.byref(place) for place in places]
        order = [*values, *pointers] if name in _LAST else [*pointers, *values]
        self._check(name, getattr(self.library, symbol)(*order))
        if len(places) > 1:
            return tuple(place.value for place in places)
        return places[0].value or 0

    def _check(self, name: str, status: int) -> None:
        if status:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(status, ctypes.byref(text))
            _fail(name, status, (text.value or b"").decode("ascii", "replace"))


def open_driver_api() -> DriverApi:
    """Finds the driver, by the newest available way.

    Raises:
        DeviceError: "cuda.no-driver".
    """
    os.environ.setdefault(_LOADING, "LAZY")
    for module in ("cuda.bindings.driver", "cuda.cuda"):
        try:
            return PythonDriverApi(importlib.import_module(module), module.replace(".driver", ""))
        except Exception:  # not installed, or made for another Python or CUDA: the next way
            continue
    library = load_driver()
    if library is None:
        raise _no_driver("{} is missing".format(LIBRARY))
    return CtypesDriverApi(library)


def load_driver() -> Optional[ctypes.CDLL]:
    """Returns libcuda; None if it cannot be loaded."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        return None


def _fail(name: str, status: int, text: str) -> NoReturn:
    message = "{} failed: {}".format(name, text or "error {}".format(status))
    if status == _NO_MEMORY:
        raise DeviceError(
            "the GPU is out of memory ({})".format(name),
            code="cuda.no-memory",
            hint="stop other programs on the GPU, or run fewer frames in flight",
        )
    if status in (_NO_DEVICE, _INVALID_DEVICE):
        raise DeviceError(
            "CUDA finds no GPU: {}".format(message),
            code="cuda.no-device",
            hint="in a container, start it with --runtime nvidia; check CUDA_VISIBLE_DEVICES",
        )
    # later these numbers mean that a call failed, not that the driver is unusable
    if status in _NO_DRIVER and name == "cuInit":
        raise _no_driver(message)
    raise DeviceError(message, code="cuda.failed")


def _no_driver(reason: str) -> DeviceError:
    return DeviceError(
        "no usable CUDA driver: {}".format(reason),
        code="cuda.no-driver",
        hint="run this on the board; in a container, start it with --runtime nvidia",
    )


@document(frozen=True)
class CudaFacts:
    """Facts about the driver and its device.

    Attributes:
        way: The way of calls: the module of cuda-python, or "ctypes".
        driver: The CUDA version that it supports, such as "12.6".
        device: The device's name.
        compute_capability: Its compute capability, such as "8.7".
        integrated: True if the GPU shares its memory with the processor.
    """

    way: str = member(text())
    driver: str = member(text())
    device: str = member(text())
    compute_capability: str = member(text())
    integrated: bool = member(flag)


class Cuda:
    """One device's primary context; every method may be called from any thread.

    Pointers and handles are integers. A stream of 0 is the default stream.

    Raises:
        DeviceError: Every method: "cuda.no-memory", or "cuda.failed" with CUDA's own error name.
    """

    def __init__(self, way: DriverApi) -> None:
        self._way = way
        self._thread = threading.local()
        way.call("cuInit", 0)
        self.device: int = way.call("cuDeviceGet", 0)
        # never released: TensorRT and other libraries use the same context until the process ends
        self._context = way.call("cuDevicePrimaryCtxRetain", self.device)

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls the driver in the device's context; returns as ``DriverApi.call``."""
        # the current context is per thread: bound once in each
        if not getattr(self._thread, "bound", False):
            self._way.call("cuCtxSetCurrent", self._context)
            self._thread.bound = True
        return self._way.call(name, *arguments)

    def bind(self) -> None:
        """Makes the context current in the calling thread, for libraries that need one."""
        # another library may have made its own context current in this thread meanwhile
        self._thread.bound = False
        self.call("cuDriverGetVersion")

    def malloc(self, size: int) -> int:
        """Allocates device memory (at least one byte, since CUDA refuses none)."""
        return int(self.call("cuMemAlloc", _bytes(size)))

    def free(self, pointer: int) -> None:
        """Frees memory from ``malloc``."""
        self.call("cuMemFree", pointer)

    def host_alloc(self, size: int) -> int:
        """Allocates pinned host memory, which copies can read and write asynchronously."""
        return int(self.call("cuMemAllocHost", _bytes(size)))

    def host_free(self, pointer: int) -> None:
        """Frees memory from ``host_alloc``."""
        self.call("cuMemFreeHost", pointer)

    def copy(self, dst: int, src: int, size: int, kind: str, stream: int = 0) -> None:
        """Copies bytes in stream order; ``kind`` is "h2d", "d2h" or "d2d".

        The host's side must stay untouched until the stream was synchronised.
        """
        if not size:
            return
        self._record_marks(kind, stream, (_COPIES[kind], dst, src, size, stream))

    def _record_marks(self, phase: str, stream: int, call: Tuple[Any, ...]) -> None:
        marks = self.marks
        if marks is None:
            self.call(*call)
            return
        # no other call between the two: an idle stream passes the first event at once
        first, last = marks.pair(phase)
        self.call("cuEventRecord", first, stream)
        self.call(*call)
        self.call("cuEventRecord", last, stream)

    def observe(self, marks: Any) -> None:
        """Makes ``marks`` (``EventPairs``) record this thread's work from now on; None ends it."""
        self._thread.marks = marks

    @property
    def marks(self) -> Any:
        """Returns the recorder of this thread's work (``EventPairs``), or None."""
        return getattr(self._thread, "marks", None)

    def stream(self) -> int:
        """Makes a stream that does not wait for the default stream."""
        return int(self.call("cuStreamCreate", _NON_BLOCKING))

    def destroy_stream(self, stream: int) -> None:
        """Destroys a stream."""
        self.call("cuStreamDestroy", stream)

    def synchronize(self, stream: int = 0) -> None:
        """Waits until the stream's work is done; raises a kernel's failure."""
        self.call("cuStreamSynchronize", stream)

    def event(self) -> int:
        """Makes an event with timing."""
        return int(self.call("cuEventCreate", 0))

    def destroy_event(self, event: int) -> None:
        """Destroys an event."""
        self.call("cuEventDestroy", event)

    def record(self, event: int, stream: int = 0) -> None:
        """Records the event after the stream's work so far."""
        self.call("cuEventRecord", event, stream)

    def elapsed_ms(self, first: int, second: int) -> float:
        """Returns the milliseconds between two completed events."""
        return float(self.call("cuEventElapsedTime", first, second))

    def wait(self, stream: int, event: int) -> None:
        """Makes the stream's later work wait for the event."""
        self.call("cuStreamWaitEvent", stream, event, 0)

    def memory(self) -> Tuple[int, int]:
        """Returns free and total bytes of the device's memory."""
        free, total = self.call("cuMemGetInfo")
        return int(free), int(total)

    def load_module(self, image: bytes) -> int:
        """Loads PTX (text that ends with a zero byte) or a cubin."""
        return int(self.call("cuModuleLoadData", image))

    def function(self, module: int, name: str) -> int:
        """Returns a module's kernel by its name in the image (extern "C", or mangled)."""
        return int(self.call("cuModuleGetFunction", module, name.encode("utf-8")))

    def launch(
        self,
        function: int,
        grid: Grid,
        block: Grid,
        args: Sequence[Any],
        stream: int = 0,
    ) -> None:
        """Launches a kernel.

        Args:
            function: From :meth:`function`.
            grid: Blocks along x, y and z.
            block: Threads of a block along x, y and z.
            args: ctypes values in the order of the kernel's parameters (pointers: c_uint64 or
                c_void_p).
            stream: The stream.
        """
        # cuLaunchKernel takes an array of pointers to the arguments and copies the values before it
        # returns
        places = (ctypes.c_void_p * max(len(args), 1))(
            *[ctypes.addressof(argument) for argument in args]
        )
        arguments = (function, *grid, *block, 0, stream, ctypes.addressof(places), 0)
        self._record_marks("compute", stream, ("cuLaunchKernel", *arguments))

    def compute_capability(self) -> Tuple[int, int]:
        """Returns the device's compute capability, such as (8, 7)."""
        return self._attribute(_MAJOR), self._attribute(_MINOR)

    def facts(self) -> CudaFacts:
        """Describes driver and device."""
        version = int(self.call("cuDriverGetVersion"))
        return CudaFacts(
            way=self._way.name,
            driver="{}.{}".format(version // 1000, version % 1000 // 10),
            device=self._way.call("cuDeviceGetName", 256, self.device),
            compute_capability="{}.{}".format(*self.compute_capability()),
            integrated=bool(self._attribute(_INTEGRATED)),
        )

    def persistent_cache(self) -> int:
        """Returns the bytes of L2 cache that can be kept for chosen data; 0 before Ampere."""
        return self._attribute(_PERSISTENT_L2)

    def module_loading(self) -> Optional[str]:
        """Returns how kernels are loaded, "lazy" or "eager"; None for drivers before CUDA 11.7."""
        try:
            return _LOADING_MODES.get(int(self.call("cuModuleGetLoadingMode")))
        except (AttributeError, DeviceError):  # the library, or cuda-python, lacks the function
            return None

    def _attribute(self, which: int) -> int:
        return int(self.call("cuDeviceGetAttribute", which, self.device))


def _bytes(size: int) -> int:
    if size < 0:  # else copies would write past the buffer's end
        raise DeviceError("a buffer of {} bytes was requested".format(size), code="cuda.failed")
    return max(size, 1)


def open_cuda() -> Cuda:
    """Opens the first device's primary context; a process shares a single instance.

    Raises:
        DeviceError: "cuda.no-driver" without a driver, "cuda.no-device" without a GPU.
    """
    with _LOCK:
        if not _OPEN:
            _OPEN.append(Cuda(open_driver_api()))
        return _OPEN[0]


def choose_wait(spin: bool) -> None:
    """Makes the process wait spinning or blocked; must be called before the device is opened.

    cuDevicePrimaryCtxSetFlags: spinning takes a core and notices the end sooner (trtexec's
    --useSpinWait, its default since TensorRT 11); otherwise trtexec waits blocked. CUDA's
    default is CU_CTX_SCHED_AUTO, which spins if there are enough cores and, on Tegra, may
    block.

    Raises:
        DeviceError: "cuda.failed" if the device is already open and its driver refuses the change,
            or as ``open_cuda``.
    """
    way = open_driver_api()
    way.call("cuInit", 0)
    number = way.call("cuDeviceGet", 0)
    way.call("cuDevicePrimaryCtxSetFlags", number, _FLAGS["spin" if spin else "blocking"])


def wait_mode(cuda: Cuda) -> str:
    """Returns how threads wait in the device's context: "auto", "spin", "yield" or "blocking"."""
    # the other bits do not concern waiting
    flag = int(cuda.call("cuCtxGetFlags")) & _SCHEDULE
    return {number: name for name, number in _FLAGS.items()}.get(flag, "auto")


# Captured in CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, as in trtexec (samples/common/sampleDevice.h,
# TrtCudaGraph): meanwhile this thread must not call functions that wait or allocate.
class CudaGraph:
    """The captured work of ``work`` on ``stream``, to be launched there repeatedly.

    Raises:
        DeviceError: The error of ``work``, or "cuda.failed" if it cannot be captured.
    """

    def __init__(self, cuda: Cuda, stream: int, work: Callable[[], object]) -> None:
        self._cuda = cuda
        self._stream = stream
        self._made = 0
        cuda.call("cuStreamBeginCapture", stream, _THREAD_LOCAL)
        try:
            work()
        except BaseException:
            # a stream that stays in capture mode would take no other work
            with suppress(DeviceError):
                self._destroy("cuGraphDestroy", cuda.call("cuStreamEndCapture", stream))
            raise
        graph = cuda.call("cuStreamEndCapture", stream)
        if not graph:
            raise DeviceError("the capture returned no graph", code="cuda.failed")
        try:
            self._made = int(cuda.call("cuGraphInstantiateWithFlags", graph, 0))
        finally:
            # the instantiated graph does not need the captured graph
            self._destroy("cuGraphDestroy", graph)

    def launch(self) -> None:
        """Enqueues the captured work after the stream's work so far."""
        self._cuda.call("cuGraphLaunch", self._made, self._stream)

    def _destroy(self, how: str, graph: int) -> None:
        if graph:
            self._cuda.call(how, graph)

    def __del__(self) -> None:
        try:
            self._destroy("cuGraphExecDestroy", self._made)
        except Exception:  # at the process's end the context may no longer exist
            return
