"""Three ways to call CUDA's driver: cuda-python in both layouts, or ctypes on libcuda.

cuda-python's functions return a tuple of the status and what the C function writes through its
pointers (https://nvidia.github.io/cuda-python/); the ctypes way is made to answer alike. The
function names are the C API's without their version suffix.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, Dict, List, NoReturn, Optional, Tuple

from ._errors import DeviceError

__all__ = ["LIBRARY", "CtypesWay", "PythonWay", "Way", "load_driver", "open_way"]

LIBRARY = "libcuda.so.1"
# CUresult
_NO_MEMORY, _NO_DEVICE, _INVALID_DEVICE = 2, 100, 101
_NO_DRIVER = (34, 35, 999)  # stub library, insufficient or unusable driver

_U64, _P, _I, _U, _SIZE = (
    ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
)  # fmt: skip
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
    "cuLaunchKernel": ("cuLaunchKernel", None, [_P, *[_U] * 7, _P, _P, _P]),
}
# calls that write through their last pointer instead
_LAST = ("cuStreamEndCapture",)
# the shorter name: cuda-python's of 12 and 13, whose older releases mean another call by it
_ELSE = {"cuGraphInstantiateWithFlags": "cuGraphInstantiate"}
# cuda-python wants its enums: which argument, of which
_ENUMS = {
    "cuDeviceGetAttribute": (0, "CUdevice_attribute"),
    "cuStreamBeginCapture": (1, "CUstreamCaptureMode"),
}


class Way:
    """How the driver is called.

    Attributes:
        name: "cuda.bindings", "cuda.cuda" or "ctypes".
    """

    name = ""

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a function and returns what it writes (a tuple of several), None for nothing.

        Raises:
            DeviceError: "cuda.*", when its status is not CUDA_SUCCESS.
        """
        raise NotImplementedError


class PythonWay(Way):
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
        except RuntimeError as error:  # its own loader, where libcuda is missing
            raise _no_driver(str(error)) from error
        if int(status):
            _fail(name, int(status), getattr(status, "name", ""))
        if not found:
            return None
        if len(found) > 1:
            return tuple(map(int, found))
        value = found[0]
        if isinstance(value, bytes):
            return value.split(b"\0", 1)[0].decode("utf-8", "replace")
        return value if isinstance(value, float) else int(value)


class CtypesWay(Way):
    """libcuda itself."""

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
        places = [one() for one in (written if isinstance(written, tuple) else (written,))]
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


def open_way() -> Way:
    """Finds the driver, by the newest way that is there.

    Raises:
        DeviceError: "cuda.no-driver".
    """
    for module in ("cuda.bindings.driver", "cuda.cuda"):
        try:
            return PythonWay(importlib.import_module(module), module.replace(".driver", ""))
        except Exception:  # not installed, or made for another Python or CUDA: the next way
            continue
    library = load_driver()
    if library is None:
        raise _no_driver("{} is not there".format(LIBRARY))
    return CtypesWay(library)


def load_driver() -> Optional[ctypes.CDLL]:
    """libcuda, None where it cannot be loaded."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        return None


def _fail(name: str, status: int, text: str) -> NoReturn:
    message = "{} failed: {}".format(name, text or "error {}".format(status))
    if status == _NO_MEMORY:
        raise DeviceError(
            "the GPU has no memory left ({})".format(name),
            code="cuda.no-memory",
            hint="end what else uses it, or run fewer frames in flight",
        )
    if status in (_NO_DEVICE, _INVALID_DEVICE):
        raise DeviceError(
            "CUDA finds no GPU: {}".format(message),
            code="cuda.no-device",
            hint="in a container, start it with --runtime nvidia; see CUDA_VISIBLE_DEVICES too",
        )
    if status in _NO_DRIVER and name == "cuInit":
        raise _no_driver(message)
    raise DeviceError(message, code="cuda.failed")


def _no_driver(reason: str) -> DeviceError:
    return DeviceError(
        "there is no usable CUDA driver: {}".format(reason),
        code="cuda.no-driver",
        hint="run this on the board; in a container, start it with --runtime nvidia",
    )
